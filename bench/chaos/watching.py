"""What a schedule's commands do, told from outside: their processes, their solvers, their lines."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

from bench.chaos.schedule import EPOCHS
from tests.end_to_end.conftest import solvers
from tests.end_to_end.processes import command_line, lives, tree

_PR_SET_CHILD_SUBREAPER = 36
_CASE = re.compile(r"case (\w{12})  (accepted|rejected|failed)")
_EPOCH = re.compile(r"epoch (\d+)/(\d+)  loss")


def adopt_orphans() -> None:
    """Become the parent of all that our commands leave behind, so that it is found."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(without: set[int]) -> list[int]:
    """Living processes that this one has started, without some and what those have started."""
    spared = {process for root in without for process in tree(root)} | {os.getpid()}
    return [process for process in tree(os.getpid()) if process not in spared and lives(process)]


def named(processes: list[int], *parts: str) -> list[int]:
    """Those whose command line has one of the parts in it."""
    found = []
    for process in processes:
        try:
            line = command_line(process)
        except OSError:  # it has ended
            continue
        if any(part in line for part in parts):
            found.append(process)
    return found


class Teller(Protocol):
    """Where a command tells how far it is: a terminal, or the log of a worker."""

    @property
    def printed(self) -> str:
        """All that was told."""

    @property
    def num_blocks(self) -> int:
        """Grows with what was told."""


class LogFile:
    """What was written to a log from now on."""

    def __init__(self, path: Path) -> None:
        self._path, self._start = path, path.stat().st_size

    @property
    def printed(self) -> str:
        with self._path.open("rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    @property
    def num_blocks(self) -> int:
        return self._path.stat().st_size


@dataclass
class Watch:
    """The solver runs and the told cases of a schedule, from its first attempt to its last."""

    scratch: Path
    solving: dict[int, str] = field(default_factory=dict)
    """Solvers at work: process id -> case"""
    starts: list[str] = field(default_factory=list)
    recorded: set[str] = field(default_factory=set)
    """Cases that a command has told as accepted, which it does once they are committed"""
    solved_again: list[str] = field(default_factory=list)

    def look(self, tellers: Sequence[Teller]) -> None:
        """Take note of solvers and lines that are new."""
        alive = {}
        for process in solvers(self.scratch):
            try:
                # A directory that was deleted under its solver keeps a name with a mark.
                place = str(Path(f"/proc/{process}/cwd").readlink()).removesuffix(" (deleted)")
            except OSError:  # it has ended meanwhile
                continue
            alive[process] = Path(place).name
        for process in alive.keys() - self.solving.keys():
            self.starts.append(alive[process])
            if alive[process] in self.recorded:
                self.solved_again.append(alive[process])
        self.solving = alive
        for teller in tellers:
            told = Told.by(teller)
            self.recorded |= {case for case, status in told.cases if status == "accepted"}


@dataclass
class Told:
    """What a command has told so far; read again only when it has told more."""

    cases: list[tuple[str, str]]
    epoch: int

    @classmethod
    def by(cls, teller: Teller) -> Told:
        num_blocks, known = teller.num_blocks, _told.get(teller)
        if known is None or known[0] != num_blocks:
            epochs = [int(epoch) for epoch, _ in _EPOCH.findall(teller.printed)]
            told = cls(_CASE.findall(teller.printed), max(epochs, default=0))
            known = _told[teller] = (num_blocks, told)
        return known[1]


_told: WeakKeyDictionary[Teller, tuple[int, Told]] = WeakKeyDictionary()


@dataclass
class Progress:
    """How far one attempt has come."""

    starts: int
    """Solver runs of earlier attempts"""

    def num_solvers(self, watch: Watch) -> int:
        return len(watch.starts) - self.starts

    @staticmethod
    def num_recorded(teller: Teller) -> int:
        return len(Told.by(teller).cases)

    @staticmethod
    def epochs(teller: Teller) -> int:
        return Told.by(teller).epoch

    @classmethod
    def trained(cls, teller: Teller) -> bool:
        return cls.epochs(teller) >= EPOCHS
