"""Report a run's progress to trackers: TensorBoard always, MLflow where MLFLOW_TRACKING_URI is set.

Each start of a run begins a new event file in the run directory, which makes TensorBoard drop
earlier entries of the epochs that are trained again. A resumed run continues its MLflow run.
"""

from __future__ import annotations

import logging
import math
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from courant.runs.record import DATASET, EpochRecord
from courant.runs.summary import flatten
from simgen.errors import StoreError, first_line

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger("courant.training")

SERVER = "MLFLOW_TRACKING_URI"
RUN_TAG = "courant.run"
TAGS = {
    "loss/train": "train_loss",
    "loss/validation": "validation_loss",
    "nmae/validation": "validation_nmae",
    "speed/learning_rate": "learning_rate",
    "speed/samples_per_s": "samples_per_s",
    "speed/data_wait_share": "data_wait_share",
    "speed/flops_per_s": "flops_per_s",
    "speed/peak_memory_gb": "peak_memory_gb",
}
"""TensorBoard's curves, and the entries of an epoch's record that they show"""


class Trackers:
    """Follow one start of a run.

    An MLflow server that fails later causes a warning and never stops the training. StoreError
    where it cannot be reached at the start: it may be back for the next attempt.
    """

    def __init__(self, run: RunDirectory, experiment: Experiment, first_epoch: int) -> None:
        began = time.time()
        self._run, self._content = run, b""
        self._name = f"events.out.tfevents.{int(began)}.{first_epoch:06d}"
        self._add(Event(wall_time=began, file_version="brain.Event:2"))
        start = SessionLog(status=SessionLog.START)
        self._add(Event(wall_time=began, step=first_epoch, session_log=start))
        self._client: MlflowClient | None = None
        if os.environ.get(SERVER):
            try:
                self._client, self._id = _open_mlflow_run(run, experiment)
            except Exception as error:  # whatever its libraries raise
                raise StoreError(
                    f"MLflow cannot be used ({first_line(error)}); correct {SERVER} or unset it,"
                    " and where MLflow is missing: pip install mlflow-skinny"
                ) from error

    def _add(self, event: Event) -> None:
        """Frame a TFRecord: length, its checksum, content, its checksum."""
        content = event.SerializeToString()
        for part in (struct.pack("<Q", len(content)), content):
            self._content += part + struct.pack("<I", masked_crc32c(part))

    def epoch(self, record: EpochRecord) -> None:
        values = {tag: getattr(record, name) for tag, name in TAGS.items()}
        scalars = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in values.items()
            if value is not None and math.isfinite(value)
        ]
        self._add(Event(wall_time=time.time(), step=record.epoch, summary=Summary(value=scalars)))
        self._run.grow_file(self._name, self._content)

        if self._client is not None:
            import mlflow

            numbers = {name: value for name, value in asdict(record).items() if value is not None}
            with self._unless_lost():
                mlflow.log_metrics(numbers, record.epoch, run_id=self._id)

    def end(self, status: str) -> None:
        """Mark the MLflow run as FINISHED or FAILED; TensorBoard knows no states."""
        if self._client is not None:
            with self._unless_lost():
                self._client.set_terminated(self._id, status)

    @contextmanager
    def _unless_lost(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever its libraries raise
            self._client = None
            logger.warning("MLflow no longer records this run: %s", first_line(error))


def _open_mlflow_run(run: RunDirectory, experiment: Experiment) -> tuple[MlflowClient, str]:
    """Continue the MLflow run of this run directory, or create it with its settings."""
    # Its own seven attempts of two minutes each would keep a training waiting.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    import mlflow

    client, name = mlflow.MlflowClient(), os.environ.get("MLFLOW_EXPERIMENT_NAME", "courant")
    group = client.get_experiment_by_name(name)
    number = str(group.experiment_id if group else client.create_experiment(name))
    known = client.search_runs([number], f"tags.`{RUN_TAG}` = '{run.url}'", max_results=1)
    if not known:
        dataset, names = run.read_object(DATASET), ("url", "version", "snapshot_id")
        tags = {RUN_TAG: run.url, **{f"courant.dataset.{name}": dataset[name] for name in names}}
        known = [client.create_run(number, tags=tags, run_name=run.name)]
        settings = flatten(experiment.model_dump(mode="json"))
        mlflow.log_params(settings, run_id=known[0].info.run_id)
    found = str(known[0].info.run_id)
    client.update_run(found, status="RUNNING")
    return client, found
