"""Read datasets, cases, trainings, sweeps and disks as they are now, and export them as metrics.

Everything comes from records that exist anyway, whole after any crash: the datasets' commits, the
run directories, and the progress files of cases on this machine's scratch disk. Requests to a
served model are measured where they are answered, nodes and tasks by Ray's own metrics.
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
from courant.runs.record import EXPERIMENT, run_state
from courant.runs.summary import RunSummary, read_run
from courant.sweeps.sweep import TrialsProgress, read_trials_progress
from flows.settings import Settings
from flows.terminal import PROGRESS_FILE
from flows.terminal import read_progress as read_case
from simgen.case import Progress
from simgen.cases import FAMILIES
from simgen.errors import SimgenError
from simgen.solving.case_lock import is_held
from simgen.store.versions import DatasetProgress, folders_in, read_progress, repository_exists
from simgen.whole_file import local_path

READERS = 8
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

    places: Settings
    datasets: list[DatasetProgress]
    cases: list[Progress]
    """That are solved on this machine, in any dataset"""
    runs: list[RunSummary]
    trials: list[TrialsProgress]
    """Sweeps and benchmarks"""
    disks: list[Disk]
    problems: list[str]
    """A line for each dataset or run that cannot be read"""


class Watch:
    """Look again and again; of runs that are finished only the state is read again."""

    def __init__(self, places: Settings) -> None:
        self.places = places
        self._finished: dict[str, RunSummary] = {}

    def look(self) -> Overview:
        """Read everything anew; what cannot be read is listed among the problems."""
        places, problems = self.places, list[str]()

        def read_each(read: Callable[[S], T | None], where: Iterable[S]) -> list[T]:
            def attempt(place: S) -> T | None:
                try:
                    return read(place)
                except SimgenError as error:
                    problems.append(str(error))
                    return None

            return [found for found in pool.map(attempt, where) if found is not None]

        with ThreadPoolExecutor(READERS) as pool:
            names = dict.fromkeys([*FAMILIES, *folders_in(places.store)])
            datasets = read_each(
                lambda url: read_progress(url) if repository_exists(url) else None,
                [f"{places.store}/{name}" for name in names],
            )
            folder = RunDirectory(places.runs)
            listed = read_each(lambda each: each.names(), [folder])
            inside = [folder / name for names in listed for name in names]
            runs = read_each(self._read_run, inside)
            known = {run.url for run in runs}
            others = [each for each in inside if each.url not in known]
            trials = read_each(lambda each: read_trials_progress(each, self._read_run), others)
        scratch = Path(places.scratch)
        cases = [
            case
            for path in sorted(scratch.glob(f"*/{PROGRESS_FILE}"))
            if (case := read_case(path.parent)) and is_held(path.parent.name, scratch)
        ]
        found = list(dict.fromkeys(problems))
        return Overview(places, datasets, cases, runs, trials, _disks(places), found)

    def _read_run(self, run: RunDirectory) -> RunSummary | None:
        # Its folder may hold another training meanwhile.
        known = self._finished.get(run.url)
        if known is not None and run_state(run) == known.state:
            return known
        found = read_run(run) if run.exists(EXPERIMENT) else None
        if found is not None and found.state == "finished":
            self._finished[run.url] = found
        return found


def _disks(places: Settings) -> list[Disk]:
    """Return the file systems of local places, each once."""
    found: dict[int, Disk] = {}
    for use in ("scratch", "store", "runs"):
        if "://" in (place := getattr(places, use)):
            continue
        path = local_path(place)
        there = next(each for each in (path, *path.parents) if each.exists())
        device, usage = there.stat().st_dev, shutil.disk_usage(there)
        both = f"{found[device].use}, {use}" if device in found else use
        found[device] = Disk(both, str(there), usage.free, usage.total)
    return list(found.values())


METRICS = {
    "courant_dataset_cases": "Cases on record",
    "courant_dataset_cases_left": "Cases that the last writer has still to commit",
    "courant_dataset_solver_core_seconds_total": "Core-seconds of all solvers",
    "courant_training_epoch": "Epochs trained",
    "courant_training_validation_nmae": "Of the best weights of a running training so far",
    "courant_training_samples_per_second": "In the last epoch of a running training",
    "courant_trials": "Trials of a sweep or benchmark",
    "courant_disk_free_bytes": "Of the file systems of local places",
    "courant_unreadable": "Datasets and runs that could not be read",
}
"""Help of each gauge, or counter where the name ends with `_total`"""


def samples(found: Overview) -> Iterator[tuple[str, dict[str, str], float | None]]:
    """Yield each metric's name without `courant_`, its labels, and the number, if it is known."""
    for each in found.datasets:
        labels = {"dataset": each.url}
        for status, number in each.num_cases.items():
            yield "dataset_cases", {**labels, "status": status}, number
        yield "dataset_cases_left", labels, each.num_left
        yield "dataset_solver_core_seconds_total", labels, each.solver_s
    for run in found.runs:
        yield "training_epoch", {"run": run.name, "state": run.state}, run.epoch
        if run.state == "running":
            yield "training_validation_nmae", {"run": run.name}, run.validation_nmae
            yield "training_samples_per_second", {"run": run.name}, run.samples_per_s
    for trials in found.trials:
        for state, number in trials.num_trials.items():
            yield "trials", {"sweep": trials.name, "state": state}, number
    for disk in found.disks:
        yield "disk_free_bytes", {"use": disk.use}, disk.free_bytes
    yield "unreadable", {}, len(found.problems)


class RecordMetrics(Collector):
    """The metrics of the records, which are read at most every so many seconds."""

    def __init__(self, watch: Watch, every_s: float) -> None:
        self._watch, self._every_s = watch, every_s
        self._overview, self._read_at = watch.look(), time.monotonic()

    def collect(self) -> Iterator[Metric]:
        if time.monotonic() - self._read_at >= self._every_s:
            self._overview, self._read_at = self._watch.look(), time.monotonic()
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, labels, value in samples(self._overview):
            name = f"courant_{name}"
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = families.setdefault(name, kind(name, METRICS[name], labels=list(labels)))
            if value is not None:
                family.add_metric(list(labels.values()), value)
        yield from families.values()


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
