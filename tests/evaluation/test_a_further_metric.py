"""A metric is added in one place, and is in the evaluation, the tables, the report and the JSON."""

import json
from pathlib import Path

import numpy as np
import pytest

import simgen
from courant.evaluation import metrics
from courant.evaluation.evaluate import evaluate
from courant.evaluation.metrics import FieldSums, Metric
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from tests.world import publish_ducts, tiny_steady


def _rms(sums: FieldSums) -> float:
    return float(np.sqrt(sums.squared.sum() / sums.power.sum()))


def test_a_registered_metric_is_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = simgen.open_dataset(publish_ducts(str(tmp_path / "ducts"), num_cases=8))
    run = RunDirectory(tmp_path / "run")
    fit(tiny_steady(epochs=1), dataset, run)
    before = evaluate(run.url)
    metric = Metric("joint RMS", "The joint RMS is over all {over} together.", _rms)
    monkeypatch.setitem(metrics.METRICS, "joint_rms", metric)
    found = evaluate(run.url)
    assert found.fingerprint != before.fingerprint, "it is measured again"
    value = found.overall["model"]["joint_rms"]
    assert value > 0 and found.overall["model"].nmae == before.overall["model"].nmae
    record = json.loads(Path(run.path("evaluation.json")).read_text())
    assert record["overall"]["model"]["joint_rms"] == value
    page = Path(write_report(run.url, str(tmp_path / "report"))).read_text()
    assert "joint RMS, model" in page and f"{value:.3f}" in page
    assert "over all points and cases together" in page
    for name in ("errors", "errors_by_case"):
        with np.load(tmp_path / f"report/{name}.npz") as arrays:
            assert np.isfinite(arrays["joint_rms"]).all()
