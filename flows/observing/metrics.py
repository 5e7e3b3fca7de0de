"""Export what is on record as metrics for Prometheus.

A process that solves or trains lives for minutes and on some node; what it has done is on record.
So one process that lives long reads the records, and everything is in one place, whole after any
crash. Requests to a served model are measured where they are answered (`courant.serving.metrics`),
nodes and tasks by Ray's own metrics.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from flows.observing.overview import Overview, Watch
from simgen.errors import StoreError

#: Name, help text and labels. A counter's samples have the name with `_total`.
GAUGES = {
    "courant_dataset_cases": ("Cases on record", ("dataset", "status")),
    "courant_dataset_cases_left": ("Cases that the last writer has still to commit", ("dataset",)),
    "courant_dataset_case_seconds": ("Seconds between two cases, lately", ("dataset",)),
    "courant_dataset_last_commit_timestamp_seconds": ("Time of the last commit", ("dataset",)),
    "courant_training_epoch": ("Epochs trained", ("run", "experiment", "state")),
    "courant_training_epochs": ("Epochs asked for", ("run", "experiment", "state")),
    "courant_training_validation_nmae": ("Of the best weights so far", ("run", "experiment")),
    "courant_training_samples_per_second": ("In the last epoch", ("run", "experiment")),
    "courant_training_data_wait_ratio": (
        "Share of the last epoch spent waiting for batches",
        ("run", "experiment"),
    ),
    "courant_runs": ("Runs by state", ("state",)),
    "courant_trials": ("Trials of a sweep or benchmark", ("sweep", "state")),
    "courant_trials_best_nmae": ("Lowest validation NMAE of a trial", ("sweep",)),
    "courant_disk_free_bytes": ("Of the file systems of local places", ("use",)),
    "courant_unreadable": ("Datasets and runs that could not be read", ()),
}
COUNTERS = {
    "courant_dataset_solver_core_seconds": ("Core-seconds of all solvers", ("dataset",)),
    "courant_dataset_stored_bytes": ("Bytes of the cases' arrays as stored", ("dataset",)),
    "courant_dataset_commits": ("Commits", ("dataset",)),
    "courant_training_samples": ("Samples trained on", ("run", "experiment")),
}
MOST_RUNS = 50
"""Runs that are exported: all that are trained, and of the others as many as there is room for"""


class RecordMetrics(Collector):
    """The metrics of a watch's last look; `refresh` looks again."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._metrics: list[Metric] = []

    def refresh(self) -> None:
        """Read the records; what is exported meanwhile are the last look's."""
        overview = self._watch.look()
        commits: dict[str, int] = {}
        for each in overview.datasets:
            # A store may go away between two requests; the next look tells so.
            with contextlib.suppress(StoreError):
                commits[each.url] = self._watch.count_commits(each.url)
        self._metrics = list(_families(overview, commits).values())

    def keep_fresh(self, every_s: float, stop: threading.Event) -> None:
        """Look every so many seconds until told to stop."""
        while not stop.wait(every_s):
            self.refresh()

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)

    def describe(self) -> Iterable[Metric]:
        return ()


Families = dict[str, Metric]


def _families(overview: Overview, commits: dict[str, int]) -> Families:
    made: Families = {
        name: GaugeMetricFamily(name, about, labels=labels)
        for name, (about, labels) in GAUGES.items()
    }
    made |= {
        name: CounterMetricFamily(name, about, labels=labels)
        for name, (about, labels) in COUNTERS.items()
    }
    _add_datasets(made, overview, commits)
    _add_runs(made, overview)
    for sweep in overview.trials:
        for state, number in sweep.num_trials.items():
            _add(made, "courant_trials", (sweep.name, state), number)
        _add(made, "courant_trials_best_nmae", (sweep.name,), sweep.best_nmae)
    for disk in overview.disks:
        _add(made, "courant_disk_free_bytes", (disk.use,), disk.free_bytes)
    _add(made, "courant_unreadable", (), len(overview.problems))
    return made


def _add_datasets(made: Families, overview: Overview, commits: dict[str, int]) -> None:
    for each in overview.datasets:
        name = (each.url,)
        for status, number in each.num_cases.items():
            _add(made, "courant_dataset_cases", (each.url, status), number)
        _add(made, "courant_dataset_cases_left", name, each.num_left)
        _add(made, "courant_dataset_case_seconds", name, each.case_s)
        committed_at = each.committed_at.timestamp()
        _add(made, "courant_dataset_last_commit_timestamp_seconds", name, committed_at)
        _add(made, "courant_dataset_solver_core_seconds", name, each.solver_s)
        _add(made, "courant_dataset_stored_bytes", name, each.num_bytes)
        _add(made, "courant_dataset_commits", name, commits.get(each.url))


def _add_runs(made: Families, overview: Overview) -> None:
    for state in dict.fromkeys(run.state for run in overview.runs):
        number = sum(run.state == state for run in overview.runs)
        _add(made, "courant_runs", (state,), number)
    going = [run for run in overview.runs if run.state == "running"]
    others = [run for run in overview.runs if run.state != "running"]
    for run in [*going, *others[: max(0, MOST_RUNS - len(going))]]:
        ids = (run.name, run.experiment)
        _add(made, "courant_training_epoch", (*ids, run.state), run.epoch)
        _add(made, "courant_training_epochs", (*ids, run.state), run.epochs)
        _add(made, "courant_training_validation_nmae", ids, run.validation_nmae)
        _add(made, "courant_training_samples", ids, run.samples)
        if run.state == "running":  # of the last epoch, not of a run that has ended since
            _add(made, "courant_training_samples_per_second", ids, run.samples_per_s)
            _add(made, "courant_training_data_wait_ratio", ids, run.data_wait_share)


def _add(made: Families, name: str, labels: Sequence[str], value: float | None) -> None:
    if value is not None:
        made[name].add_metric(labels, value)  # type: ignore[attr-defined]
