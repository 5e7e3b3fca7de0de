"""When finished cases become durable: at once, as long as that is cheap."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from simgen.case import Status
from simgen.store.fork import CaseFork
from simgen.store.writer import DatasetWriter


@dataclass(frozen=True)
class SolvedFork:
    """What a case's task sends back: the store session that it wrote through, and how the case ended."""

    fork: CaseFork
    case: str
    status: Status
    reason: str
    seconds: float


class Committer:
    """Commits each case as it ends. Where commits take long (seconds, in a dataset of 10,000 cases) the cases that end
    meanwhile share the next one, so that committing takes up half of the time at most.

    `on_record` is called with every case that has become durable.
    """

    def __init__(self, writer: DatasetWriter, on_record: Callable[[SolvedFork], None]) -> None:
        self._writer, self._on_record = writer, on_record
        self._waiting: list[SolvedFork] = []
        self._not_before = 0.0

    def take(self, solved: SolvedFork) -> None:
        """Commit now, or with the next case that ends."""
        self._waiting.append(solved)
        if time.monotonic() >= self._not_before:
            self.flush()

    def flush(self) -> None:
        """Commit whatever waits."""
        if not self._waiting:
            return
        began = time.monotonic()
        self._writer.commit([solved.fork for solved in self._waiting])
        ended = time.monotonic()
        self._not_before = ended + (ended - began)
        committed, self._waiting = self._waiting, []
        for solved in committed:
            self._on_record(solved)
