"""What the person in front of the terminal sees while things run: bars with an ETA, or one line per event without a terminal.

Cases run in other processes; each leaves a small progress file in its scratch directory, which the bars here are drawn
from. On a cluster's other nodes these files are out of sight: the bar over all cases and Prefect's own pages remain.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from simgen.case import Progress as CaseProgress
from simgen.case import Status

PROGRESS_FILE = "progress.json"
REFRESH_S = 0.5

console = Console(stderr=True)


def write_progress(progress: CaseProgress, directory: Path) -> None:
    """Leave a case's progress where the display can see it."""
    if directory.is_dir():
        temporary = directory / f"{PROGRESS_FILE}.part"
        temporary.write_text(json.dumps(asdict(progress)))
        temporary.replace(directory / PROGRESS_FILE)


def duration(seconds: float | None) -> str:
    """`1 min 05 s`, or nothing where it is not known."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


Logger = logging.Logger | logging.LoggerAdapter  # type: ignore[type-arg]


def announce(text: str, logger: Logger) -> None:
    """One lasting line, in the log and on the screen."""
    logger.info(text)
    # At its usual level Prefect's own logging shows the line already.
    if not logger.isEnabledFor(logging.INFO):
        console.print(text, highlight=False, soft_wrap=True)


class Bars:
    """A bar with an ETA and lines above it; on a terminal drawn live, elsewhere the lines alone, through a logger."""

    def __init__(self, title: str, total: int, logger: Logger) -> None:
        self._logger = logger
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._main = self._progress.add_task(title, total=total, note="")

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def line(self, text: str) -> None:
        """One lasting line, in the log and on the screen."""
        announce(text, self._logger)

    def advance(self, completed: int, note: str = "") -> None:
        self._progress.update(self._main, completed=completed, note=note)


class CaseBars(Bars):
    """Bars over running cases: one for all, one for each that leaves its progress on this machine."""

    def __init__(
        self,
        cases: Sequence[str],
        scratch: Path,
        logger: Logger,
    ) -> None:
        super().__init__("cases", len(cases), logger)
        self._cases, self._scratch = list(cases), scratch
        self._bars: dict[str, TaskID] = {}
        self._done: dict[str, Status] = {}
        self._stop = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="follow-cases", daemon=True)

    def __enter__(self) -> CaseBars:
        super().__enter__()
        if console.is_terminal:
            self._follower.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._follower.is_alive():
            self._follower.join()
        super().__exit__(kind, error, trace)

    def finished(self, case: str, status: Status, reason: str, seconds: float) -> None:
        """A case has ended and is on record."""
        self._done[case] = status
        bar = self._bars.pop(case, None)
        if bar is not None:
            self._progress.remove_task(bar)
        self.line(f"case {case}  {status}  {duration(seconds)}{'  ' + reason if reason else ''}")
        self.advance(len(self._done))

    def _follow(self) -> None:
        while not self._stop.wait(REFRESH_S):
            for case in self._cases:
                if case not in self._done:
                    self._draw(case)

    def _draw(self, case: str) -> None:
        try:
            seen = json.loads((self._scratch / case / PROGRESS_FILE).read_text())
        except (OSError, ValueError):
            return
        note = f"{seen['message']}{', ' + duration(seen['eta_s']) + ' left' if seen['eta_s'] else ''}"
        if case not in self._bars:
            self._bars[case] = self._progress.add_task(f"  {case}", total=100, note="")
        self._progress.update(self._bars[case], completed=int(100 * seen["fraction"]), note=note)
