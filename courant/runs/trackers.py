"""Report a run's progress to trackers: TensorBoard always, MLflow where MLFLOW_TRACKING_URI is set.

- Each start of a run begins a new event file in the run directory, which makes TensorBoard drop
  earlier entries of the epochs that are trained again. It is written here rather than by a
  SummaryWriter, which knows neither the run directory's storage nor when an epoch is complete.
- A resumed run continues its MLflow run. The client reads its address and credentials from the
  environment; MLFLOW_EXPERIMENT_NAME is the experiment's name there, by default `courant`.
"""

from __future__ import annotations

import logging
import math
import os
import struct
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from courant.runs.record import DATASET, EpochRecord
from courant.runs.summary import flatten
from simgen.errors import InputError, StoreError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

logger = logging.getLogger("courant.training")

SERVER = "MLFLOW_TRACKING_URI"
RUN_TAG = "courant.run"
MAX_PARAMS = 100
"""The limit of one request"""


class Tracker(Protocol):
    """Follows one start of a run."""

    def epoch(self, record: EpochRecord) -> None: ...

    def end(self, state: str) -> None: ...


def open_trackers(run: RunDirectory, experiment: Experiment, first_epoch: int) -> list[Tracker]:
    """Open the trackers of a run that starts or resumes with `first_epoch`.

    InputError where MLflow is configured and not installed, StoreError where it cannot be used.
    """
    trackers: list[Tracker] = [EventFile(run, first_epoch)]
    if os.environ.get(SERVER):
        trackers.append(MlflowTracker(run, experiment))
    return trackers


class EventFile:
    """TensorBoard's event file of one start of a run: losses, NMAE, learning rate and speed."""

    def __init__(self, run: RunDirectory, first_epoch: int) -> None:
        began = time.time()
        self._run, self._content = run, b""
        self._name = f"events.out.tfevents.{int(began)}.{first_epoch:06d}"
        self._add(Event(wall_time=began, file_version="brain.Event:2"))
        start = SessionLog(status=SessionLog.START)
        self._add(Event(wall_time=began, step=first_epoch, session_log=start))

    def _add(self, event: Event) -> None:
        """Frame a TFRecord: length, its checksum, content, its checksum."""
        content = event.SerializeToString()
        length = struct.pack("<Q", len(content))
        for part in (length, content):
            self._content += part + struct.pack("<I", masked_crc32c(part))

    def epoch(self, record: EpochRecord) -> None:
        values = {
            "loss/train": record.train_loss,
            "loss/validation": record.validation_loss,
            "nmae/validation": record.validation_nmae,
            "speed/learning_rate": record.learning_rate,
            "speed/samples_per_s": record.samples_per_s,
            "speed/data_wait_share": record.data_wait_share,
            "speed/flops_per_s": record.flops_per_s,
            "speed/peak_memory_gb": record.peak_memory_gb,
        }
        scalars = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in values.items()
            if value is not None and math.isfinite(value)
        ]
        self._add(Event(wall_time=time.time(), step=record.epoch, summary=Summary(value=scalars)))
        self._run.grow_file(self._name, self._content)

    def end(self, state: str) -> None:
        """Do nothing: every epoch is in the file already."""


class MlflowTracker:
    """Log settings once and metrics by epoch.

    A server that fails later causes a warning and never stops the training. Raises StoreError where
    the server cannot be reached at the start: it may be back for the next attempt.
    """

    def __init__(self, run: RunDirectory, experiment: Experiment) -> None:
        try:
            from mlflow.exceptions import MlflowException
        except ImportError as missing:
            raise InputError(
                "MLFLOW_TRACKING_URI is set and MLflow is not installed: pip install"
                " mlflow-skinny, or unset it"
            ) from missing
        self._error, self._is_lost = MlflowException, False
        try:
            self._client, group = _connect(create=True)
            self._id = _find(self._client, group, run) or _create(
                self._client, group, run, experiment
            )
            self._client.update_run(self._id, status="RUNNING")
        except MlflowException as error:
            reason = str(error).strip().splitlines()[0]
            raise StoreError(
                f"MLflow cannot be used ({reason}); correct MLFLOW_TRACKING_URI, or unset it"
            ) from error

    def epoch(self, record: EpochRecord) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(name, float(value), int(1000 * time.time()), record.epoch)
            for name, value in asdict(record).items()
            if value is not None and name not in ("epoch", "epochs", "eta_s")
        ]
        self._try(lambda: self._client.log_batch(self._id, metrics=metrics))

    def end(self, state: str) -> None:
        status = "FINISHED" if state == "finished" else "FAILED"
        self._try(lambda: self._client.set_terminated(self._id, status))

    def _try(self, action: Callable[[], object]) -> None:
        if self._is_lost:
            return
        try:
            action()
        except self._error as error:
            self._is_lost = True
            reason = str(error).strip().splitlines()[0]
            logger.warning("MLflow no longer records this run: %s", reason)


def end_stopped(run: RunDirectory) -> None:
    """Mark a run as killed that was stopped from outside: its own process reports nothing more.

    TensorBoard knows no states. A failure is a warning: a sweep does not end of it.
    """
    if not os.environ.get(SERVER):
        return
    try:
        client, group = _connect()
        known = _find(client, group, run) if group else None
        if known is not None:
            client.set_terminated(known, "KILLED")
    except ImportError:
        return  # MLflow is installed where trials run, and not here
    except Exception as error:  # whatever its libraries raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        logger.warning("MLflow still shows %s as running: %s", run.url, reason)


def _connect(create: bool = False) -> tuple[MlflowClient, str]:
    """Return the client, and the id of the experiment there; "" where there is none."""
    # Its own seven attempts of two minutes each would keep a training waiting.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    from mlflow.tracking import MlflowClient

    client, name = MlflowClient(), os.environ.get("MLFLOW_EXPERIMENT_NAME", "courant")
    group = client.get_experiment_by_name(name)
    if group is None:
        return client, str(client.create_experiment(name)) if create else ""
    return client, str(group.experiment_id)


def _find(client: MlflowClient, group: str, run: RunDirectory) -> str | None:
    known = client.search_runs([group], f"tags.`{RUN_TAG}` = '{run.url}'", max_results=1)
    return str(known[0].info.run_id) if known else None


def _create(client: MlflowClient, group: str, run: RunDirectory, experiment: Experiment) -> str:
    """Create the MLflow run of this run directory; return its id."""
    from mlflow.entities import Param, RunTag

    created = str(client.create_run(group, run_name=run.name).info.run_id)
    dataset, settings = run.read_json(DATASET), flatten(experiment.model_dump(mode="json"))
    tags = [RunTag(RUN_TAG, run.url)]
    tags += [
        RunTag(f"courant.dataset.{key}", str(dataset[key]))
        for key in ("url", "version", "snapshot_id")
    ]
    params = [Param(key, str(value)) for key, value in settings.items()]
    client.log_batch(created, tags=tags)
    for start in range(0, len(params), MAX_PARAMS):
        client.log_batch(created, params=params[start : start + MAX_PARAMS])
    return created
