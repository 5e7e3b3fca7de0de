"""Return this machine's cores and memory, and which of its processes were started by which.

A process id is used again by the kernel; together with its start time it is unique.
"""

from __future__ import annotations

import os
from collections import defaultdict


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
    """Return when a local process started, in kernel ticks, or None if it has ended.

    The kernel reuses process ids; an id together with its start time is unique. Also None on
    systems without /proc.
    """
    fields = _fields(str(process))
    return None if fields is None or fields[0] == b"Z" else int(fields[_START])


def descendants(root: int) -> set[tuple[int, int]]:
    """Return a process's children, their children, and so on, as (id, start): see `start_of`.

    The table of processes is read once; asking each thread for its children, as the kernel also
    offers, is a hundred times as much where processes have many threads.
    """
    children: dict[int, list[tuple[int, int]]] = defaultdict(list)
    try:
        processes = filter(str.isdigit, os.listdir("/proc"))  # noqa: PTH208
    except OSError:
        return set()
    for process in processes:
        fields = _fields(process)
        if fields is not None and fields[0] != b"Z":
            children[int(fields[_PARENT])].append((int(process), int(fields[_START])))
    found: set[tuple[int, int]] = set()
    ahead = [root]
    while ahead:
        new = children[ahead.pop()]
        found.update(new)
        ahead += [process for process, _ in new]
    return found


#: Of proc(5)'s fields, counted from the state, the third.
_PARENT, _START = 1, 19


def _fields(process: str) -> list[bytes] | None:
    """Return the fields after the name, which may hold spaces; None of a process that has ended.

    A running command looks at every process twice a second, so without the cost of file objects.
    """
    try:
        file = os.open(f"/proc/{process}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(file, 4096).rpartition(b")")[2].split(None, _START + 1)
    except OSError:
        return None
    finally:
        os.close(file)
