"""Export what is on record as metrics for Prometheus.

A process that solves or trains lives for minutes and on some node; what it has done is on record.
So one process reads the records, and everything is in one place, whole after any crash. Requests to
a served model are measured where they are answered, nodes and tasks by Ray's own metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import uvicorn
from prometheus_client import CollectorRegistry, make_asgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.middleware.trustedhost import TrustedHostMiddleware

from courant.loopback import answered_names, listen
from flows.observing.overview import Overview, Watch

MOST_RUNS = 50
"""Trainings that are exported, those that are running first"""
MAX_CONNECTIONS = 64

Samples = Iterable[tuple[Sequence[str], float | None]]
"""Values of the labels, and the number; None where it is not known"""


class RecordMetric(NamedTuple):
    """A gauge, or a counter where the name ends with `_total`."""

    help: str
    labels: tuple[str, ...]
    read: Callable[[Overview], Samples]


METRICS = {
    "courant_dataset_cases": RecordMetric(
        "Cases on record",
        ("dataset", "status"),
        lambda o: [((d.url, status), n) for d in o.datasets for status, n in d.num_cases.items()],
    ),
    "courant_dataset_cases_left": RecordMetric(
        "Cases that the last writer has still to commit",
        ("dataset",),
        lambda o: [((d.url,), d.num_left) for d in o.datasets],
    ),
    "courant_dataset_solver_core_seconds_total": RecordMetric(
        "Core-seconds of all solvers",
        ("dataset",),
        lambda o: [((d.url,), d.solver_s) for d in o.datasets],
    ),
    "courant_training_epoch": RecordMetric(
        "Epochs trained",
        ("run", "state"),
        lambda o: [
            ((r.name, r.state), r.epoch)
            for r in sorted(o.runs, key=lambda r: r.state != "running")[:MOST_RUNS]
        ],
    ),
    "courant_training_validation_nmae": RecordMetric(
        "Of the best weights of a running training so far",
        ("run",),
        lambda o: [((r.name,), r.validation_nmae) for r in o.runs if r.state == "running"],
    ),
    "courant_training_samples_per_second": RecordMetric(
        "In the last epoch of a running training",
        ("run",),
        lambda o: [((r.name,), r.samples_per_s) for r in o.runs if r.state == "running"],
    ),
    "courant_trials": RecordMetric(
        "Trials of a sweep or benchmark",
        ("sweep", "state"),
        lambda o: [((t.name, state), n) for t in o.trials for state, n in t.num_trials.items()],
    ),
    "courant_disk_free_bytes": RecordMetric(
        "Of the file systems of local places",
        ("use",),
        lambda o: [((disk.use,), disk.free_bytes) for disk in o.disks],
    ),
    "courant_unreadable": RecordMetric(
        "Datasets and runs that could not be read", (), lambda o: [((), len(o.problems))]
    ),
}


class RecordMetrics(Collector):
    """The metrics of the records, which are read at most every so many seconds."""

    def __init__(self, watch: Watch, every_s: float) -> None:
        self._watch, self._every_s = watch, every_s
        self._overview, self._read_at = watch.look(), time.monotonic()

    def collect(self) -> Iterator[Metric]:
        if time.monotonic() - self._read_at >= self._every_s:
            self._overview, self._read_at = self._watch.look(), time.monotonic()
        for name, metric in METRICS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(name, metric.help, labels=metric.labels)
            for labels, value in metric.read(self._overview):
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
