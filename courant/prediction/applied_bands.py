"""Put the bands of a calibrated run around one prediction, or say why none holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from courant.field_model import Encodes
from courant.prediction.bands import LEVEL, Bands, DesignBands, least_cases
from courant.prediction.guards.ranges import outside
from courant.prediction.predictor import Predictor
from courant.prediction.prepared import Prepared
from courant.problems.transient import TIME_TOLERANCE
from simgen.design_space import Parameter, scaled

if TYPE_CHECKING:
    from simgen.store.access.stored_case import StoredCase


@dataclass(frozen=True)
class Answer:
    """A prediction in physical units with what it was made from."""

    prepared: Prepared
    points: np.ndarray
    """(N, 3) m"""
    values: np.ndarray
    """(T, N, C) of a transient model, (N, C) of a steady one"""
    parameters: Mapping[str, float]
    start_s: float | None = None
    """Of a transient model's rollout"""


def apply_bands(
    surrogate: Predictor, bands: Bands, answer: Answer, level: float = LEVEL
) -> DesignBands:
    """Return the bands of a prediction; none where nothing like it was trained on or calibrated."""
    design = scaled_design(surrogate, answer.parameters)
    unsolved = bands.outcomes.unsolved_near(design)
    refusal = refused(surrogate, bands, answer.parameters, answer.prepared)
    if not refusal and len(bands.cases) < least_cases(level):
        refusal = (
            f"a level of {level:.0%} needs {least_cases(level)} calibration cases, the run has"
            f" {len(bands.cases)}"
        )
    by_regression = bands.by_regression(design, level)
    if refusal:
        return DesignBands(level, {}, None, unsolved, refusal, refusal, by_regression)
    no_quantities = _other_rollout(bands, answer, surrogate.step_s)
    quantities = (
        {}
        if no_quantities
        else {name: bands.quantity(name, design, level) for name in bands.quantities}
    )
    field = None
    steps = answer.values.reshape(-1, *answer.values.shape[-2:])
    calibrated = len(bands.field.scale.growth)
    if len(steps) <= calibrated:
        normaliser = surrogate.normaliser.at(answer.parameters)
        scale = bands.field.scale.at(answer.points, normaliser.standardise(steps))
        scale = scale * np.asarray(normaliser.std)
        field = (bands.over_scale(design, level) * scale).reshape(answer.values.shape)
    else:
        refusal = f"bands are calibrated for {calibrated} steps, {len(steps)} were asked for"
    return DesignBands(level, quantities, field, unsolved, refusal, no_quantities, by_regression)


def bands_of_case(
    surrogate: Predictor,
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
    answer = Answer(prepared, np.asarray(case.points), values, case.parameters, begin)
    return apply_bands(surrogate, surrogate.bands, answer, level)


def scaled_design(surrogate: Predictor, parameters: Mapping[str, float]) -> np.ndarray:
    """Return (P,) design parameters of the training's dataset, -1..1 over their ranges."""
    return scaled(space_of(surrogate), parameters)


def space_of(surrogate: Predictor) -> list[Parameter]:
    """Return the design parameters of the training's dataset."""
    return [Parameter(**each) for each in surrogate.dataset["parameters"]]


def pooled_latents(surrogate: Predictor, prepared: Prepared) -> np.ndarray | None:
    """Return the mean and the deviation over anchors of a request's latents, (2 d,).

    None for a model without latents.
    """
    if not isinstance(surrogate.model, Encodes):
        return None
    inputs, _ = prepared.batch.for_model(surrogate.model.config)
    with torch.inference_mode():
        latents = surrogate.model.encode(inputs)[0].float()
    pooled = torch.cat([latents.mean(dim=0), latents.std(dim=0, unbiased=False)])
    return pooled.cpu().numpy().astype(np.float64)


def refused(
    surrogate: Predictor, bands: Bands, parameters: Mapping[str, float], prepared: Prepared
) -> str:
    """Say why no band holds for a request, by its parameters or by its latents; else empty."""
    return out_of_ranges(surrogate, bands, parameters) or out_of_reach(surrogate, bands, prepared)


def out_of_ranges(surrogate: Predictor, bands: Bands, parameters: Mapping[str, float]) -> str:
    """Say by which parameters a design lies outside of those that are known; else empty."""
    return outside(bands.ranges, space_of(surrogate), parameters)


def out_of_reach(surrogate: Predictor, bands: Bands, prepared: Prepared) -> str:
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


def _other_rollout(bands: Bands, answer: Answer, step_s: float | None) -> str:
    """Say why quantities of a rollout have no band, if it is another one than was calibrated."""
    span = bands.span
    if span is None or answer.start_s is None:
        return ""
    same = abs(span.start_s - answer.start_s) <= TIME_TOLERANCE * (step_s or 1.0)
    if same and answer.values.ndim == 3 and span.steps == len(answer.values):
        return ""
    return f"quantities are calibrated for rollouts of {span.steps} steps from {span.start_s:g} s"
