"""What those outside a training are told of it: epochs, the best of them, why it failed."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.train import WorkerGroupError

from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, best_record, read_records, write_records
from courant.runs.summary import read_run_progress
from courant.sweeps import ray_trials
from courant.training import workers
from courant.training.ray_train import _reason
from courant.training.train import RunLog, TrainingError
from courant.training.workers import following
from simgen.errors import StoreError


def record(epoch: int, loss: float | None = 1.0, seconds: float = 2.0) -> EpochRecord:
    return EpochRecord(epoch, 6, 1.0, loss, loss, 1e-3, seconds, 10.0, 5.0, 0.0, seconds)


@pytest.fixture
def run(tmp_path: Any) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.write_json("experiment.json", {"name": "tiny", "training": {"epochs": 6}})
    return run


def test_epochs_that_are_trained_again_are_told_when_they_are(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in epoch 6, with a checkpoint after epoch 3: the record still has 4 and 5."""
    write_records(run, [record(epoch) for epoch in range(1, 6)])
    monkeypatch.setattr(workers, "checkpoint_epochs", lambda _: [3])
    told: list[EpochRecord] = []
    with following(run, told.append):
        pass
    assert told == []
    with following(run, told.append):
        again = [record(epoch, seconds=3.0) for epoch in (4, 5, 6)]
        write_records(run, [record(1), record(2), record(3), *again])
    assert told == again


def test_a_validation_that_is_no_number_is_never_the_best(run: RunDirectory) -> None:
    records = [record(1, math.nan), record(2, 0.5), record(3, None), record(4, 0.3), record(5, 0.4)]
    write_records(run, records)
    assert best_record(read_records(run)) == records[3]
    progress = read_run_progress(run)
    assert progress is not None and progress.validation_nmae == 0.3
    assert best_record(records[:1]) is None


def test_a_damaged_record_is_told_with_a_way_out(run: RunDirectory) -> None:
    run.write_bytes("metrics.jsonl", b'{"epoch": 1}\n')
    with pytest.raises(StoreError, match=r"metrics\.jsonl is damaged; remove it and train again"):
        read_records(run)
    run.write_bytes("status.json", b"")
    with pytest.raises(StoreError, match=r"status\.json is not valid JSON .*; remove it and train"):
        run.read_object("status.json")


def test_tune_is_told_of_a_loss_that_is_no_number_as_of_a_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(ray_trials.tune, "report", told.append)
    ray_trials.report(record(1, math.nan))
    ray_trials.report(record(2, 0.5))
    assert [each["validation_nmae"] for each in told] == [math.inf, 0.5]
    assert told[1] == dataclasses.asdict(record(2, 0.5))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            WorkerGroupError(
                "Training failed due to worker errors:",
                {1: StoreError("RUN/epoch-000003.pt is damaged; remove it")},
            ),
            "RUN/epoch-000003.pt is damaged; remove it",
        ),
        (
            WorkerGroupError(
                "Training failed due to worker errors:",
                {
                    0: RuntimeError(
                        'Traceback (most recent call last):\n  File "a.py"\nOSError: full'
                    )
                },
            ),
            "OSError: full",
        ),
        (ValueError("no node\nhas room"), "no node"),
        (ValueError(), "ValueError"),
    ],
)
def test_of_a_training_that_failed_on_ray_the_cause_is_told(error: Exception, line: str) -> None:
    assert _reason(error) == line


def test_all_workers_end_where_the_first_cannot_open_the_record(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others would wait for it at their first step, for half an hour."""
    sent: list[str | None] = []

    def broadcast(told: list[str | None], src: int, device: torch.device) -> None:
        if sent:
            told[:] = sent
        else:
            sent[:] = told

    def fail(*_: object) -> None:
        raise StoreError("MLflow cannot be used")

    monkeypatch.setattr("courant.training.train.distributed.broadcast_object_list", broadcast)
    monkeypatch.setattr(RunLog, "_open", fail)
    task: Any = SimpleNamespace()
    asked: Any = (SimpleNamespace(), torch.device("cpu"), 2, 1)
    with pytest.raises(StoreError, match=r"^MLflow cannot be used$"):
        RunLog(run, 0, task).open(*asked)
    assert json.dumps(sent) == '["MLflow cannot be used"]'
    with pytest.raises(TrainingError, match=r"^MLflow cannot be used$"):
        RunLog(run, 1, task).open(*asked)
