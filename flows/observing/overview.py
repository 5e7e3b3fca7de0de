"""Read datasets, cases, trainings, sweeps and disks as they are at this moment.

Everything comes from records that exist anyway: the datasets' commits, the run directories, and the
progress files of cases on this machine's scratch disk. No server is asked.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from courant.runs.directory import RunDirectory
from courant.runs.record import run_state
from courant.runs.summary import RunProgress, read_run_progress
from courant.sweeps.sweep import TrialsProgress, read_trials_progress
from flows.display import PROGRESS_FILE
from simgen.case import Progress
from simgen.cases import FAMILIES
from simgen.errors import SimgenError
from simgen.solving.case_lock import is_held
from simgen.store.local_files import local_path
from simgen.store.repository import folders_in, repository_exists
from simgen.store.versions import DatasetProgress, read_progress

ENDED = ("finished",)
"""States of a run that does not change any more; a failed or stopped one may be taken up again"""
READERS = 8
T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True)
class Disk:
    """A file system that work is written to."""

    use: str
    path: str
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Overview:
    """What is going on at one moment."""

    store: str
    runs_url: str
    datasets: tuple[DatasetProgress, ...]
    cases: tuple[Progress, ...]
    """That are solved on this machine, in any dataset"""
    runs: tuple[RunProgress, ...]
    trials: tuple[TrialsProgress, ...]
    """Sweeps and benchmarks"""
    disks: tuple[Disk, ...]
    problems: tuple[str, ...]
    """A line for each dataset or run that cannot be read"""


@dataclass(frozen=True)
class Places:
    """Where to look: folders or s3://bucket/prefix, and this machine's scratch folder."""

    store: str
    runs: str
    scratch: str


class Watch:
    """Look again and again; of runs that have ended only the state is read again."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._ended: dict[str, RunProgress] = {}

    def look(self) -> Overview:
        """Read everything anew; what cannot be read is told among the problems."""
        places = self._places
        with ThreadPoolExecutor(READERS) as pool:
            names = dict.fromkeys([*FAMILIES, *folders_in(places.store)])
            datasets, damaged = _each(pool, _read_dataset, [f"{places.store}/{n}" for n in names])
            runs, trials, unreadable = self._look_at_runs(pool)
        return Overview(
            places.store,
            places.runs,
            tuple(datasets),
            cases_here(Path(places.scratch)),
            tuple(runs),
            tuple(trials),
            tuple(_disks(places)),
            (*damaged, *unreadable),
        )

    def _look_at_runs(
        self, pool: ThreadPoolExecutor
    ) -> tuple[list[RunProgress], list[TrialsProgress], list[str]]:
        folder = RunDirectory(self._places.runs)
        try:
            inside = [folder / name for name in folder.names()]
        except SimgenError as error:
            return [], [], [str(error)]
        runs, damaged = _each(pool, self._read_run, inside)
        known = {run.url for run in runs}
        others = [each for each in inside if each.url not in known]
        trials, worse = _each(pool, lambda each: read_trials_progress(each, self._read_run), others)
        return runs, trials, [*damaged, *worse]

    def _read_run(self, run: RunDirectory) -> RunProgress | None:
        # Its folder may hold another training meanwhile.
        if (ended := self._ended.get(run.url)) is not None and run_state(run) == ended.state:
            return ended
        found = read_run_progress(run)
        if found is not None and found.state in ENDED:
            self._ended[run.url] = found
        return found


def cases_here(scratch: Path) -> tuple[Progress, ...]:
    """Return the cases that processes of this machine are solving, by their progress files."""
    found = []
    for path in sorted(scratch.glob(f"*/{PROGRESS_FILE}")):
        try:
            progress = Progress(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):  # it has just ended
            continue
        if is_held(path.parent.name, scratch):
            found.append(progress)
    return tuple(found)


def _read_dataset(url: str) -> DatasetProgress | None:
    return read_progress(url) if repository_exists(url) else None


def _each(
    pool: ThreadPoolExecutor, read: Callable[[S], T | None], places: Iterable[S]
) -> tuple[list[T], list[str]]:
    """Return what was found, and a line for each place that cannot be read."""

    def attempt(place: S) -> T | str | None:
        try:
            return read(place)
        except SimgenError as error:
            return str(error)

    found = list(pool.map(attempt, places))
    problems = dict.fromkeys(each for each in found if isinstance(each, str))
    return [each for each in found if each is not None and not isinstance(each, str)], [*problems]


def _disks(places: Places) -> list[Disk]:
    """Return the file systems of local places, each once."""
    found: dict[int, Disk] = {}
    for use, place in (("scratch", places.scratch), ("store", places.store), ("runs", places.runs)):
        if "://" in place:
            continue
        path = local_path(place)
        while not path.exists():
            path = path.parent
        device = path.stat().st_dev
        usage = shutil.disk_usage(path)
        both = f"{found[device].use}, {use}" if device in found else use
        found[device] = Disk(both, str(path), usage.free, usage.total)
    return list(found.values())
