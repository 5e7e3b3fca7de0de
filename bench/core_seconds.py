"""Core-seconds of a process and everything below it: what a piece of work costs, however busy the
machine is.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Mapping
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


def core_seconds_by_part(words: Mapping[str, str]) -> dict[str, float]:
    """Core-seconds of the processes below this one, by whose they are.

    `words` of a command line tell that, the first that fits; all further ones are `others`.
    """
    parts: defaultdict[str, float] = defaultdict(float)
    for process, seconds in core_seconds().items():
        if process == os.getpid():
            continue
        try:
            line = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        parts[next((part for word, part in words.items() if word in line), "others")] += seconds
    return dict(parts)


class ProgramWatch:
    """Core-seconds of all processes of a name that run while the block does."""

    def __init__(self, name: str, interval_s: float) -> None:
        self._name, self._interval_s, self._used = name, interval_s, dict[int, float]()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def core_seconds(self) -> float:
        return sum(self._used.values())

    def __enter__(self) -> ProgramWatch:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(self._interval_s):
            below = core_seconds()
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    text = stat.read_text()
                except OSError:
                    continue
                if f"({self._name})" in text and int(stat.parent.name) in below:
                    fields = text.rpartition(")")[2].split()
                    self._used[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / TICKS


class Tree:
    """Core-seconds of a process and all below it, by looks at them while they run.

    What a process used after the last look at it is missing: take short intervals.
    """

    def __init__(self, process: int) -> None:
        self._members = {process}
        self._used: dict[int, float] = {}
        self._names: set[str] = set()

    @property
    def core_seconds(self) -> float:
        """Of all that were seen."""
        return sum(self._used.values())

    def has(self, program: str) -> bool:
        """Whether such a program was seen."""
        return program in self._names

    def look(self) -> None:
        """Take the processes' figures."""
        found: dict[int, tuple[int, float, str]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
            except OSError:
                continue
            name, fields = text[text.find("(") + 1 : text.rfind(")")], text.rpartition(")")[2]
            parent, own = fields.split()[1], fields.split()[11:13]
            seconds = sum(int(ticks) for ticks in own) / TICKS
            found[int(stat.parent.name)] = (int(parent), seconds, name)
        # One that has lost its parent stays: members are never dropped.
        while below := {pid for pid, each in found.items() if each[0] in self._members} - (
            self._members
        ):
            self._members |= below
        for pid in self._members & found.keys():
            self._used[pid] = found[pid][1]
            self._names.add(found[pid][2])
