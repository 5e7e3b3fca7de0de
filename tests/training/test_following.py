"""What others learn of a training: its epochs, the best of them, why it failed."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from ray.train import WorkerGroupError

from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, best_record, read_records, write_records
from courant.sweeps import ray_trials
from courant.training import workers
from courant.training.ray_train import _reason
from courant.training.workers import following
from simgen.errors import StoreError


def record(epoch: int, loss: float | None = 1.0, seconds: float = 2.0) -> EpochRecord:
    return EpochRecord(epoch, 6, 1.0, loss, loss, 1e-3, seconds, 10.0, 5.0, 0.0, seconds)


def test_epochs_that_are_trained_again_are_reported_when_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in epoch 6, with a checkpoint after epoch 3: the record still has 4 and 5."""
    run = RunDirectory(tmp_path)
    write_records(run, [record(epoch) for epoch in range(1, 6)])
    monkeypatch.setattr(workers, "checkpoint_epochs", lambda _: [3])
    reported: list[EpochRecord] = []
    with following(run, reported.append):
        pass
    assert reported == []
    with following(run, reported.append):
        again = [record(epoch, seconds=3.0) for epoch in (4, 5, 6)]
        write_records(run, [record(1), record(2), record(3), *again])
    assert reported == again


def test_a_validation_that_is_no_number_is_never_the_best_nor_one_for_tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, reported = RunDirectory(tmp_path), list[dict[str, Any]]()
    records = [record(1, math.nan), record(2, 0.5), record(3, None), record(4, 0.3), record(5, 0.4)]
    write_records(run, records)
    assert best_record(read_records(run)) == records[3]
    assert best_record(records[:1]) is None
    monkeypatch.setattr(ray_trials.tune, "report", reported.append)
    for each in records[:2]:
        ray_trials.report(each)
    assert [each["validation_nmae"] for each in reported] == [math.inf, 0.5]
    assert reported[1] == dataclasses.asdict(records[1])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            WorkerGroupError("errors:", {1: StoreError("RUN/epoch-000003.pt is damaged")}),
            "RUN/epoch-000003.pt is damaged",
        ),
        (
            WorkerGroupError(
                "errors:",
                {0: RuntimeError('Traceback (most recent call last):\n  File "a"\nOSError: full')},
            ),
            "OSError: full",
        ),
        (ValueError("no node\nhas room"), "no node"),
    ],
)
def test_of_a_training_that_failed_on_ray_the_cause_is_reported(
    error: Exception, line: str
) -> None:
    assert _reason(error) == line
