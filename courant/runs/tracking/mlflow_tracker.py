"""Track a run on an MLflow server, if MLFLOW_TRACKING_URI names one.

A resumed run continues its MLflow run. The client reads its address and credentials from the
environment (MLFLOW_TRACKING_URI, MLFLOW_TRACKING_USERNAME, ...); MLFLOW_EXPERIMENT_NAME is the
experiment's name there, by default `courant`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import asdict
from typing import Any

from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord
from courant.runs.summary import flatten
from simgen.errors import InputError, StoreError

try:
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient
except ImportError as missing:
    raise InputError(
        "MLFLOW_TRACKING_URI is set and MLflow is not installed: pip install mlflow-skinny,"
        " or unset it"
    ) from missing

logger = logging.getLogger("courant.training")

RUN_TAG = "courant.run"
NO_METRICS = ("epoch", "epochs", "eta_s")
END_S = 10.0
"""How long the end of a stopped run waits for the server"""
MAX_PARAMS = 100
"""The limit of one request"""


class MlflowTracker:
    """Log settings once and metrics by epoch.

    A server that fails later causes a warning and never stops the training. Raises StoreError where
    the server cannot be reached at the start: it may be back for the next attempt.
    """

    def __init__(self, run: RunDirectory, experiment: Experiment) -> None:
        self._uri = os.environ["MLFLOW_TRACKING_URI"]
        self._lost = False
        try:
            self._client = MlflowClient(self._uri)
            self._id = _find_or_create(self._client, run, experiment)
            self._client.update_run(self._id, status="RUNNING")
        except MlflowException as error:
            reason = str(error).strip().splitlines()[0]
            raise StoreError(
                f"MLflow cannot be used ({reason}); correct MLFLOW_TRACKING_URI, or unset it"
            ) from error

    def epoch(self, record: EpochRecord) -> None:
        values = {
            name: value
            for name, value in asdict(record).items()
            if value is not None and name not in NO_METRICS
        }
        metrics = [
            Metric(name, float(value), int(1000 * time.time()), record.epoch)
            for name, value in values.items()
        ]
        self._try(lambda: self._client.log_batch(self._id, metrics=metrics))

    def end(self, state: str) -> None:
        self._try(
            lambda: self._client.set_terminated(
                self._id, "FINISHED" if state == "finished" else "FAILED"
            )
        )

    def _try(self, action: Any) -> None:
        if self._lost:
            return
        try:
            action()
        except MlflowException as error:
            self._lost = True
            logger.warning(
                "MLflow takes no more of this run: %s", str(error).strip().splitlines()[0]
            )


_silent = False
"""Whether the server did not answer this process in time, which then asks no more"""


def end_mlflow_run(run: RunDirectory) -> None:
    """Tell MLflow that a run was stopped whose own process tells nothing any more.

    A server that does not answer soon is a warning, once: MLflow's client would try for minutes.
    """
    global _silent
    if _silent:
        return
    told: list[str] = []
    asking = threading.Thread(target=lambda: told.append(_end(run)), daemon=True)
    asking.start()
    asking.join(END_S)
    if not told or told[0]:
        _silent = True
        reason = told[0] if told else f"it has not answered for {END_S:g} s"
        logger.warning("MLflow still shows stopped runs as running: %s", reason)


def _end(run: RunDirectory) -> str:
    """Return why a run could not be ended; or nothing."""
    try:
        client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
        group = client.get_experiment_by_name(_group_name())
        known = _find(client, str(group.experiment_id), run) if group else None
        if known is not None:
            client.set_terminated(known, "KILLED")
    except Exception as error:  # whatever its libraries raise, a sweep does not end of it
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ""


def _group_name() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME", "courant")


def _group(client: MlflowClient) -> str:
    group = client.get_experiment_by_name(_group_name())
    return str(group.experiment_id if group else client.create_experiment(_group_name()))


def _find(client: MlflowClient, group: str, run: RunDirectory) -> str | None:
    known = client.search_runs([group], f"tags.`{RUN_TAG}` = '{run.url}'", max_results=1)
    return str(known[0].info.run_id) if known else None


def _find_or_create(client: MlflowClient, run: RunDirectory, experiment: Experiment) -> str:
    """Return the id of the MLflow run of this run directory."""
    group = _group(client)
    if (known := _find(client, group, run)) is not None:
        return known
    dataset = run.read_json("dataset.json")
    created = str(client.create_run(group, run_name=run.url.rsplit("/", 1)[-1]).info.run_id)
    tags = [RunTag(RUN_TAG, run.url)]
    tags += [
        RunTag(f"courant.dataset.{key}", str(dataset[key]))
        for key in ("url", "version", "snapshot_id")
    ]
    params = [
        Param(key, str(value)) for key, value in flatten(experiment.model_dump(mode="json")).items()
    ]
    client.log_batch(created, tags=tags, params=params[:MAX_PARAMS])
    for start in range(MAX_PARAMS, len(params), MAX_PARAMS):
        client.log_batch(created, params=params[start : start + MAX_PARAMS])
    return created
