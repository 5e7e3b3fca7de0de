"""What a served model is asked and answers: typed, limited, in physical units; no server in here.

answers = answer([PredictRequest(points=[[1.0, 2.0], ...], initial=[[1.0, 0.0], ...], parameters={"radius": 2.0, ...})], surrogate)
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from courant.steady_surrogate import SteadySurrogate
from courant.surrogate import Surrogate
from courant.trained_model import Prepared
from simgen.errors import InputError

TRANSIENT_ONLY = ("initial", "queries", "query_distance", "steps")
STEADY_ONLY = ("boundary",)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(_Strict):
    """What one request may ask for."""

    max_points: int = Field(default=200_000, ge=1)
    """points, queries and boundary faces together"""
    max_steps: int = Field(default=200, ge=1)
    max_megabytes: float = Field(default=64.0, gt=0)
    """of its body"""


class DistanceField(_Strict):
    """To each of K patch kinds, at each point."""

    distance: list[list[float]]
    """(N, K) m"""
    direction: list[list[list[float]]]
    """(N, K, 3), unit vectors"""

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.distance), np.asarray(self.direction)


class PredictRequest(_Strict):
    """One case, as `predict` of the trained model takes it: `GET /model` says which of the optional parts it needs."""

    points: list[list[float]] = Field(min_length=1)
    """(N, 2 or 3) m"""
    parameters: dict[str, float] | None = None
    """the family's design parameters, by name"""
    distance: DistanceField | None = None
    """at the points; a transient model works it out from the parameters where it is not given"""
    initial: list[list[float]] | None = None
    """(N, C), transient: the state at the points"""
    queries: list[list[float]] | None = None
    """(M, 2 or 3) m, transient: where to predict, by default at the points"""
    query_distance: DistanceField | None = None
    steps: int | None = Field(default=None, ge=1)
    """transient: rollout steps"""
    boundary: dict[str, Any] | None = None
    """steady: {"points": (B, 3) m, "patch": (B,) kinds, a prescribed field: (B, components)}"""

    @property
    def num_points(self) -> int:
        """Of all clouds together."""
        boundary = (self.boundary or {}).get("points") or []
        return len(self.points) + len(self.queries or []) + (len(boundary) if isinstance(boundary, list) else 0)


class Prediction(BaseModel):
    """The answer: `values` in the order of `channels`."""

    channels: list[str]
    values: list[Any]
    """(T, M, C) transient, (M, C) steady"""
    times_s: list[float] | None
    """(T,) after the initial state; None in steady models"""
    warnings: list[str]
    """what lies outside the training data, so that the prediction is extrapolated"""


class ModelCard(BaseModel):
    """What a served model is."""

    run: str
    family: str
    dataset: str
    version: str
    channels: list[str]
    parameters: list[dict[str, Any]]
    """name, unit, low, high, description"""
    patch_kinds: list[str]
    step_s: float | None
    """between predicted states; None in steady models"""
    needs: list[str]
    """the parts of a request that this model cannot do without"""
    limits: Limits


@dataclass(frozen=True)
class Refusal:
    """A request that cannot be answered, and why, in one line."""

    reason: str


def describe(surrogate: Surrogate | SteadySurrogate, limits: Limits) -> ModelCard:
    steady = isinstance(surrogate, SteadySurrogate)
    return ModelCard(
        run=surrogate.url.rsplit("/", 1)[-1],
        family=surrogate.dataset["family"],
        dataset=surrogate.dataset["url"],
        version=surrogate.dataset["version"],
        channels=list(surrogate.channels),
        parameters=surrogate.dataset["parameters"],
        patch_kinds=list(surrogate.normaliser.patch_kinds),
        step_s=None if isinstance(surrogate, SteadySurrogate) else surrogate.step_s,
        needs=["points", "parameters", "distance", "boundary"]
        if steady
        else ["points", "initial", "parameters or distance"],
        limits=limits,
    )


def answer(
    requests: Sequence[PredictRequest], surrogate: Surrogate | SteadySurrogate, limits: Limits
) -> list[Prediction | Refusal]:
    """An answer to each request; those of the same sizes go through the model together, and a bad one spoils no other."""
    answers: list[Prediction | Refusal | None] = [None] * len(requests)
    prepared: dict[int, Prepared] = {}
    told: dict[int, list[str]] = {}
    for number, request in enumerate(requests):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                prepared[number] = _prepare(request, surrogate, limits)
            except InputError as error:
                answers[number] = Refusal(str(error))
        told[number] = [str(warning.message) for warning in caught]
    for number, values in zip(prepared, surrogate.predict_prepared(list(prepared.values())), strict=True):
        steps = prepared[number].steps
        times = None if isinstance(surrogate, SteadySurrogate) else surrogate.times(0.0, steps).tolist()
        answers[number] = Prediction(
            channels=list(surrogate.channels), values=values.tolist(), times_s=times, warnings=told[number]
        )
    return [given for given in answers if given is not None]


def _prepare(request: PredictRequest, surrogate: Surrogate | SteadySurrogate, limits: Limits) -> Prepared:
    if request.num_points > limits.max_points:
        raise InputError(
            f"the request has {request.num_points} points, this server takes {limits.max_points} at a time"
        )
    if (request.steps or 1) > limits.max_steps:
        raise InputError(f"steps = {request.steps}: this server takes {limits.max_steps} at most")
    steady = isinstance(surrogate, SteadySurrogate)
    foreign = [name for name in (TRANSIENT_ONLY if steady else STEADY_ONLY) if getattr(request, name) is not None]
    if foreign:
        raise InputError(f"a {'steady' if steady else 'transient'} model takes no {', '.join(foreign)}")
    if not steady and request.initial is None:
        raise InputError(f"give initial, the state ({', '.join(surrogate.channels)}) at each point")
    parts = {name: getattr(request, name) for name in request.model_fields_set if getattr(request, name) is not None}
    for name in ("points", "initial", "queries"):
        if name in parts:
            parts[name] = _array(parts[name], name)
    for name in ("distance", "query_distance"):
        if name in parts:
            given: DistanceField = parts[name]
            parts[name] = (_array(given.distance, f"{name}.distance"), _array(given.direction, f"{name}.direction"))
    return surrogate.prepare(**parts)


def _array(values: list[Any], name: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{name} has rows of different lengths") from error
