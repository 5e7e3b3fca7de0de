"""What is on record is what Prometheus gets, and the dashboard asks for nothing else."""

import http.client
import json
import re
import socket
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from courant.serving.metrics import RequestMetrics
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from courant.runs.directory import RunDirectory
from flows.observing import metrics
from flows.observing.exporter import serving_metrics
from flows.observing.metrics import COUNTERS, GAUGES, RecordMetrics
from flows.observing.overview import Places, Watch
from simgen.errors import InputError, StoreError
from tests.observing.conftest import make_run, solve_some

DASHBOARD = Path(__file__).parents[2] / "infra/grafana/courant.json"


def exported(metrics: RecordMetrics) -> dict[tuple[str, str], float]:
    """Values by name and last label."""
    registry = CollectorRegistry()
    registry.register(metrics)
    return samples(generate_latest(registry).decode())


def samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, [*sample.labels.values()][-1] if sample.labels else ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_are_the_records_figures(places: Places) -> None:
    metrics = RecordMetrics(Watch(places))
    metrics.refresh()
    found = exported(metrics)
    url = f"{places.store}/cylinder-flow"
    assert found["courant_dataset_cases", "accepted"] == 2
    assert found["courant_dataset_cases_left", url] == 6
    assert found["courant_dataset_solver_core_seconds_total", url] == 4.0
    assert found["courant_dataset_commits_total", url] >= 3
    assert found["courant_dataset_stored_bytes_total", url] > 0
    assert found["courant_runs", "running"] == 1
    assert found["courant_training_samples_per_second", "demo-0123456789"] == 100.0
    assert found["courant_training_data_wait_ratio", "demo-0123456789"] == 0.125
    assert found["courant_trials_best_nmae", "demo-anchors-0123456789"] == 0.125
    assert found["courant_unreadable", ""] == 0
    solve_some(places.store, num_cases=4, num_left=0)
    metrics.refresh()
    assert exported(metrics)["courant_dataset_cases", "accepted"] == 4


def test_interrupted_runs_do_not_grow_the_metrics_without_bound(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "MOST_RUNS", 3)
    for number in range(6):
        make_run(RunDirectory(places.runs) / f"demo-{number:010}", "interrupted", 1)
    record = RecordMetrics(Watch(places))
    record.refresh()
    (epochs,) = [each for each in record.collect() if each.name == "courant_training_epoch"]
    assert len(epochs.samples) == 3
    assert any(sample.labels["state"] == "running" for sample in epochs.samples)


def test_a_store_that_goes_away_ends_nothing_and_is_told(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*asked: object) -> None:
        raise StoreError("the store is away")

    metrics = RecordMetrics(Watch(places))
    monkeypatch.setattr("flows.observing.overview.count_commits", away)
    metrics.refresh()
    assert exported(metrics)["courant_unreadable", ""] == 0
    assert not any(name == "courant_dataset_commits_total" for name, _ in exported(metrics))
    monkeypatch.setattr("flows.observing.overview.read_progress", away)
    metrics.refresh()
    found = exported(metrics)
    assert found["courant_unreadable", ""] == 1 and found["courant_runs", "running"] == 1


def test_they_are_served_on_loopback_and_a_taken_port_is_one_line(places: Places) -> None:
    metrics = RecordMetrics(Watch(places))
    metrics.refresh()
    with (
        serving_metrics(metrics, "127.0.0.1", 0) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answered,
    ):
        assert "courant_dataset_cases{" in answered.read().decode()
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match="choose another --port"),
        serving_metrics(metrics, "127.0.0.1", taken.getsockname()[1]),
    ):
        pass


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:9464", 200),
        ("metrics.example.com", 200),
        ("page.example", 400),
        ("localhost.page.example", 400),
    ],
)
def test_a_name_that_is_not_this_servers_gets_no_metrics(
    places: Places, host: str, status: int
) -> None:
    metrics = RecordMetrics(Watch(places))
    with (
        serving_metrics(metrics, "127.0.0.1", 0, ["metrics.example.com"]) as port,
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection,
    ):
        connection.request("GET", "/metrics", headers={"Host": host})
        assert connection.getresponse().status == status


def names() -> set[str]:
    """Every name that a query may use."""
    served = {
        f"{family.name}{suffix}"
        for family in RequestMetrics().registry.collect()
        for suffix in {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
            family.type, [""]
        )
    }
    return {*GAUGES, *(f"{name}_total" for name in COUNTERS), *served}


def test_the_dashboard_asks_for_metrics_that_are_exported_and_shows_them_all() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"\bcourant_\w+", query)}
    assert len(panels) > 10
    assert asked - names() == set()
    assert names() - asked == set()


def test_the_dashboard_takes_its_data_source_and_dataset_from_variables() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    kinds = {one["name"]: one["type"] for one in dashboard["templating"]["list"]}
    assert kinds == {"datasource": "datasource", "dataset": "query"}
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in dashboard["panels"]]
    cells = [
        (column, row)
        for x, y, w, h in places
        for column in range(x, x + w)
        for row in range(y, y + h)
    ]
    assert len(cells) == len(set(cells)), "no panel lies upon another"
    assert max(column for column, _ in cells) < 24
