"""Write a run's record: what was asked for, where it ran, its state, one EpochRecord per epoch."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, model_validator

from courant.experiment import Experiment
from courant.runs.dataset_record import write_dataset_record
from courant.runs.directory import M, RunDirectory
from simgen.errors import StoreError
from simgen.provenance import DISTRIBUTION, source_revision

if TYPE_CHECKING:
    import torch

    from courant.data.normalisation import Normaliser
    from simgen.store.read import Dataset

METRICS = "metrics.jsonl"
STATUS = "status.json"
MONITOR = "monitor.json"
"""Of a rollout monitor, which is calibrated after the training (`courant.prediction.monitor`)"""
BANDS = "bands.json"
"""Of bands of error, which are calibrated then too (`courant.prediction.bands`)"""
State = Literal["running", "finished", "failed", "stopped"]
_PACKAGES = ("torch", "numpy", "ray", "zarr", "icechunk", DISTRIBUTION)


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: losses in standardised space, NMAE in physical units.

    Both are None where the epoch was not validated.
    """

    epoch: int
    """from 1"""
    epochs: int
    train_loss: float
    validation_loss: float | None
    validation_nmae: float | None
    """mean absolute error over mean absolute value, each over every validation window, point, step
    and component
    """
    learning_rate: float
    seconds: float
    """of training, without validation and checkpoint"""
    samples_per_s: float
    eta_s: float
    """estimated time for the remaining epochs, with validation and checkpoints"""
    data_wait_share: float | None = None
    """share of the training time spent waiting for the next batch (first worker); None, like those
    below, in runs of an older release
    """
    flops_per_s: float | None = None
    """achieved by all workers together: operations of the run's first batch, forward and backward,
    for each sample
    """
    peak_memory_gb: float | None = None
    """of the first worker so far: on the GPU, or of the whole process on a CPU"""
    skipped_batches: int = 0
    """left out because loss or gradient was not finite"""
    processor_s: float | None = None
    """of training: CPU seconds of the first worker's process, all threads together; on a GPU the
    time for which it was held
    """

    @property
    def cost_s(self) -> float:
        """Seconds of processor time; in runs of an older release the wall time."""
        return self.processor_s or self.seconds

    def line(self) -> str:
        """Format a line for a log.

        `epoch 12/60  loss 0.2310  validation 0.3021  NMAE 0.183  lr 3.0e-04  812 samples/s  1 min
        40 s left`
        """
        validation = ""
        if self.validation_loss is not None and self.validation_nmae is not None:
            validation = f"  validation {self.validation_loss:.4f}  NMAE {self.validation_nmae:.3f}"
        minutes, seconds = divmod(round(self.eta_s), 60)
        return (
            f"epoch {self.epoch}/{self.epochs}  loss {self.train_loss:.4f}{validation}  lr"
            f" {self.learning_rate:.1e} "
            f" {self.samples_per_s:.{0 if self.samples_per_s >= 10 else 2}f} samples/s  {minutes}"
            f" min {seconds:02d} s"
            f" left{f'  {self.skipped_batches} batches skipped' if self.skipped_batches else ''}"
        )


_FROM_JSON = TypeAdapter(EpochRecord)


def read_records(run: RunDirectory) -> list[EpochRecord]:
    """Read the run's epochs so far, in order; empty before the first."""
    if not run.exists(METRICS):
        return []
    try:
        return [_FROM_JSON.validate_json(line) for line in run.read_bytes(METRICS).splitlines()]
    except ValueError as error:
        raise StoreError(
            f"{run.url}/{METRICS} is damaged; remove it and train again to go on"
        ) from error


def best_record(records: Sequence[EpochRecord]) -> EpochRecord | None:
    """Return the epoch whose weights a run keeps; None before the first finite validation."""
    validated = [
        (record.validation_loss, record)
        for record in records
        if record.validation_loss is not None and math.isfinite(record.validation_loss)
    ]
    return min(validated, key=lambda each: each[0], default=(0.0, None))[1]


def write_records(run: RunDirectory, records: Sequence[EpochRecord]) -> None:
    """Replace the run's epochs: the file is small, and complete at every moment."""
    run.write_bytes(
        METRICS, "".join(json.dumps(asdict(record)) + "\n" for record in records).encode()
    )


def describe_run(
    run: RunDirectory, experiment: Experiment, dataset: Dataset, normaliser: Normaliser
) -> None:
    """Write experiment.json, dataset.json and normaliser.json.

    They are all that a predictor needs besides the weights.
    """
    run.write_json("experiment.json", experiment.model_dump(mode="json"))
    write_dataset_record(run, dataset)
    run.write_json("normaliser.json", normaliser.to_json())


def write_status(run: RunDirectory, state: State, **details: Any) -> None:
    """Write status.json: the run's state, and details of that state."""
    run.write_json(STATUS, {"state": state, **details})


def is_finished(run: RunDirectory) -> bool:
    return run.exists(STATUS) and read_status(run)["state"] == "finished"


def read_status(run: RunDirectory) -> dict[str, Any]:
    """Read status.json; StoreError where it names no state."""
    status = run.read_object(STATUS)
    if status.get("state") not in get_args(State):
        raise StoreError(f"{run.url}/{STATUS} names no state; remove it and train again to go on")
    return status


def environment(device: torch.device, workers: int) -> dict[str, Any]:
    """Describe where the run takes place, for its record."""
    import torch  # takes seconds, which those who read records need not wait for

    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in _PACKAGES},
        "source_revision": source_revision(),
        "device": (
            torch.cuda.get_device_name(device)
            if device.type == "cuda"
            else platform.processor() or platform.machine()
        ),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "workers": workers,
        "host": platform.node(),
        "process": os.getpid(),
    }


# Further entries are ignored.
_CONFIG = ConfigDict(extra="ignore", frozen=True)


class Timings(BaseModel):
    """Seconds by part of a run."""

    model_config = _CONFIG
    load: float
    train: float
    validation: float
    checkpoint: float


class Status(BaseModel):
    """The state of a run."""

    model_config = _CONFIG
    state: State
    best_epoch: int | None = None
    """The epoch whose weights are kept; None before the end"""

    @model_validator(mode="after")
    def _ended(self) -> Self:
        if self.state == "finished" and self.best_epoch is None:
            raise ValueError("a finished run names its best_epoch")
        return self


class Environment(BaseModel):
    """The machine and software of a run."""

    model_config = _CONFIG
    device: str
    workers: int


@dataclass(frozen=True)
class Course:
    """The course of a run; None for files that the run does not have."""

    status: Status | None
    timings: Timings | None
    environment: Environment | None


def read_course(run: RunDirectory) -> Course:
    """Read the files; StoreError where they are not what a run writes."""
    return Course(
        _read(run, "status.json", Status),
        _read(run, "timings.json", Timings),
        _read(run, "environment.json", Environment),
    )


def _read(run: RunDirectory, name: str, kind: type[M]) -> M | None:
    return run.read_record(name, kind) if run.exists(name) else None
