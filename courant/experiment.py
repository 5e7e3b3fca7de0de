"""What a training run is: frozen, typed, complete, and refused when it holds a key that nobody reads.

An experiment crosses processes as JSON (driver -> worker -> run directory -> predictor). Everything that decides
the weights is in it, the dataset version aside; `courant.recipes` holds the published ones, and further ones
derive from them:

    recipes.cylinder_flow().derive(name="wide", training={"learning_rate": 1e-3}, model={"num_anchors": 128})
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from courant.json_text import parse_json
from courant.model.config import CourantConfig
from courant.model.count import check_size
from simgen.errors import InputError

MAX_EPOCHS = 50_000
"""A line of each epoch stays on record and is read as a whole."""
MAX_WINDOW_STEPS = 10_000
MANY = 10**9
"""More than any count in an experiment: what somebody else wrote does not overflow."""
_SHOWN_ERRORS = 8


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SampleConfig(_Frozen):
    """What steady and transient samples have in common (Table tab:dataset-details)."""

    fields: tuple[str, ...] = Field(default=("velocity",), min_length=1)
    """Modelled fields: "velocity" for every component, "velocity.x" for one."""
    distance_kinds: tuple[str, ...] | None = None
    """Patch kinds that the distance field is taken to, four channels each; "wall+impeller" is the nearer of the two. None = every kind."""
    points_per_sample: int | None = Field(default=None, ge=1, le=MANY)
    """Encoder points drawn from each case per sample; None = the whole cloud, padded and masked (the paper's way)."""
    queries_per_sample: int | None = Field(default=None, ge=1, le=MANY)
    """Query points in the loss per sample; None = the full mesh."""
    resident_gb: float = Field(default=8.0, ge=0)
    """Memory for the training split: one up to this size lies on the training device, a larger one is streamed from the store."""


class DataConfig(SampleConfig):
    """Transient samples: windows, the snapshot at t0 and its successors at t0 + step_s, ..., t0 + window_steps * step_s."""

    window_steps: int = Field(default=10, ge=1, le=MAX_WINDOW_STEPS)
    step_s: float = Field(default=10.0, gt=0)
    start_s: float = Field(default=0.0, ge=0)
    """Windows begin at this time or later: the start-up transient before it is not learned."""
    stride_s: float = Field(default=1.0, gt=0)
    """Time between the starts of neighbouring windows."""
    mirror_y: bool = False
    """Train on each case's image in the plane y = 0 as well: for families whose physics and domain are symmetric in it."""
    shift: float = Field(default=0.0, ge=0)
    """Move the coordinates of each training sample, as one, by up to this much of the length scale along every axis of the
    domain; the distance field stays, so that the model learns places from it rather than by heart."""
    cache_gb: float = Field(default=64.0, ge=0)
    """Disk for what a streamed split has decoded; cases beyond it are decoded anew for every window."""
    cache_folder: str = "~/.cache/courant"
    """On a fast local disk; processes and runs may share it."""


class SteadyDataConfig(SampleConfig):
    """Steady samples: from a case's geometry, boundary data and design parameters to its solved fields."""

    encoder: Literal["boundary", "mesh"] = "boundary"
    """What the encoder reads: the boundary cloud (the paper's baseline), or every cell with its distance field ("no boundary pc")."""
    prescribed: dict[str, tuple[str, ...]] = {}
    """By field, the patch kinds on whose faces its value is a boundary condition, given before anything is solved. Encoder features
    hold these values and zero on all other faces, whatever the solver found there."""


MACHINE = {"data": {"resident_gb", "cache_gb", "cache_folder"}, "training": {"cuda_graphs"}}
"""What suits an experiment to a machine: the same batches come out whatever it is, so it is no part of a run's identity."""


class TrainingConfig(_Frozen):
    """The optimisation (Table tab:cf-hparams: AdamW, clipping at 2.0, two-phase schedule)."""

    epochs: int = Field(ge=1, le=MAX_EPOCHS)
    batch_size: int = Field(ge=1, le=65_536)
    """Over all workers together."""
    samples_per_epoch: int | None = Field(default=None, ge=1, le=MANY)
    """Windows per epoch, drawn without repeats while there are enough; None = every window once."""
    learning_rate: float = Field(default=3e-4, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    warmup_steps: int = Field(default=0, ge=0, le=MANY)
    """Optimiser steps of linear warm-up, in front of the schedule's own factor."""
    schedule: Literal["two-phase", "cosine", "step"] = "two-phase"
    """The paper's for the industrial cases; cosine and step for the community benchmarks (Table tab:courant-training)."""
    step_epochs: int = Field(default=100, ge=1, le=MANY)
    """With schedule "step": epochs from one drop of the learning rate to the next."""
    step_factor: float = Field(default=0.5, gt=0, le=1)
    """With schedule "step": what the rate is multiplied by at each drop."""
    loss: Literal["l2", "relative-l2"] = "l2"
    """Mean square over all points (Table tab:baseline-arch), or each sample's relative error (the community benchmarks)."""
    clip_norm: float = Field(default=2.0, gt=0)
    accumulate: int = Field(default=1, ge=1, le=65_536)
    """Parts that a worker goes through its batch in, one after another: less memory, the same step."""
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    """Validate and keep an exponential moving average of the weights, such as 0.999; None = the weights themselves."""
    nonfinite: Literal["stop", "skip"] = "stop"
    """A loss or gradient that is not finite stops the run with its batch on record, or that step is left out and counted."""
    compile: bool = False
    """torch.compile for the training steps; needs a C++ compiler on a CPU. Not bitwise the same as without."""
    cuda_graphs: bool = False
    """Replay training steps from CUDA graphs, one for each combination of shapes; on one GPU."""
    seed: int = Field(default=42, ge=0, lt=2**62)
    workers: int = Field(default=1, ge=1, le=10_000)
    use_gpu: bool | Literal["auto"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    validate_every: int = Field(default=1, ge=1, le=MANY)
    """Epochs between validations; the last epoch is always validated."""
    validation_windows: int = Field(default=64, ge=1, le=1_000_000)
    """Windows of the validation split, evenly spread over its cases and times, the same at every epoch."""
    checkpoint_every: int = Field(default=1, ge=1, le=MANY)
    """Epochs between checkpoints; the last epoch is always kept."""
    keep_checkpoints: int = Field(default=2, ge=1, le=MANY)


class AnyExperiment(_Frozen):
    """A complete training run, the dataset version aside: what steady and transient ones have in common."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=160)
    family: str
    task: str
    model: CourantConfig
    data: SampleConfig
    training: TrainingConfig

    @field_validator("model", mode="before")
    @classmethod
    def _strict_model(cls, value: Any) -> Any:
        """A plain dataclass ignores keys that it does not know; an experiment does not."""
        config = CourantConfig.from_dict(value) if isinstance(value, dict) else value
        if isinstance(config, CourantConfig):
            check_size(config)
        return config

    def derive(
        self,
        *,
        name: str | None = None,
        model: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
    ) -> Self:
        """This experiment with single values of its sections replaced; InputError names a wrong one."""
        content = self.model_dump()
        for section, values in {"model": model, "data": data, "training": training}.items():
            content[section].update(values or {})
        return _checked(type(self), {**content, "name": name or self.name})

    def run_id(self, snapshot_id: str) -> str:
        """`<name>-<hash>`, the hash over the whole experiment and the dataset snapshot that it is fitted to."""
        content = json.dumps([self.model_dump(mode="json", exclude=MACHINE), snapshot_id], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


class Experiment(AnyExperiment):
    """A run on a transient family."""

    task: Literal["transient"] = "transient"
    data: DataConfig = DataConfig()


class SteadyExperiment(AnyExperiment):
    """A run on a steady family."""

    task: Literal["steady"] = "steady"
    data: SteadyDataConfig = SteadyDataConfig()


E = TypeVar("E", bound=AnyExperiment)


def parse_experiment(content: str | dict[str, Any]) -> Experiment | SteadyExperiment:
    """An experiment from JSON or a mapping; InputError with one line that names each wrong key."""
    if isinstance(content, str):
        try:
            content = parse_json(content.encode())
        except ValueError as error:
            raise InputError(f"experiment is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError("experiment must be a mapping with name, family, task, model, data and training")
    if content.get("task") == "steady":
        return _checked(SteadyExperiment, content)
    return _checked(Experiment, content)


def _checked(kind: type[E], content: dict[str, Any]) -> E:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False)
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))[:100]}: {item['msg']}" for item in found[:_SHOWN_ERRORS])
        wrong += f"; and {len(found) - _SHOWN_ERRORS} more" if len(found) > _SHOWN_ERRORS else ""
        raise InputError(f"experiment: {' '.join(wrong.split())}") from error
