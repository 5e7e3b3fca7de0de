"""Bands of error around predictions, from cases that nothing else has seen.

Split conformal prediction: `courant calibrate` predicts the cases of the calibration split and
keeps how far each prediction was off. A new case's error is, with the probability of the band's
level, no larger than the corresponding quantile of theirs, as long as it is drawn like them; no
assumption about the model is made. Errors are first divided by what is usual near a design
(`ErrorSize`), and in fields at a place (`FieldScale`), so that bands are wide where errors are
large. Vovk et al. 2005, Algorithmic Learning in a Random World; Lei et al. 2018,
Distribution-Free Predictive Inference for Regression, section 5.2 on scaled errors.

The band of a field is simultaneous: with that probability it holds at all points, steps and
components of the prediction at once.

No band holds for a design outside of those that were trained on and calibrated. The ranges of these
are those of the designs themselves, which may fill a part of the design space alone. The outermost
of n designs is not the end of the range that they were drawn from: this lies a mean gap farther
out. So the ranges are wider by three gaps, within which the end lies in 19 of 20 samples. Nor does
a band hold for a prediction whose latents are unlike those of all training cases (`Reach`). And
where the solver rejects designs, `Outcomes` has the share of the designs near by that it did.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from pydantic import Field, model_validator

from courant.data_config import Frozen
from courant.field_model import Encodes
from courant.prediction.error_models import (
    FieldScale,
    GridError,
    KernelMean,
    Regressed,
    fit_error_size,
    fit_kernel_mean,
    share_loss,
)
from courant.problems.transient import TIME_TOLERANCE
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS
from simgen.design_space import Parameter, scaled

if TYPE_CHECKING:
    from courant.data.batch import Batch
    from courant.prediction.surrogate import Surrogate
    from simgen.store.read import StoredCase


COMPONENTS = 8
LEAST_REACH = 1e-12
#: A prediction is within reach if its latents are as near to a training case's as this share of
#: the calibration cases' are.
REACH = 0.99
#: Comparing each design with each other one takes memory by their square.
MOST_CASES = 5_000


class Reach(Frozen):
    """Latents of training cases, to tell whether a prediction starts from anything like them.

    A latent state is reduced to the mean and the deviation over anchors, then to whitened
    principal components.
    """

    mean: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]
    known: tuple[tuple[float, ...], ...] = Field(min_length=1, max_length=MOST_CASES)
    limit: float = Field(gt=0)

    @model_validator(mode="after")
    def _fits(self) -> Reach:
        wide = {len(row) for row in self.components} <= {len(self.mean)}
        if not wide or {len(row) for row in self.known} != {len(self.components)}:
            raise ValueError("its sizes do not fit one another")
        return self

    def distance(self, latent: np.ndarray) -> float:
        """Return the distance of pooled latents (2 d,) from the nearest known ones."""
        reduced = np.asarray(self.components) @ (latent - np.asarray(self.mean))
        return float(np.linalg.norm(np.asarray(self.known) - reduced, axis=1).min())


def fit_reach(known: Sequence[np.ndarray]) -> Reach | None:
    """Learn the latents of training cases; None for a model that has none."""
    if len(known) < 3:
        return None
    mean = np.mean(known, axis=0)
    _, sizes, directions = np.linalg.svd(np.stack(known) - mean, full_matrices=False)
    kept = [n for n, size in enumerate(sizes[:COMPONENTS]) if size > 1e-6 * sizes[0]]
    components = directions[kept] / (sizes[kept, None] / np.sqrt(len(known)))
    return Reach(
        mean=tuple(mean.tolist()),
        components=tuple(map(tuple, components.tolist())),
        known=tuple(map(tuple, ((np.stack(known) - mean) @ components.T).tolist())),
        limit=LEAST_REACH,
    )


def ending_at(reach: Reach, limit: float) -> Reach:
    """Let the reach end at a distance; a model whose latents tell nothing of a case has no end."""
    return reach.model_copy(update={"limit": max(limit, LEAST_REACH)})


GAPS = 3.0
#: Of designs that are computed, not typed.
ROUNDING = 1e-6

Ranges = tuple[tuple[float, float], ...]
"""By parameter, of designs that are scaled to -1..1 over the ranges of the design space"""


def ranges_of(designs: np.ndarray) -> Ranges:
    """Return the ranges that designs (n, P) speak for, within those of the design space."""
    least, most = designs.min(axis=0), designs.max(axis=0)
    margin = GAPS * (most - least) / max(len(designs) - 1, 1)
    low = np.minimum(least, np.maximum(least - margin, -1.0))
    high = np.maximum(most, np.minimum(most + margin, 1.0))
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def shared_ranges(one: np.ndarray, other: np.ndarray) -> Ranges:
    """Return what two samples (n, P), (m, P) of designs both speak for; empty without parameters.

    Where both were drawn from one range, together they tell its ends more sharply than each alone.
    """
    if not one.shape[1]:
        return ()
    found = np.array([ranges_of(each) for each in (one, other, np.concatenate([one, other]))])
    low, high = found[..., 0].max(axis=0), found[..., 1].min(axis=0)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def is_outside(ranges: Ranges, design: np.ndarray) -> bool:
    """Tell whether a scaled design (P,) lies outside; never without ranges."""
    return any(not _inside(place, *ends) for place, ends in zip(design, ranges, strict=False))


def outside(ranges: Ranges, parameters: Sequence[Parameter], design: Mapping[str, float]) -> str:
    """Say by which parameters a design lies outside of ranges; empty if it does not.

    Without ranges, as in calibrations of older releases, nothing lies outside.
    """
    places = scaled(parameters, design).tolist()
    told = [
        f"{each.name.replace('_', ' ')} = {design[each.name]:g}{_unit(each)} lies outside of"
        f" {_restored(each, low):.4g} to {_restored(each, high):.4g}{_unit(each)}"
        for each, place, (low, high) in zip(parameters, places, ranges, strict=False)
        if not _inside(place, low, high)
    ]
    if not told:
        return ""
    return f"{', '.join(told)}, the designs that the model was trained and calibrated on"


def _inside(place: float, low: float, high: float) -> bool:
    return low - ROUNDING <= place <= high + ROUNDING


def _restored(parameter: Parameter, place: float) -> float:
    return parameter.low + (place + 1) / 2 * (parameter.high - parameter.low)


def _unit(parameter: Parameter) -> str:
    return "" if parameter.unit == "1" else f" {parameter.unit}"


Design = tuple[float, ...]
"""Scaled to -1..1 over the ranges of the design space"""


class Outcomes(Frozen):
    """Which designs have an accepted solution."""

    designs: tuple[Design, ...] = Field(min_length=1, max_length=MOST_CASES)
    unsolved: tuple[bool, ...]

    @model_validator(mode="after")
    def _fits(self) -> Outcomes:
        if len(self.designs) != len(self.unsolved):
            raise ValueError("it has not one outcome for each design")
        return self

    @cached_property
    def _near(self) -> KernelMean:
        # Fitted once for many designs: its time grows with the square of their number.
        values = np.asarray(self.unsolved, dtype=float)
        return fit_kernel_mean(np.asarray(self.designs), values, share_loss)

    def unsolved_near(self, design: np.ndarray) -> float:
        """Return the share of designs near one that have no accepted solution."""
        return float(self._near.at(design[None])[0])


LEVEL = 0.9

Error = Annotated[float, Field(ge=0)]


class FieldErrors(Frozen):
    """How far predicted fields were off."""

    scale: FieldScale
    largest: tuple[Error, ...]
    """By calibration case: the largest error at any point, step and component, over the scale"""


class Span(Frozen):
    """The rollouts that quantities of a transient model were calibrated on."""

    start_s: float
    steps: int


class Bands(Frozen):
    """The calibration of a run; designs are scaled to -1..1 over the ranges of the parameters."""

    weights: str
    """Digest of the weights that were calibrated"""
    version: str
    """Of the dataset whose calibration split was predicted"""
    cases: tuple[str, ...] = Field(min_length=1, max_length=MOST_CASES)
    designs: tuple[Design, ...]
    quantities: dict[str, tuple[Error | None, ...]]
    """Absolute errors by case; None where a case has none"""
    span: Span | None = None
    field: FieldErrors
    reach: Reach | None = None
    ranges: Ranges
    """Within which training and calibration designs lie; empty without parameters"""
    outcomes: Outcomes
    grid: dict[str, GridError] = Field(default_factory=dict)
    """By quantity, where the mesh was studied"""
    no_grid: dict[str, str] = Field(default_factory=dict)
    """Quantities that the study told nothing of, with the reason"""
    regressed: Regressed | None = None
    """Quantities by the design parameters alone"""

    @model_validator(mode="after")
    def _fits(self) -> Bands:
        columns = [self.designs, self.field.largest, *self.quantities.values()]
        if self.regressed is not None:
            columns += [each.errors for each in self.regressed.quantities.values()]
        widths = {len(design) for design in (*self.designs, *self.outcomes.designs)}
        widths |= {len(self.ranges)} if self.ranges else set()
        if {len(column) for column in columns} != {len(self.cases)} or len(widths) != 1:
            raise ValueError("it has not one value for each case")
        return self

    def quantity(self, name: str, design: np.ndarray, level: float = LEVEL) -> float:
        """Return a quantity's half-width; infinite with too few calibration cases."""
        return self._around(self.quantities[name], design, level)

    def by_regression(
        self, design: np.ndarray, level: float = LEVEL
    ) -> dict[str, tuple[float, float]]:
        """Return value and half-width of each regressed quantity that has a band.

        None has one outside of the designs that were trained on and calibrated.
        """
        if self.regressed is None or is_outside(self.ranges, design):
            return {}
        widths = {
            name: self._around(each.errors, design, level)
            for name, each in self.regressed.quantities.items()
        }
        values = self.regressed.values_at(design)
        return {name: (values[name], width) for name, width in widths.items() if width < math.inf}

    def _around(self, errors: Sequence[float | None], design: np.ndarray, level: float) -> float:
        known = [number for number, error in enumerate(errors) if error is not None]
        sizes = np.array([errors[number] for number in known], dtype=float)
        return half_width(np.asarray(self.designs)[known], sizes, design, level)

    def unguarded(self) -> Bands:
        """Return these bands for designs unlike the calibration's too, where they hold no more."""
        return self.model_copy(update={"reach": None, "ranges": ()})

    def over_scale(self, design: np.ndarray, level: float = LEVEL) -> float:
        """Return the field's half-width over its scale."""
        errors = np.asarray(self.field.largest)
        return half_width(np.asarray(self.designs), errors, design, level)


