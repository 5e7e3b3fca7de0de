"""Ask this machine for its cores and its memory, on systems other than Linux as well."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return the cores that this process may use; where the system does not tell, all of them."""
    if hasattr(os, "sched_getaffinity"):  # of Linux alone
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gb() -> float | None:
    """Return this machine's memory; None where the system does not tell (Windows)."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
