"""Report a run's progress to trackers: TensorBoard always, MLflow where configured."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol

from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord
from courant.runs.tracking.event_file import EventFile
from simgen.errors import InputError


class Tracker(Protocol):
    """Follows one start of a run."""

    def epoch(self, record: EpochRecord) -> None: ...

    def end(self, state: str) -> None: ...


def end_stopped(run: RunDirectory) -> None:
    """Tell the trackers that a run was stopped whose own process tells nothing any more.

    TensorBoard knows no states.
    """
    if os.environ.get("MLFLOW_TRACKING_URI"):
        with suppress(InputError):  # MLflow is installed where trials run, and not here
            from courant.runs.tracking.mlflow_tracker import end_mlflow_run

            end_mlflow_run(run)


def open_trackers(run: RunDirectory, experiment: Experiment, first_epoch: int) -> list[Tracker]:
    """Open the trackers of a run that starts or resumes with `first_epoch`.

    InputError where MLflow is configured and cannot be used.
    """
    trackers: list[Tracker] = [EventFile(run, first_epoch)]
    if os.environ.get("MLFLOW_TRACKING_URI"):
        from courant.runs.tracking.mlflow_tracker import MlflowTracker

        trackers.append(MlflowTracker(run, experiment))
    return trackers