@dataclass(frozen=True)
class DesignBands:
    """The bands of one prediction, in physical units."""

    level: float
    quantities: Mapping[str, float]
    """Half-widths; infinite where there are too few calibration cases"""
    field: np.ndarray | None
    """Half-widths, shaped like the prediction; None where none holds"""
    unsolved: float
    """Share of designs near this one that had no accepted solution"""
    refusal: str = ""
    """Why no band holds, in words"""
    no_quantities: str = ""
    """Why quantities have none, in words"""
    by_regression: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Value and half-width of quantities by the design parameters alone"""


def half_width(designs: np.ndarray, errors: np.ndarray, design: np.ndarray, level: float) -> float:
    """Return the half-width of a band at a design, from errors (n,) at designs (n, P)."""
    if len(errors) < 2 or not errors.any():
        return math.inf if len(errors) < 2 else 0.0
    usual = fit_error_size(designs, errors)
    quantile = conformal_quantile(errors / usual.left_out, level)
    return quantile * float(usual.at(design[None])[0])


def conformal_quantile(scores: np.ndarray, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n scores; infinite where there is none."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return math.inf if rank > len(scores) else float(np.sort(scores)[rank - 1])


def least_cases(level: float) -> int:
    """Return how many calibration cases a level needs."""
    return math.ceil(level / (1 - level) - 1e-9)


def read_bands(run: RunDirectory, weights: str) -> Bands | None:
    """Return the run's bands; None where it was not calibrated with weights of this digest."""
    if not run.exists(BANDS):
        return None
    bands = run.read_record(BANDS, Bands, "remove it and calibrate again")
    return bands if bands.weights == weights else None


