"""Report a run's progress to trackers: TensorBoard always, MLflow where configured."""

from __future__ import annotations

import os
from typing import Protocol

from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from courant.runs.event_file import EventFile
from courant.runs.record import EpochRecord


class Tracker(Protocol):
    """Follows one start of a run."""

    def epoch(self, record: EpochRecord) -> None: ...

    def end(self, state: str) -> None: ...


def open_trackers(run: RunDirectory, experiment: Experiment, first_epoch: int) -> list[Tracker]:
    """Open the trackers of a run that starts or resumes with `first_epoch`.

    InputError where MLflow is configured and cannot be used.
    """
    trackers: list[Tracker] = [EventFile(run, first_epoch)]
    if os.environ.get("MLFLOW_TRACKING_URI"):
        from courant.runs.mlflow_tracker import MlflowTracker

        trackers.append(MlflowTracker(run, experiment))
    return trackers
