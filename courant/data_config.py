"""Define how samples are made of a dataset's cases: the data section of an experiment."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from courant.model_config import check_names

MAX_WINDOW_STEPS = 10_000
MANY = 10**9
"""An upper bound on every count in an experiment, so that foreign input cannot overflow."""


class Frozen(BaseModel):
    """A record that crosses processes: no key is unknown, no number infinite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
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