def apply_bands(
    surrogate: Surrogate,
    bands: Bands,
    prepared: Batch,
    values: np.ndarray,
    *,
    points: np.ndarray,
    parameters: Mapping[str, float],
    start_s: float | None = None,
    level: float = LEVEL,
) -> DesignBands:
    """Return the bands of a prediction; none where nothing like it was trained on or calibrated.

    values (T, N, C) of a transient model's rollout from `start_s`, (N, C) of a steady one, at
    points (N, 3) m, as predicted from `prepared`.
    """
    design = scaled_design(surrogate, parameters)
    unsolved = bands.outcomes.unsolved_near(design)
    refusal = refused(surrogate, bands, parameters, prepared)
    if not refusal and len(bands.cases) < least_cases(level):
        refusal = (
            f"a level of {level:.0%} needs {least_cases(level)} calibration cases, the run has"
            f" {len(bands.cases)}"
        )
    by_regression = bands.by_regression(design, level)
    if refusal:
        return DesignBands(level, {}, None, unsolved, refusal, refusal, by_regression)
    no_quantities = _other_rollout(bands, values, start_s, surrogate.step_s)
    quantities = (
        {}
        if no_quantities
        else {name: bands.quantity(name, design, level) for name in bands.quantities}
    )
    field = None
    steps = values.reshape(-1, *values.shape[-2:])
    calibrated = len(bands.field.scale.growth)
    if len(steps) <= calibrated:
        normaliser = surrogate.normaliser.at(parameters)
        scale = bands.field.scale.at(points, normaliser.standardise(steps))
        scale = scale * np.asarray(normaliser.std)
        field = (bands.over_scale(design, level) * scale).reshape(values.shape)
    else:
        refusal = f"bands are calibrated for {calibrated} steps, {len(steps)} were asked for"
    return DesignBands(level, quantities, field, unsolved, refusal, no_quantities, by_regression)


