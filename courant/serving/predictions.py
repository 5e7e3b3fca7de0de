"""Requests of `POST /predict` and their answers: typed, limited, in physical units.

status, body = answer(body, surrogate, limits)
"""

import json
import logging
from typing import Annotated, Any, TypeVar

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, to_hex
from pydantic import BaseModel, Field, ValidationError

from courant.data.batch import Batch
from courant.data.normalisation import Normaliser
from courant.prediction.surrogate import Surrogate
from courant.problems.problem import check_finite, collected_warnings
from simgen.errors import InputError
from simgen.publish.colours import ERRORS, SIGNED, VALUES, colour_map
from simgen.publish.figures import spanning
from simgen.store.read import Dataset

logger = logging.getLogger("courant.serving")

#: Numbers and brackets of a request per allowed point, and characters of an error, which may quote.
VALUES_PER_POINT, MOST_SHOWN = 64, 500
NEAR_ZERO = 0.1  # of the high end, below which colours start at zero
Answer = tuple[int, bytes]  # HTTP status, and a body of JSON
Request = TypeVar("Request", bound=BaseModel)

# One wrong row ends the check: a request may have a million of them.
_Row = Annotated[list[float], Field(fail_fast=True)]
Rows = Annotated[list[_Row], Field(fail_fast=True)]


class Strict(BaseModel, extra="forbid"):
    """A part of a request; other keys are errors."""


class Limits(Strict):
    """The limits of one request."""

    max_points: int = Field(default=200_000, ge=1)  # points, queries and boundary faces together
    max_steps: int = Field(default=200, ge=1)
    max_megabytes: float = Field(default=64.0, gt=0, allow_inf_nan=False)
    max_point_steps: int = Field(default=2_000_000, ge=1)  # points x steps: the answer's size


class DistanceField(Strict):
    """Distance to each of K patch kinds, at each point."""

    distance: Rows  # (N, K) m, with unit vectors (N, K, 3)
    direction: Annotated[list[Rows], Field(fail_fast=True)]


class PredictRequest(Strict):
    """One case, as `predict` takes it; `GET /model` lists the optional parts that it needs."""

    points: Rows = Field(min_length=1)
    parameters: dict[str, float] | None = None
    distance: DistanceField | None = None  # at the points; a transient model computes it by default
    initial: list[Any] | None = None
    """(N, C), transient: the state at the points, or (I, N, C), I > 1 states, the oldest first"""
    queries: Rows | None = None
    query_distance: DistanceField | None = None
    steps: int | None = Field(default=None, ge=1)
    boundary: dict[str, Any] | None = None
    """steady: {"points": (B, 3) m, "patch": (B,) kinds, a prescribed field: (B, components)}"""
    given: dict[str, Rows] | None = None
    query_given: dict[str, Rows] | None = None


class Prediction(BaseModel):
    """The answer: `values` in the order of `channels`."""

    channels: list[str]
    values: list[Any]  # (T, M, C) transient, (M, C) steady
    times_s: list[float] | None  # (T,) after the initial state; None in steady models
    warnings: list[str]


class ShownField(BaseModel):
    """What a picture shows: a channel, or the magnitude of a vector's channels."""

    name: str
    unit: str
    columns: list[int]
    limits: tuple[float, float]  # the ends of the colours, the same for all designs
    colours: list[str]  # equally far apart: between the limits, or of `signed` fields around zero
    signed: bool


class ModelCard(BaseModel):
    """Description of a served model."""

    run: str
    family: str
    dataset: str
    version: str
    channels: list[str]
    fields: list[ShownField] = []
    difference_colours: list[str] = []
    parameters: list[dict[str, Any]]  # name, unit, low, high, description
    quantities: list[dict[str, str]] = []  # name, unit, meaning
    settings: dict[str, float] = {}  # of the solver
    patch_kinds: list[str]
    step_s: float | None  # between predicted states; None in steady models
    input_steps: int  # I, the states in time that a prediction starts from; 0 in steady models
    num_steps: int = 1  # of a rollout
    needs: list[str]  # the required parts of a request
    limits: Limits


class RequestError(Exception):
    """A request that cannot be answered: the HTTP status, and the reason in one line."""

    def __init__(self, detail: str, status: int = 422) -> None:
        # JSON may hold what UTF-8 may not: halves of surrogate pairs.
        self.detail = detail[:MOST_SHOWN].encode("utf-8", "replace").decode()
        self.status = status
        super().__init__(self.detail)

    @property
    def answer(self) -> Answer:
        return self.status, json.dumps({"detail": self.detail}).encode()


FAULT = RequestError("the server failed on this request; its log has the reason", 500)


def describe(surrogate: Surrogate, limits: Limits, trained: Dataset | None) -> ModelCard:
    dataset, of_dataset = surrogate.dataset, ("family", "version", "parameters", "quantities")
    return ModelCard(
        **{name: dataset[name] for name in (*of_dataset, "settings")},
        run=surrogate.url.rsplit("/", 1)[-1],
        # The name alone: the path on this machine is not for clients.
        dataset=dataset["url"].rstrip("/").rsplit("/", 1)[-1],
        channels=list(surrogate.channels),
        fields=shown_fields(surrogate.normaliser, trained),
        difference_colours=_colours(ERRORS),
        patch_kinds=list(surrogate.normaliser.patch_kinds),
        step_s=surrogate.step_s,
        input_steps=surrogate.problem.input_steps,
        num_steps=surrogate.problem.steps(None),
        needs=list(surrogate.problem.needs),
        limits=limits,
    )


