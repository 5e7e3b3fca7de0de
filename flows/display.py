"""Show progress: bars with an ETA on a terminal, one line per event elsewhere.

Cases run in other processes. Each writes a small progress file to its scratch directory, and the
bars are drawn from these files. Files on a cluster's other nodes cannot be read here: their cases
appear in the bar over all cases only.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from flows.terminal import errors as console
from simgen import log_lines
from simgen.case import Progress as CaseProgress
from simgen.case import Status

logger = logging.getLogger("flows.display")

PROGRESS_FILE = "progress.json"
REFRESH_S = 0.5
#: Of the terminal. Each frame takes milliseconds of a core, through hours of work.
FRAMES_PER_S = 4


def write_progress(progress: CaseProgress, directory: Path) -> None:
    """Write a case's progress to the file that the display reads."""
    if directory.is_dir():
        (directory / PROGRESS_FILE).write_text(json.dumps(asdict(progress)))


def read_progress(scratch: Path, case: str) -> CaseProgress | None:
    """Read the progress file of a case that is solved on this machine; None where there is none."""
    try:
        return CaseProgress(**json.loads((scratch / case / PROGRESS_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def progress_note(scratch: Path, case: str) -> str:
    """Describe how far a case of this machine is: `t = 3 of 12 s, ..., 20 s left`."""
    progress = read_progress(scratch, case)
    if progress is None:
        return ""
    return f"{progress.message}{f', {duration(progress.eta_s)} left' if progress.eta_s else ''}"


def duration(seconds: float | None) -> str:
    """Format as `1 min 05 s`; an unknown duration is empty."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def announce(text: str) -> None:
    """Write one lasting line to the screen, or to the log where that is kept as JSON.

    Where Prefect shows this run, it gets the line too.
    """
    logger.info(text)
    if not log_lines.is_json():
        console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)


class Bars:
    """A live bar with lines above it; without a terminal, the lines alone."""

    def __init__(self, title: str, total: int) -> None:
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
            refresh_per_second=FRAMES_PER_S,
        )
        self._main = self._progress.add_task(title, total=total, note="")

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def line(self, text: str) -> None:
        """Write one lasting line to the log and the screen."""
        announce(text)

    def advance(self, completed: int, note: str = "") -> None:
        self._progress.update(self._main, completed=completed, note=note)


class CaseBars(Bars):
    """Bars over running cases: one for all, and one for each case that runs on this machine."""

    def __init__(self, num_cases: int, scratch: Path) -> None:
        super().__init__("cases", num_cases)
        self._scratch = scratch
        self._under_way: set[str] = set()
        self._bars: dict[str, TaskID] = {}
        self._num_done = 0
        self._stop = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="follow-cases", daemon=True)

    def __enter__(self) -> CaseBars:
        super().__enter__()
        if console.is_terminal:
            self._follower.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._follower.is_alive():
            self._follower.join()
        super().__exit__(*error)

    def started(self, case: str) -> None:
        """Follow a case that may begin from now on."""
        self._under_way.add(case)

    def finished(self, case: str, status: Status, reason: str, seconds: float) -> None:
        """Report a case that has ended and is on record."""
        self._num_done += 1
        self._under_way.discard(case)
        bar = self._bars.pop(case, None)
        if bar is not None:
            self._progress.remove_task(bar)
        self.line(f"case {case}  {status}  {duration(seconds)}{'  ' + reason if reason else ''}")
        self.advance(self._num_done)

    def _follow(self) -> None:
        while not self._stop.wait(REFRESH_S):
            for case in tuple(self._under_way):
                self._draw(case)

    def _draw(self, case: str) -> None:
        progress = read_progress(self._scratch, case)
        if progress is None:
            return
        if case not in self._bars:
            self._bars[case] = self._progress.add_task(f"  {case}", total=100, note="")
        self._progress.update(
            self._bars[case],
            completed=int(100 * progress.fraction),
            note=progress_note(self._scratch, case),
        )