def bands_of_case(
    surrogate: Surrogate,
    case: StoredCase,
    values: np.ndarray,
    start_s: float | None = None,
    level: float = LEVEL,
) -> DesignBands | None:
    """Return the bands of a predicted stored case; None for a run that is not calibrated.

    `values` are those of `predict_case` from `start_s` (None where training windows begin).
    """
    if surrogate.bands is None:
        return None
    begin = surrogate.problem.start(case, start_s)
    prepared = surrogate.prepare_case(case, begin)
    return apply_bands(
        surrogate,
        surrogate.bands,
        prepared,
        values,
        points=np.asarray(case.points),
        parameters=case.parameters,
        start_s=begin,
        level=level,
    )


def scaled_design(surrogate: Surrogate, parameters: Mapping[str, float]) -> np.ndarray:
    """Return (P,) design parameters of the training's dataset, -1..1 over their ranges."""
    return scaled(space_of(surrogate), parameters)


def space_of(surrogate: Surrogate) -> list[Parameter]:
    """Return the design parameters of the training's dataset."""
    return [Parameter(**each) for each in surrogate.dataset["parameters"]]


def pooled_latents(surrogate: Surrogate, prepared: Batch) -> np.ndarray | None:
    """Return the mean and the deviation over anchors of a request's latents, (2 d,).

    None for a model without latents.
    """
    if not isinstance(surrogate.model, Encodes):
        return None
    inputs, _ = prepared.for_model(surrogate.model.config)
    with torch.inference_mode():
        latents = surrogate.model.encode(inputs)[0].float()
    pooled = torch.cat([latents.mean(dim=0), latents.std(dim=0, unbiased=False)])
    return pooled.cpu().numpy().astype(np.float64)


def refused(
    surrogate: Surrogate, bands: Bands, parameters: Mapping[str, float], prepared: Batch
) -> str:
    """Say why no band holds for a request, by its parameters or by its latents; else empty."""
    return out_of_ranges(surrogate, bands, parameters) or out_of_reach(surrogate, bands, prepared)


def out_of_ranges(surrogate: Surrogate, bands: Bands, parameters: Mapping[str, float]) -> str:
    """Say by which parameters a design lies outside of those that are known; else empty."""
    return outside(bands.ranges, space_of(surrogate), parameters)


def out_of_reach(surrogate: Surrogate, bands: Bands, prepared: Batch) -> str:
    """Say why no band holds for a request whose latents are like no training case's; else empty."""
    reach, latents = bands.reach, pooled_latents(surrogate, prepared)
    if reach is None or latents is None or len(latents) != len(reach.mean):
        return ""
    distance = reach.distance(latents)
    if distance <= reach.limit:
        return ""
    return (
        f"its latent state is {distance / reach.limit:.1f} times farther from those of the"
        " training cases than the calibration cases are"
    )


def _other_rollout(
    bands: Bands, values: np.ndarray, start_s: float | None, step_s: float | None
) -> str:
    """Say why quantities of a rollout have no band, if it is another one than was calibrated."""
    span = bands.span
    if span is None or start_s is None:
        return ""
    same = abs(span.start_s - start_s) <= TIME_TOLERANCE * (step_s or 1.0)
    if same and values.ndim == 3 and span.steps == len(values):
        return ""
    return f"quantities are calibrated for rollouts of {span.steps} steps from {span.start_s:g} s"
