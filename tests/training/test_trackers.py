"""TensorBoard's own reader and a real MLflow store see what the run directory has on record."""

import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.train import fit
from simgen.errors import StoreError
from simgen.store.read import Dataset
from tests.training.conftest import KilledError, kill_at
from tests.world import tiny_experiment


def curve(run: RunDirectory, tag: str) -> list[tuple[int, float]]:
    reader = EventAccumulator(run.url)
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def test_tensorboard_reads_one_curve_of_a_run_that_was_killed_and_went_on(
    dataset: Dataset, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    with pytest.raises(KilledError):  # checkpoint at 2: epoch 3 is trained again
        fit(tiny_experiment(), dataset, run, on_epoch=kill_at(3))
    assert [step for step, _ in curve(run, "loss/train")] == [1, 2, 3]
    fit(tiny_experiment(), dataset, run)
    records = read_records(run)
    for tag, name in (("loss/train", "train_loss"), ("nmae/validation", "validation_nmae")):
        assert curve(run, tag) == [
            (record.epoch, pytest.approx(getattr(record, name), rel=1e-6)) for record in records
        ]


def test_mlflow_has_settings_metrics_and_state_and_one_run_for_one_run_directory(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(KilledError):
        fit(tiny_experiment(), dataset, run, on_epoch=kill_at(3))
    fit(tiny_experiment(), dataset, run)
    client = MlflowClient()
    (found,) = client.search_runs([client.get_experiment_by_name("courant").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["model.num_anchors"] == "8"
    assert found.data.tags["courant.dataset.snapshot_id"] == dataset.snapshot_id
    history = client.get_metric_history(found.info.run_id, "validation_nmae")
    assert {metric.step for metric in history} == {1, 2, 3, 4}
    assert found.data.metrics["train_loss"] == pytest.approx(read_records(run)[-1].train_loss)


def test_mlflow_that_is_asked_for_and_missing_or_unusable_is_one_line(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/files")
    for name in ("unusable", "missing"):
        with pytest.raises(StoreError, match=r"MLflow cannot be used .* pip install mlflow-skinny"):
            fit(tiny_experiment(), dataset, RunDirectory(tmp_path / name))
        monkeypatch.setitem(sys.modules, "mlflow", None)
