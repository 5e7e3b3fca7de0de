"""What a served model is asked and answers: typed, limited, in physical units; no server in here.

answers = answer([PredictRequest(points=[[1.0, 2.0], ...], initial=[[1.0, 0.0], ...], parameters={"radius": 2.0, ...})], surrogate)
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from courant.prediction.surrogate import Prepared, Surrogate, check_finite
from simgen.errors import InputError

VALUES_PER_POINT = 64
"""Numbers and brackets that a request may spend on each point that it may have: coordinates, state, distance field."""
_MOST_SHOWN = 500

# One wrong row ends the check: a request may have a million of them.
_Row = Annotated[list[float], Field(fail_fast=True)]
Rows = Annotated[list[_Row], Field(fail_fast=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(_Strict):
    """What one request may ask for."""

    max_points: int = Field(default=200_000, ge=1)
    """points, queries and boundary faces together"""
    max_steps: int = Field(default=200, ge=1)
    max_megabytes: float = Field(default=64.0, gt=0)
    """of its body"""
    max_point_steps: int = Field(default=2_000_000, ge=1)
    """points where to predict, times rollout steps: the size of the answer, and the time that it takes"""


class DistanceField(_Strict):
    """To each of K patch kinds, at each point."""

    distance: Rows
    """(N, K) m"""
    direction: Annotated[list[Rows], Field(fail_fast=True)]
    """(N, K, 3), unit vectors"""

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.distance), np.asarray(self.direction)


class PredictRequest(_Strict):
    """One case, as `predict` of the trained model takes it: `GET /model` says which of the optional parts it needs."""

    points: Rows = Field(min_length=1)
    """(N, 2 or 3) m"""
    parameters: dict[str, float] | None = None
    """the family's design parameters, by name"""
    distance: DistanceField | None = None
    """at the points; a transient model works it out from the parameters where it is not given"""
    initial: Rows | None = None
    """(N, C), transient: the state at the points"""
    queries: Rows | None = None
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


class Refusal(BaseModel):
    """A request that cannot be answered, and why, in one line."""

    detail: str


def describe(surrogate: Surrogate, limits: Limits) -> ModelCard:
    return ModelCard(
        run=surrogate.url.rsplit("/", 1)[-1],
        family=surrogate.dataset["family"],
        # The name alone: where it lies on this machine is nobody's business.
        dataset=surrogate.dataset["url"].rstrip("/").rsplit("/", 1)[-1],
        version=surrogate.dataset["version"],
        channels=list(surrogate.channels),
        parameters=surrogate.dataset["parameters"],
        patch_kinds=list(surrogate.normaliser.patch_kinds),
        step_s=surrogate.step_s,
        needs=list(surrogate.problem.needs),
        limits=limits,
    )


def parse_request(body: bytes, limits: Limits) -> PredictRequest | Refusal:
    """A request from JSON, within bounds of memory; what is wrong with it, at its first wrong value, otherwise."""
    most = VALUES_PER_POINT * max(limits.max_points, 1000)
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > most:
        return Refusal(detail=f"the request has more than {most:,} values")
    try:
        return PredictRequest.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:100]
        return Refusal(detail=f"{place}: {first['msg']}"[:_MOST_SHOWN])
    except RecursionError:
        return Refusal(detail="the request is nested too deeply")
    except ValueError as error:
        return Refusal(detail=f"the request is not valid JSON ({error})"[:_MOST_SHOWN])


def answer(
    requests: Sequence[PredictRequest | Refusal], surrogate: Surrogate, limits: Limits
) -> list[Prediction | Refusal]:
    """An answer to each request; those of the same sizes go through the model together, and a bad one spoils no other."""
    answers: list[Prediction | Refusal | None] = [None] * len(requests)
    prepared: dict[int, Prepared] = {}
    told: dict[int, list[str]] = {}
    for number, request in enumerate(requests):
        if isinstance(request, Refusal):
            answers[number] = request
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                prepared[number] = _prepare(request, surrogate, limits)
            except InputError as error:
                answers[number] = Refusal(detail=str(error)[:_MOST_SHOWN])
        # The predictor's own; numpy's of an overflow say nothing to a client.
        told[number] = [str(warning.message) for warning in caught if warning.category is UserWarning]
    for number, values in zip(prepared, surrogate.predict_prepared(list(prepared.values())), strict=True):
        answers[number] = _prediction(surrogate, values, prepared[number].steps, told[number])
    return [given for given in answers if given is not None]


def _prediction(surrogate: Surrogate, values: np.ndarray, steps: int, told: list[str]) -> Prediction | Refusal:
    try:
        check_finite(values)
    except InputError as error:
        return Refusal(detail=str(error))
    times = surrogate.problem.times(0.0, steps)
    return Prediction(
        channels=list(surrogate.channels),
        values=values.tolist(),
        times_s=None if times is None else times.tolist(),
        warnings=told,
    )


def _check_work(request: PredictRequest, surrogate: Surrogate, limits: Limits) -> None:
    if request.num_points > limits.max_points:
        raise InputError(
            f"the request has {request.num_points} points, this server takes {limits.max_points} at a time"
        )
    steps = request.steps or surrogate.problem.num_steps
    if steps > limits.max_steps:
        raise InputError(f"steps = {steps}: this server takes {limits.max_steps} at most")
    wanted = len(request.points if request.queries is None else request.queries)
    if wanted * steps > limits.max_point_steps:
        raise InputError(
            f"{wanted} points x {steps} steps are {wanted * steps:,}, this server predicts {limits.max_point_steps:,} "
            "at a time; ask for fewer steps, or for the points in parts (queries)"
        )


def _prepare(request: PredictRequest, surrogate: Surrogate, limits: Limits) -> Prepared:
    _check_work(request, surrogate, limits)
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
