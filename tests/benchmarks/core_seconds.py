"""Core-seconds of a process and everything below it: what a piece of work costs, however busy the
machine is.
"""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def core_seconds() -> dict[int, float]:
    """Of this process and each living descendant, its waited-for children included: seconds by
    process id.
    """
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # the name in brackets may hold spaces; what follows it does not
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        process = int(stat.parent.name)
        parents[process] = int(fields[1])
        used[process] = sum(int(ticks) for ticks in fields[11:15]) / TICKS
    own = {os.getpid()}
    while True:
        below = {process for process, parent in parents.items() if parent in own} - own
        if not below:
            return {process: used[process] for process in own if process in used}
        own |= below


def spent(before: dict[int, float]) -> float:
    """Core-seconds since `before`."""
    return sum(seconds - before.get(process, 0.0) for process, seconds in core_seconds().items())
