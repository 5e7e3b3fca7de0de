"""Requests of `POST /predict` and their answers: typed, limited, in physical units.

    answers = answer([parse_request(body, limits), ...], surrogate, limits)

Requests of the same sizes go through the model together; a bad one does not affect the others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
)

from courant.data.batch import Batch
from courant.prediction.design import family_with_quantities
from courant.prediction.surrogate import Surrogate
from courant.problems.problem import check_finite, collected_warnings
from simgen.errors import InputError

logger = logging.getLogger("courant.serving")


VALUES_PER_POINT = 64
"""Numbers and brackets that a request may hold per allowed point: coordinates, state, distance
field
"""
MOST_SHOWN = 500
Request = TypeVar("Request", bound=BaseModel)

# One wrong row ends the check: a request may have a million of them.
_Row = Annotated[list[float], Field(fail_fast=True)]
Rows = Annotated[list[_Row], Field(fail_fast=True)]


def _depth(value: Any) -> str:
    """Tell one state from several by the nesting of the first number."""
    row = value[0] if isinstance(value, list) and value else None
    return _SEVERAL if isinstance(row, list) and row and isinstance(row[0], list) else _ONE


_ONE, _SEVERAL = "one state", "several states"
States = Annotated[
    Annotated[Rows, Tag(_ONE)] | Annotated[list[Rows], Field(fail_fast=True), Tag(_SEVERAL)],
    Discriminator(_depth),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(_Strict):
    """The limits of one request."""

    max_points: int = Field(default=200_000, ge=1)
    """points, queries and boundary faces together"""
    max_steps: int = Field(default=200, ge=1)
    max_megabytes: float = Field(default=64.0, gt=0, allow_inf_nan=False)
    """of its body"""
    max_point_steps: int = Field(default=2_000_000, ge=1)
    """points times rollout steps: the size of the answer, and its time"""


class DistanceField(_Strict):
    """Distance to each of K patch kinds, at each point."""

    distance: Rows
    """(N, K) m"""
    direction: Annotated[list[Rows], Field(fail_fast=True)]
    """(N, K, 3), unit vectors"""

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.distance), np.asarray(self.direction)


class PredictRequest(_Strict):
    """One case, as `predict` of the trained model takes it.

    `GET /model` says which of the optional parts it needs.
    """

    points: Rows = Field(min_length=1)
    """(N, 2 or 3) m"""
    parameters: dict[str, float] | None = None
    """the family's design parameters, by name"""
    distance: DistanceField | None = None
    """at the points; by default a transient model computes it from the parameters"""
    initial: States | None = None
    """(N, C), transient: the state at the points, or (I, N, C) for a model that starts from I > 1
    states, the oldest first
    """
    queries: Rows | None = None
    """(M, 2 or 3) m, transient: where to predict, by default at the points"""
    query_distance: DistanceField | None = None
    steps: int | None = Field(default=None, ge=1)
    """transient: rollout steps"""
    boundary: dict[str, Any] | None = None
    """steady: {"points": (B, 3) m, "patch": (B,) kinds, a prescribed field: (B, components)}"""
    given: dict[str, Rows] | None = None
    """the given fields at the points, by name: (N, components)"""
    query_given: dict[str, Rows] | None = None

    @property
    def num_points(self) -> int:
        """Number of points of all clouds together."""
        boundary = (self.boundary or {}).get("points") or []
        return (
            len(self.points)
            + len(self.queries or [])
            + (len(boundary) if isinstance(boundary, list) else 0)
        )


class Prediction(BaseModel):
    """The answer: `values` in the order of `channels`."""

    channels: list[str]
    values: list[Any]
    """(T, M, C) transient, (M, C) steady"""
    times_s: list[float] | None
    """(T,) after the initial state; None in steady models"""
    warnings: list[str]
    """inputs outside the training data, for which the prediction is extrapolated"""


class ModelCard(BaseModel):
    """Description of a served model."""

    run: str
    family: str
    dataset: str
    version: str
    channels: list[str]
    parameters: list[dict[str, Any]]
    """name, unit, low, high, description"""
    quantities: list[dict[str, str]] = []
    """name, unit and meaning of what the family declares"""
    settings: dict[str, float] = {}
    """solver settings of its dataset, where the run has them on record"""
    patch_kinds: list[str]
    step_s: float | None
    """between predicted states; None in steady models"""
    input_steps: int
    """I, the states in time that a prediction starts from; 0 in steady models"""
    needs: list[str]
    """the required parts of a request to this model"""
    limits: Limits


class Refusal(BaseModel):
    """A request that cannot be answered, with the reason in one line."""

    status: ClassVar[int] = 422
    detail: str

    @field_validator("detail")
    @classmethod
    def _as_text(cls, detail: str) -> str:
        """Replace what JSON may hold and UTF-8 may not: halves of surrogate pairs."""
        return detail.encode("utf-8", "replace").decode()


class ServerFault(Refusal):
    """A valid request that this server cannot answer as it is: another one, or later, may."""

    status: ClassVar[int] = 503


class Unforeseen(Refusal):
    """A request on which the server failed; its log says why."""

    status: ClassVar[int] = 500
    detail: str = "the server failed on this request; its log says why"


def describe(surrogate: Surrogate, limits: Limits) -> ModelCard:
    family = family_with_quantities(surrogate.dataset["family"])
    return ModelCard(
        run=surrogate.url.rsplit("/", 1)[-1],
        family=surrogate.dataset["family"],
        # The name alone: the path on this machine is not for clients.
        dataset=surrogate.dataset["url"].rstrip("/").rsplit("/", 1)[-1],
        version=surrogate.dataset["version"],
        channels=list(surrogate.channels),
        parameters=surrogate.dataset["parameters"],
        quantities=[
            {"name": each.name, "unit": each.unit, "meaning": each.meaning}
            for each in (family.quantities if family else ())
        ],
        settings=surrogate.dataset.get("settings") or {},
        patch_kinds=list(surrogate.normaliser.patch_kinds),
        step_s=surrogate.step_s,
        input_steps=surrogate.problem.input_steps,
        needs=list(surrogate.problem.needs),
        limits=limits,
    )


def parse_request(body: bytes, limits: Limits) -> PredictRequest | Refusal:
    """Parse a request from JSON within bounds of memory.

    Otherwise the refusal names its first wrong value.
    """
    most = VALUES_PER_POINT * max(limits.max_points, 1000)
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > most:
        return Refusal(detail=f"the request has more than {most:,} values")
    return read_json(body, PredictRequest)


def read_json(body: bytes, kind: type[Request]) -> Request | Refusal:
    """Read a request of this kind; otherwise the refusal names its first wrong value."""
    try:
        return kind.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(each) for each in first["loc"] if each not in (_ONE, _SEVERAL))[:100]
        return Refusal(detail=f"{place}: {first['msg']}"[:MOST_SHOWN])
    except RecursionError:
        return Refusal(detail="the request is JSON that is nested too deeply")
    except ValueError as error:
        return Refusal(detail=f"the request is not valid JSON ({error})"[:MOST_SHOWN])


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
        # Values that overflow are an answer of their own, of `check_finite`.
        with collected_warnings() as told[number], np.errstate(over="ignore", invalid="ignore"):
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
