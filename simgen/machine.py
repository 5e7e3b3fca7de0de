"""Return this machine's cores and memory, and which of its processes were started by which.

A process id is used again by the kernel; together with its start time it is unique.
"""

import os
from collections import defaultdict
from pathlib import Path


def usable_cores() -> int:
    """Return the cores that this process may use; where the system does not report them, all."""
    if hasattr(os, "sched_getaffinity"):  # of Linux alone
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gb() -> float | None:
    """Return this machine's memory; None where the system does not report it (Windows)."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def start_of(process: int) -> int | None:
    """Return when a local process started, in kernel ticks; None if it has ended, or off Linux."""
    found = _parent_and_start(Path(f"/proc/{process}"))
    return None if found is None else found[1]


def descendants(root: int) -> set[tuple[int, int]]:
    """Return a process's children, their children, and so on, as (id, start): see `start_of`."""
    children: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        if (status := _parent_and_start(folder)) is not None:
            children[status[0]].append((int(folder.name), status[1]))
    found: set[tuple[int, int]] = set()
    ahead = [root]
    while ahead:
        new = children[ahead.pop()]
        found.update(new)
        ahead += [process for process, _ in new]
    return found


def _parent_and_start(folder: Path) -> tuple[int, int] | None:
    """Return two of proc(5)'s fields; None of a process that has ended."""
    try:
        status = (folder / "stat").read_bytes()
    except OSError:
        return None
    # From the state on, the third field, behind the name, which may hold spaces.
    fields = status.rpartition(b")")[2].split()
    return None if fields[0] == b"Z" else (int(fields[1]), int(fields[19]))
