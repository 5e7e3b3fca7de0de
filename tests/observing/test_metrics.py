"""What is on record is what Prometheus gets, and the dashboard asks for nothing else."""

import http.client
import json
import re
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from flows.cli.observing import METRICS, RecordMetrics, metrics_server
from flows.settings import Settings
from simgen.errors import InputError, StoreError
from tests.observing.conftest import solve_some

DASHBOARD = Path(__file__).parents[2] / "infra/grafana/courant.json"


def exported(metrics: RecordMetrics) -> dict[tuple[str, str], float]:
    """Values by name and last label."""
    registry = CollectorRegistry()
    registry.register(metrics)
    return {
        (sample.name, [*sample.labels.values()][-1] if sample.labels else ""): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_metrics_are_the_records_figures(places: Settings) -> None:
    found = exported(metrics := RecordMetrics(places, 0.0))
    url = f"{places.store}/cylinder-flow"
    assert found["courant_dataset_cases", "accepted"] == 2
    assert found["courant_dataset_cases_left", url] == 6
    assert found["courant_dataset_solver_core_seconds_total", url] == 4.0
    assert found["courant_training_epoch", "running"] == 3
    assert found["courant_training_samples_per_second", "demo-0123456789"] == 100.0
    assert found["courant_trials", "demo-anchors-0123456789"] == 1
    assert found["courant_unreadable", ""] == 0
    kept = RecordMetrics(places, 600.0)
    solve_some(places.store, num_cases=4, num_left=0)
    assert exported(metrics)["courant_dataset_cases", "accepted"] == 4
    assert exported(kept)["courant_dataset_cases", "accepted"] == 2, "read no more often"


def test_a_store_that_goes_away_ends_nothing_and_is_counted(
    places: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*asked: object) -> None:
        raise StoreError("the store is away")

    metrics = RecordMetrics(places, 0.0)
    monkeypatch.setattr("simgen.store.versions.read_progress", away)
    found = exported(metrics)
    assert found["courant_unreadable", ""] == 1 and found["courant_training_epoch", "running"] == 3


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("metrics.example.com", 200), ("localhost.page.example", 400)],
)
def test_a_name_that_is_not_this_servers_gets_no_metrics(
    places: Settings, host: str, status: int
) -> None:
    served = RecordMetrics(places, 0.0)
    serve, port = metrics_server(served, "127.0.0.1", 0, ["metrics.example.com"])
    threading.Thread(target=serve, daemon=True).start()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/metrics", headers={"Host": host})
        answered = connection.getresponse()
        assert answered.status == status
        assert (b"courant_dataset_cases{" in answered.read()) == (status == 200)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match=r"1:[0-9]+: another program does; choose ano"),
    ):
        metrics_server(served, "127.0.0.1", taken.getsockname()[1])


def test_the_dashboard_asks_for_metrics_that_are_exported() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"\bcourant_\w+", query)}
    assert asked == METRICS.keys()
