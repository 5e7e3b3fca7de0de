"""Define a training run completely: frozen, typed, and without unknown keys.

An experiment crosses processes as JSON (driver -> worker -> run directory -> predictor). Everything
that decides the weights is in it, except the dataset version. `courant.recipes` holds the published
ones, and others derive from them:

    get_recipe("cylinder-flow").derive(name="wide", model={"num_anchors": 128})
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field, ValidationError, ValidationInfo

from courant.model_config import ModelConfig, check_names
from courant.models import dump_config, parse_config
from simgen.errors import InputError

Kind = Literal["transient", "steady"]  # what is predicted: states in time, or one field
MAX_WINDOW_STEPS = 10_000
MANY = 10**9
"""An upper bound on every count in an experiment, so that foreign input cannot overflow."""
MAX_EPOCHS = 50_000  # The record keeps one line per epoch and is read as a whole
MAX_NAME = 160
VALIDATIONS = 20  # Of a training whose epochs are chosen for it, at most
LARGEST_WARM_UP = 0.1  # Of its steps
_SHOWN_ERRORS = 8

MACHINE = {"data": {"resident_gb", "cache_gb", "cache_folder"}, "training": {"cuda_graphs"}}
"""Settings that fit an experiment to a machine: they do not change the batches, so they are not
part of a run's identity.
"""


class Frozen(pydantic.BaseModel):
    """A record that crosses processes: no key is unknown, no number infinite."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _fields_exist(cls, given: Any) -> Any:
        check_names(cls, given if isinstance(given, dict) else (), cls.model_fields.keys())
        return given


class SampleData(Frozen):
    """Settings common to steady and transient samples (Table tab:dataset-details)."""

    fields: tuple[str, ...] = Field(default=("velocity",), min_length=1)
    """Modelled fields: "velocity" for every component, "velocity.x" for one."""
    given: tuple[str, ...] | None = None
    """Given fields that are inputs, named like the modelled ones; None = every one that varies."""
    distance_kinds: tuple[str, ...] | None = None
    """Patch kinds of the distance field, four channels each; "wall+impeller" is the nearer of the
    two. None or empty = every kind; `model.num_query_features` 0 leaves it out of the queries.
    """
    points_per_sample: int | None = Field(default=None, ge=1, le=MANY)
    """Encoder points drawn from each case per sample; None = the whole cloud, padded and masked
    (the paper's way).
    """
    queries_per_sample: int | None = Field(default=None, ge=1, le=MANY)
    """Query points in the loss per sample; None = the full mesh."""
    anchors_by: Literal["distance", "volume"] = "distance"
    """How sampled anchors are spread over a cloud: the farthest points (the paper's way), many of
    which lie on its boundary, or points in the middle of parts of about equal volume.
    """
    anchor_start: Literal["box", "cloud"] = "box"
    """Where learned anchors start: uniform in the cube [-1, 1]^d of normalised coordinates, or far
    apart among the cells of the training cases, so that none starts outside of the domain.
    """
    resident_gb: float = Field(default=8.0, ge=0)
    """Memory for the training split: up to this size it is kept on the training device, a larger
    one is streamed from the store.
    """


class TransientData(SampleData):
    """Transient samples: windows of what is known up to t0, and of its successors.

    The successors are at t0 + step_s, ..., t0 + window_steps * step_s.
    """

    window_steps: int = Field(default=10, ge=1, le=MAX_WINDOW_STEPS)
    input_steps: int = Field(default=1, ge=1, le=MAX_WINDOW_STEPS)
    """States that the encoder reads, step_s apart, the last one at t0 (in the
    overview of the public benchmarks, tab:community-benchmarks-overview, 10; in the paper's own
    cases one).
    """
    step_s: float = Field(gt=0)
    """Time between the states of a window: a multiple of the data's snapshot interval."""
    start_s: float = Field(default=0.0, ge=0)
    """Windows begin at this time or later, so that the start-up transient is not learned."""
    stride_s: float = Field(gt=0)
    """Time between the starts of neighbouring windows, a multiple of the same interval."""
    mirror_y: bool = False
    """Train on each case's image in the plane y = 0 as well: for families whose physics and domain
    are symmetric in it.
    """
    shift: float = Field(default=0.0, ge=0)
    """Shift the coordinates of each training sample as a whole by up to this share of the length
    scale along every axis of the domain. The distance field stays, so that the model learns
    location from it rather than by memorising coordinates.
    """
    cache_gb: float = Field(default=64.0, ge=0)
    """Disk space for decoded arrays of a streamed split; further cases are decoded anew for every
    window.
    """
    cache_folder: str = "~/.cache/courant"
    """On a fast local disk; processes and runs may share it."""

    @property
    def num_states(self) -> int:
        """Stored states in a window: those that are read and those that are predicted."""
        return self.input_steps + self.window_steps