def shown_fields(normaliser: Normaliser, trained: Dataset | None) -> list[ShownField]:
    """Return the magnitudes of vectors, then the channels, in colours that `colour_map` gives.

    Colours hold all values of some training cases but the outermost half percent at either end, or
    without these 90 % of a normal distribution.
    """
    channels, usual = normaliser.channels, normaliser.usual_ends(trained)
    values = np.array(usual).T
    if trained is not None:
        of = trained.usual_values
        values = np.stack([of[each.field][:, each.column] for each in channels], axis=1)

    def shown(name: str, columns: list[int], colours: Colormap) -> ShownField:
        is_vector, parts = len(columns) > 1, values[:, columns]
        low, high = spanning(np.linalg.norm(parts, axis=1) if is_vector else parts[:, 0])
        return ShownField(
            name=name,
            unit=channels[columns[0]].unit,
            columns=columns,
            limits=(0.0 if is_vector or 0 <= low <= NEAR_ZERO * high else low, high),
            colours=_colours(colours),
            signed=colours is SIGNED,
        )

    magnitudes = []
    for field, columns in normaliser.vectors.items():
        parts = ", ".join(channels[n].component for n in columns)
        name = f"|{field}|{'' if len(columns) == normaliser.dimension else f' of {parts}'}"
        if len(columns) > 1:
            magnitudes.append(shown(name, list(columns), colormaps[VALUES]))
    return magnitudes + [
        shown(each.name, [n], colour_map(*usual[n])) for n, each in enumerate(channels)
    ]


def _colours(of: Colormap) -> list[str]:
    return [to_hex(each) for each in of(np.linspace(0, 1, 33))]


def parse_request(body: bytes, limits: Limits) -> PredictRequest:
    """Parse a request within bounds of memory; RequestError names its first wrong value."""
    most = VALUES_PER_POINT * max(limits.max_points, 1000)
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > most:
        raise RequestError(f"the request has more than {most:,} values")
    return read_json(body, PredictRequest)


def read_json(body: bytes, kind: type[Request], max_bytes: int | None = None) -> Request:
    """Read a request of this kind; RequestError names its first wrong value."""
    if max_bytes is not None and len(body) > max_bytes:
        raise RequestError(f"the request has more than {max_bytes:,} bytes")
    try:
        return kind.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:100]
        raise RequestError(f"{place}: {first['msg']}") from None
    except RecursionError:
        raise RequestError("the request is JSON that is nested too deeply") from None
    except ValueError as error:
        raise RequestError(f"the request is not valid JSON ({error})") from None


def answer(body: bytes, surrogate: Surrogate, limits: Limits) -> Answer:
    """Answer a request; an error of this server is a fault without details, and in its log."""
    # Values that overflow are an answer of their own, of `check_finite`.
    with collected_warnings() as warned, np.errstate(over="ignore", invalid="ignore"):
        try:
            prepared = _prepare(parse_request(body, limits), surrogate, limits)
            values = check_finite(surrogate.predict_prepared(prepared))
        except (InputError, RequestError) as error:
            return RequestError(str(error)).answer
        except Exception:
            logger.exception("a request could not be answered")
            return FAULT.answer
    times = surrogate.problem.times(0.0, prepared.num_steps)
    found = Prediction(
        channels=list(surrogate.channels),
        values=values.tolist(),
        times_s=None if times is None else times.tolist(),
        warnings=warned,
    )
    return 200, found.model_dump_json().encode()


def _prepare(request: PredictRequest, surrogate: Surrogate, limits: Limits) -> Batch:
    """Check the work that a request asks for, and return its batch of one."""
    faces = (request.boundary or {}).get("points") or []
    num_points = len(request.points) + len(request.queries or [])
    num_points += len(faces) if isinstance(faces, list) else 0
    if num_points > limits.max_points:
        raise InputError(
            f"the request has {num_points} points, this server takes {limits.max_points} at a time"
        )
    steps = request.steps or surrogate.problem.num_steps
    if steps > limits.max_steps:
        raise InputError(f"steps = {steps}: this server takes {limits.max_steps} at most")
    wanted = len(request.points if request.queries is None else request.queries)
    if wanted * steps > limits.max_point_steps:
        raise InputError(
            f"{wanted} points x {steps} steps are {wanted * steps:,}, this server predicts"
            f" {limits.max_point_steps:,} at a time; ask for fewer steps, or for the points in"
            " parts (queries)"
        )
    parts = {name: getattr(request, name) for name in request.model_fields_set}
    for name, value in parts.items():
        if isinstance(value, DistanceField):
            parts[name] = (value.distance, value.direction)
    return surrogate.prepare(**parts)
