"""Answer requests with a trained model: together where they can be, each on its own where not.

answers = answer([PredictRequest(points=[[1.0, 2.0], ...], ...)], surrogate, Limits())
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from courant.data.batch import Batch
from courant.prediction.surrogate import Surrogate
from courant.problems.problem import check_finite, collected_warnings
from courant.serving.requests import (
    MOST_SHOWN,
    DistanceField,
    Limits,
    Prediction,
    PredictRequest,
    Refusal,
    Unforeseen,
)
from simgen.errors import InputError

logger = logging.getLogger("courant.serving")


def answer(
    requests: Sequence[PredictRequest | Refusal], surrogate: Surrogate, limits: Limits
) -> list[Prediction | Refusal]:
    """Answer each request; a bad one does not affect the others.

    Requests of the same sizes go through the model together.
    """
    answers: list[Prediction | Refusal | None] = [None] * len(requests)
    prepared: dict[int, Batch] = {}
    told: dict[int, list[str]] = {}
    for number, request in enumerate(requests):
        if isinstance(request, Refusal):
            answers[number] = request
            continue
        with collected_warnings() as told[number]:
            try:
                prepared[number] = _prepare(request, surrogate, limits)
            except InputError as error:
                answers[number] = Refusal(detail=str(error)[:MOST_SHOWN])
            except Exception:
                logger.exception("a request could not be prepared")
                answers[number] = Unforeseen()
    for number, values in _predicted(prepared, surrogate).items():
        answers[number] = (
            Unforeseen()
            if values is None
            else _prediction(surrogate, values, prepared[number].num_steps, told[number])
        )
    return [given for given in answers if given is not None]


def _predicted(prepared: Mapping[int, Batch], surrogate: Surrogate) -> dict[int, np.ndarray | None]:
    """Predict all at once; each alone where that fails, and None for those that fail alone."""
    try:
        together = surrogate.predict_prepared(list(prepared.values()))
        return dict(zip(prepared, together, strict=True))
    except Exception:
        logger.exception("requests could not be answered together")
    found: dict[int, np.ndarray | None] = {}
    for number, each in prepared.items():
        try:
            (found[number],) = surrogate.predict_prepared([each])
        except Exception:
            logger.exception("a request could not be answered")
            found[number] = None
    return found


def in_parts(
    requests: Sequence[PredictRequest | Refusal], surrogate: Surrogate, limits: Limits
) -> Iterator[list[PredictRequest | Refusal]]:
    """Split requests, in order, such that the answers of a part are no larger than one may be.

    An answer in Python's numbers takes several times the memory of its text.
    """
    part: list[PredictRequest | Refusal] = []
    size = 0
    for request in requests:
        asked = 0 if isinstance(request, Refusal) else _point_steps(request, surrogate)
        if part and size + asked > limits.max_point_steps:
            yield part
            part, size = [], 0
        part.append(request)
        size += asked
    if part:
        yield part


def _prediction(
    surrogate: Surrogate, values: np.ndarray, steps: int, told: list[str]
) -> Prediction | Refusal:
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
            f"the request has {request.num_points} points, this server takes {limits.max_points} at"
            " a time"
        )
    steps = request.steps or surrogate.problem.num_steps
    if steps > limits.max_steps:
        raise InputError(f"steps = {steps}: this server takes {limits.max_steps} at most")
    size = _point_steps(request, surrogate)
    if size > limits.max_point_steps:
        raise InputError(
            f"{size // steps} points x {steps} steps are {size:,}, this server predicts"
            f" {limits.max_point_steps:,} at a time; ask for fewer steps, or for the points in"
            " parts (queries)"
        )


def _point_steps(request: PredictRequest, surrogate: Surrogate) -> int:
    """Return how many states at a point are asked for: the size of the answer."""
    wanted = len(request.points if request.queries is None else request.queries)
    return wanted * (request.steps or surrogate.problem.num_steps)


def _prepare(request: PredictRequest, surrogate: Surrogate, limits: Limits) -> Batch:
    _check_work(request, surrogate, limits)
    parts = {
        name: getattr(request, name)
        for name in request.model_fields_set
        if getattr(request, name) is not None
    }
    for name in ("points", "initial", "queries"):
        if name in parts:
            parts[name] = _array(parts[name], name)
    for name in ("distance", "query_distance"):
        if name in parts:
            field: DistanceField = parts[name]
            parts[name] = (
                _array(field.distance, f"{name}.distance"),
                _array(field.direction, f"{name}.direction"),
            )
    for name in ("given", "query_given"):
        if name in parts:
            parts[name] = {key: _array(of, f"{name} {key}") for key, of in parts[name].items()}
    return surrogate.prepare(**parts)


def _array(values: list[Any], name: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{name} has rows of different lengths") from error