class SteadyData(SampleData):
    """Steady samples: geometry, boundary data and design parameters to solved fields."""

    encoder: Literal["boundary", "mesh"] = "boundary"
    """What the encoder reads: the boundary cloud (the paper's baseline), or every cell with its
    distance field ("no boundary pc").
    """
    prescribed: dict[str, tuple[str, ...]] = {}
    """By field, the patch kinds on whose faces its value is a boundary condition, known before the
    solve. Encoder features hold these values, and zero on all other faces whatever the solver found
    there.
    """
    scaled_by: dict[str, dict[str, float]] = {}
    """By field, the design parameters whose powers scale it: with {"velocity": {"inlet_velocity":
    1}} the model learns velocity over the inlet's velocity, as in dimensional analysis. Errors of
    slow cases then count as much in the loss as those of fast ones.
    """


class TrainingConfig(Frozen):
    """The optimisation, by default that of the paper's cylinder (tab:cf-hparams)."""

    epochs: int = Field(ge=1, le=MAX_EPOCHS)
    budget_s: float | None = Field(default=None, gt=0)
    """Seconds of training and validation; `epochs` are those that fit, by the first steps' pace."""
    patience: int | None = Field(default=None, ge=1, le=MANY)
    """Epochs after which training stops if no validation loss was lower."""
    batch_size: int = Field(ge=1, le=65_536)  # Over all workers together
    samples_per_epoch: int | None = Field(default=None, ge=1, le=MANY)
    """Windows per epoch, drawn without repeats while there are enough; None = every window once."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """AdamW is the paper's; Muon trains the matrices of hidden layers, AdamW the rest."""
    learning_rate: float = Field(default=3e-4, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    warmup_steps: int = Field(default=0, ge=0, le=MANY)  # linear, in front of the schedule's factor
    schedule: Literal["two-phase", "cosine", "step"] = "two-phase"
    """The paper's for industrial cases, and for public benchmarks (tab:courant-training)"""
    step_epochs: int = Field(default=100, ge=1, le=MANY)
    """With schedule "step": epochs between drops of the learning rate."""
    step_factor: float = Field(default=0.5, gt=0, le=1)
    """With schedule "step": the factor of the rate at each drop."""
    loss: Literal["l2", "relative-l2"] = "l2"  # mean square, or each sample's relative error
    derivative_weight: float = Field(default=0.0, ge=0)  # of differences along a grid (Darcy: 0.1)
    locality_weight: float = Field(default=0.0, ge=0)
    """Of the squared distance of contributions from their anchors, over domain^2 / L, by energy"""
    clip_norm: float = Field(default=2.0, gt=0)
    accumulate: int = Field(default=1, ge=1, le=65_536)
    """Number of parts in which a worker processes its batch: less memory, the same step."""
    nonfinite: Literal["stop", "skip"] = "stop"  # on a loss or gradient that is not finite
    compile: bool = False  # needs a C++ compiler on a CPU; changes the last digits
    cuda_graphs: bool | Literal["auto"] = "auto"
    """One for each combination of shapes that repeats; "auto" where one GPU trains alone."""
    seed: int = Field(default=42, ge=0, lt=2**62)
    workers: int = Field(default=1, ge=1, le=10_000)
    use_gpu: bool | Literal["auto"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    validate_every: int = Field(default=1, ge=1, le=MANY)  # epochs; the last is always validated
    validation_windows: int = Field(default=64, ge=1, le=1_000_000)
    """Spread evenly over the split's cases and times, the same at every epoch."""
    checkpoint_every: int = Field(default=1, ge=1, le=MANY)  # epochs; the last is always kept
    keep_checkpoints: int = Field(default=2, ge=1, le=MANY)

    @pydantic.model_validator(mode="after")
    def _batch_divides(self) -> Self:
        of_worker, rest = divmod(self.batch_size, self.workers)
        if rest or of_worker < self.accumulate:
            raise ValueError(
                f"batch_size = {self.batch_size} does not divide over {self.workers} workers with"
                f" accumulate = {self.accumulate} parts or more each"
            )
        return self

    def with_epochs(
        self, epochs: int, steps_per_epoch: int | None = None, validations: int = VALIDATIONS
    ) -> TrainingConfig:
        """Return a copy for so many epochs, validated at most so many times.

        Drops of the rate move with the epochs; the warm-up is limited where the steps are known.
        """
        every = math.ceil(epochs / validations)
        changed = {"epochs": epochs, "validate_every": every, "checkpoint_every": every}
        if self.schedule == "step":
            changed["step_epochs"] = max(1, round(self.step_epochs * epochs / self.epochs))
        if steps_per_epoch is not None:
            most = int(LARGEST_WARM_UP * epochs * steps_per_epoch)
            changed["warmup_steps"] = min(self.warmup_steps, most)
        return self.model_copy(update=changed)


DATA: dict[str, type[SampleData]] = {"transient": TransientData, "steady": SteadyData}
"""How samples are made of a dataset's cases, by the task of an experiment."""


def _read_model(given: Any) -> ModelConfig:
    if isinstance(given, ModelConfig):
        return given
    if not isinstance(given, dict):
        raise ValueError("must be a mapping with the kind of the model and its sizes")
    return parse_config(given)


_Model = Annotated[
    ModelConfig, pydantic.PlainValidator(_read_model), pydantic.PlainSerializer(dump_config)
]


class Experiment(Frozen):
    """A complete training run, except the dataset version."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=MAX_NAME)
    family: str
    task: Kind = "transient"
    model: _Model
    data: pydantic.SerializeAsAny[SampleData] = Field(default_factory=dict, validate_default=True)  # type: ignore[assignment]
    training: TrainingConfig

    @pydantic.field_validator("data", mode="before")
    @classmethod
    def _data_of_task(cls, value: Any, info: ValidationInfo) -> Any:
        """Check the section's keys against the task; a wrong task has an error of its own."""
        kind = DATA.get(info.data.get("task", ""), SampleData)
        return kind.model_validate(value) if isinstance(value, dict) else value

    @pydantic.model_validator(mode="after")
    def _sections_fit(self) -> Self:
        if self.training.derivative_weight and self.data.queries_per_sample is not None:
            raise ValueError(
                "training.derivative_weight needs the whole grid: set data.queries_per_sample to"
                " null"
            )
        kind = getattr(self.model, "anchor_kind", None)
        if self.training.locality_weight and kind in (None, "abstract"):
            raise ValueError(
                "training.locality_weight needs a model whose anchors have positions, such as"
                " courant with sampled or learned ones; set it to 0"
            )
        if not isinstance(self.data, DATA[self.task]):
            raise ValueError(f"a {self.task} experiment takes {DATA[self.task].__name__} as data")
        return self

    def derive(
        self,
        *,
        name: str | None = None,
        model: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
    ) -> Experiment:
        """Copy this experiment with some values replaced; InputError names a wrong one."""
        content = self.model_dump()
        for section, values in {"model": model, "data": data, "training": training}.items():
            content[section].update(values or {})
        return _checked({**content, "name": name or self.name})

    def with_values(self, values: Mapping[str, Any]) -> Experiment:
        """Return a copy with values by `section.name`, such as `training.epochs`.

        Epochs that are given are trained, whatever the experiment's budget.
        """
        sections: dict[str, dict[str, Any]] = {"model": {}, "data": {}, "training": {}}
        for key, value in values.items():
            section, _, name = key.partition(".")
            if section not in sections or not name:
                raise InputError(
                    f"'{key}' is no value of an experiment; give SECTION.NAME of"
                    f" {', '.join(sections)}, such as training.epochs"
                )
            sections[section][name] = value
        if "epochs" in sections["training"]:
            sections["training"] = {"budget_s": None, **sections["training"]}
        return self.derive(**sections)  # type: ignore[arg-type]

    def run_id(self, snapshot_id: str) -> str:
        """Return `<name>-<hash>`; the hash covers the experiment and the dataset snapshot."""
        content = self.model_dump(mode="json", exclude=MACHINE)
        text = json.dumps([content, snapshot_id], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def parse_experiment(content: str | dict[str, Any]) -> Experiment:
    """Parse an experiment from JSON or a mapping; InputError names each wrong key in one line."""
    if isinstance(content, str):
        try:
            content = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InputError(f"experiment is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError("experiment must map name, family, task, model, data and training")
    return _checked(content)


def _checked(content: dict[str, Any]) -> Experiment:
    try:
        return Experiment.model_validate(content)
    except ValidationError as error:
        raise InputError(f"experiment: {wrong_keys(error)}") from error


def wrong_keys(error: ValidationError) -> str:
    """Name what is wrong in foreign content, in one line: the first keys, and how many more."""
    lines = dict[str, None]()
    for each in error.errors(include_url=False):
        place, text = ".".join(map(str, each["loc"]))[:100], each["msg"]
        lines[": ".join(filter(None, (place, text.removeprefix("Value error, "))))] = None
    shown = [*lines][:_SHOWN_ERRORS]
    more = [f"and {len(lines) - len(shown)} more"] if len(lines) > len(shown) else []
    return " ".join("; ".join([*shown, *more]).split())
