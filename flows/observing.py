"""Read datasets, cases, trainings, sweeps and disks as they are now, and export them as metrics.

Everything comes from records that exist anyway: the datasets' commits, the run directories, and the
progress files of cases on this machine's scratch disk. No server is asked. A process that solves or
trains lives for minutes and on some node: one process that reads the records has metrics of all,
whole after any crash. Requests to a served model are measured where they are answered, nodes and
tasks by Ray's own metrics.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import uvicorn
from prometheus_client import CollectorRegistry, make_asgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.middleware.trustedhost import TrustedHostMiddleware

from courant.loopback import answered_names, listen
from courant.runs.directory import RunDirectory
from courant.runs.record import run_state
from courant.runs.summary import RunProgress, read_run_progress
from courant.sweeps.sweep import TrialsProgress, read_trials_progress
from flows.terminal import PROGRESS_FILE
from flows.terminal import read_progress as read_case
from simgen.case import Progress
from simgen.cases import FAMILIES
from simgen.errors import SimgenError
from simgen.solving.case_lock import is_held
from simgen.store.versions import DatasetProgress, folders_in, read_progress, repository_exists
from simgen.whole_file import local_path

READERS = 8
MOST_RUNS = 50
"""Trainings that are exported, those that are running first"""
MAX_CONNECTIONS = 64
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
    """Look again and again; of runs that are finished only the state is read again."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._finished: dict[str, RunProgress] = {}

    def look(self) -> Overview:
        """Read everything anew; what cannot be read is listed among the problems."""
        places, problems = self._places, list[str]()
        scratch, folder = Path(places.scratch), RunDirectory(places.runs)
        with ThreadPoolExecutor(READERS) as pool:
            names = dict.fromkeys([*FAMILIES, *folders_in(places.store)])
            urls = [f"{places.store}/{name}" for name in names]
            datasets = _read_each(pool, _read_dataset, urls, problems)
            try:
                inside = [folder / name for name in folder.names()]
            except SimgenError as error:
                inside = []
                problems.append(str(error))
            runs = _read_each(pool, self._read_run, inside, problems)
            known = {run.url for run in runs}
            others = [each for each in inside if each.url not in known]
            trials = _read_each(
                pool, lambda each: read_trials_progress(each, self._read_run), others, problems
            )
        cases = [
            case
            for path in sorted(scratch.glob(f"*/{PROGRESS_FILE}"))
            if (case := read_case(path.parent)) and is_held(path.parent.name, scratch)
        ]
        return Overview(
            places.store,
            places.runs,
            tuple(datasets),
            tuple(cases),
            tuple(runs),
            tuple(trials),
            tuple(_disks(places)),
            tuple(dict.fromkeys(problems)),
        )

    def _read_run(self, run: RunDirectory) -> RunProgress | None:
        # Its folder may hold another training meanwhile.
        known = self._finished.get(run.url)
        if known is not None and run_state(run) == known.state:
            return known
        found = read_run_progress(run)
        if found is not None and found.state == "finished":
            self._finished[run.url] = found
        return found


def _read_dataset(url: str) -> DatasetProgress | None:
    return read_progress(url) if repository_exists(url) else None


def _read_each(
    pool: ThreadPoolExecutor,
    read: Callable[[S], T | None],
    places: Iterable[S],
    problems: list[str],
) -> list[T]:
    """Return what was found, and add a line to `problems` for what cannot be read."""

    def attempt(place: S) -> T | None:
        try:
            return read(place)
        except SimgenError as error:
            problems.append(str(error))
            return None

    return [found for found in pool.map(attempt, places) if found is not None]


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


Samples = Iterable[tuple[Sequence[str], float | None]]
"""Values of the labels, and the number; None where it is not known"""

METRICS: dict[str, tuple[str, Sequence[str], Callable[[Overview], Samples]]] = {
    "courant_dataset_cases": (
        "Cases on record",
        ["dataset", "status"],
        lambda o: [((d.url, status), n) for d in o.datasets for status, n in d.num_cases.items()],
    ),
    "courant_dataset_cases_left": (
        "Cases that the last writer has still to commit",
        ["dataset"],
        lambda o: [((d.url,), d.num_left) for d in o.datasets],
    ),
    "courant_dataset_solver_core_seconds_total": (
        "Core-seconds of all solvers",
        ["dataset"],
        lambda o: [((d.url,), d.solver_s) for d in o.datasets],
    ),
    "courant_training_epoch": (
        "Epochs trained",
        ["run", "state"],
        lambda o: [
            ((r.name, r.state), r.epoch)
            for r in sorted(o.runs, key=lambda r: r.state != "running")[:MOST_RUNS]
        ],
    ),
    "courant_training_validation_nmae": (
        "Of the best weights of a running training so far",
        ["run"],
        lambda o: [((r.name,), r.validation_nmae) for r in o.runs if r.state == "running"],
    ),
    "courant_training_samples_per_second": (
        "In the last epoch of a running training",
        ["run"],
        lambda o: [((r.name,), r.samples_per_s) for r in o.runs if r.state == "running"],
    ),
    "courant_trials": (
        "Trials of a sweep or benchmark",
        ["sweep", "state"],
        lambda o: [((t.name, state), n) for t in o.trials for state, n in t.num_trials.items()],
    ),
    "courant_disk_free_bytes": (
        "Of the file systems of local places",
        ["use"],
        lambda o: [((disk.use,), disk.free_bytes) for disk in o.disks],
    ),
    "courant_unreadable": (
        "Datasets and runs that could not be read",
        [],
        lambda o: [((), len(o.problems))],
    ),
}
"""Help, labels and figures of each gauge, or counter where the name ends with `_total`"""


class RecordMetrics(Collector):
    """The metrics of the records, which are read at most every so many seconds."""

    def __init__(self, watch: Watch, every_s: float) -> None:
        self._watch, self._every_s = watch, every_s
        self._overview, self._read_at = watch.look(), time.monotonic()

    def collect(self) -> Iterator[Metric]:
        if time.monotonic() - self._read_at >= self._every_s:
            self._overview, self._read_at = self._watch.look(), time.monotonic()
        for name, (text, names, read) in METRICS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(name, text, labels=names)
            for labels, value in read(self._overview):
                if value is not None:
                    family.add_metric(labels, value)
            yield family


def metrics_server(
    metrics: RecordMetrics, host: str, port: int, names: Sequence[str] = ()
) -> tuple[Callable[[], None], int]:
    """Listen on http://host:port/metrics; return what serves until it is interrupted, and the port.

    On loopback, and where `names` are given, requests for other hosts are not answered. InputError
    where the port is taken.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
    listener = listen(host, port, MAX_CONNECTIONS)
    hosts = answered_names(listener, host, names)
    app = TrustedHostMiddleware(make_asgi_app(registry), allowed_hosts=hosts, www_redirect=False)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    return lambda: server.run([listener]), int(listener.getsockname()[1])
