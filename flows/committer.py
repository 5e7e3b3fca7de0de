"""Commit finished cases: at once, as long as that is cheap.

A commit rewrites the list of all groups and arrays of the dataset, some kilobytes a case. If every
case had one of its own, the time and the storage of all commits together would grow with the square
of the number of cases.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from simgen.case import Status
from simgen.store.access.fork import CaseFork
from simgen.store.access.writer import DatasetWriter

#: Part of the time that commits may take. A killed run solves those cases again that have waited
#: for a commit: some seconds' worth in a dataset of 10,000.
SHARE = 0.1


@dataclass(frozen=True)
class SolvedFork:
    """The result of a case's task: its store session, and how the case ended."""

    fork: CaseFork
    case: str
    status: Status
    reason: str
    seconds: float


class Committer:
    """Commit each case as it ends.

    Cases that end shortly after a commit share the next one, so that commits take no more than
    SHARE of the time, whatever the size of the dataset. `on_record` is called with every case that
    has become durable. Each commit says how many of `num_cases` are left.
    """

    def __init__(
        self, writer: DatasetWriter, on_record: Callable[[SolvedFork], None], num_cases: int
    ) -> None:
        self._writer, self._on_record = writer, on_record
        self._num_left = num_cases
        self._waiting: list[SolvedFork] = []
        self._not_before = 0.0

    def take(self, solved: SolvedFork) -> None:
        """Commit now, or when `flush_where_due` is called later."""
        self._waiting.append(solved)
        self.flush_where_due()

    def flush_where_due(self) -> float | None:
        """Commit the waiting cases if it is time; return the seconds until then, if any wait."""
        left = self._not_before - time.monotonic()
        if self._waiting and left > 0:
            return left
        self.flush()
        return None

    def flush(self) -> None:
        """Commit every waiting case."""
        if not self._waiting:
            return
        began = time.monotonic()
        left = self._num_left - len(self._waiting)
        self._writer.commit([solved.fork for solved in self._waiting], num_left=left)
        # Not earlier: a commit that was interrupted is made again.
        self._num_left = left
        ended = time.monotonic()
        self._not_before = ended + (ended - began) * (1 / SHARE - 1)
        committed, self._waiting = self._waiting, []
        for solved in committed:
            self._on_record(solved)
