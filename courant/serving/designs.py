"""Answer requests for a design: predicted where nobody has solved it, and the nearest solved ones.

The server meshes a design that is predicted. Of the run's dataset, which is opened once, the table
of designs alone is read; a dataset that cannot be read is reported in one sentence, because a run
also predicts without it.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from pydantic import BaseModel, ConfigDict, FiniteFloat

import simgen
from courant.prediction.bands import DesignBands
from courant.prediction.design import PredictedDesign, TooLargeError, predict_design
from courant.prediction.surrogate import NotFiniteError, Surrogate
from courant.problems.problem import collected_warnings
from courant.serving.predictions import MOST_SHOWN, Limits, Refusal, Request, ServerFault, read_json
from simgen.cases import get_family
from simgen.design_space import scaled
from simgen.errors import InputError, SimgenError
from simgen.solving.unsolved import UnmeshableError
from simgen.store.read import Dataset, StoredCase

logger = logging.getLogger("courant.serving")


MAX_BODY = 10_000
"""Bytes; a design is a handful of numbers"""


class DesignRequest(BaseModel):
    """A design within the model's design space; `GET /model` lists the parameters."""

    model_config = ConfigDict(extra="forbid")
    parameters: dict[str, FiniteFloat]
    """by name"""


class DesignSeconds(BaseModel):
    """The server's wall time."""

    meshing: float
    """that of reading it, where the geometry is known"""
    prediction: float


class DesignBandsAnswer(BaseModel):
    """Half-widths of bands that hold with the probability `level`."""

    level: float
    quantities: dict[str, float]
    """by quantity, in its unit"""
    values: list[list[float]] | None
    """(N, C), around all values at once; null where no band holds"""
    fine: dict[str, tuple[float, float]]
    """by quantity, where it would be on an infinitely fine mesh, but for the model's error"""
    by_regression: dict[str, tuple[float, float]]
    """value and half-width by quantity, from the design parameters alone, without the model"""
    fine_by_regression: dict[str, tuple[float, float]]
    """where values by regression would be on an infinitely fine mesh, but for their own error"""
    refusal: str
    """why no band holds; else empty"""
    unsolved: float
    """share of the designs near this one that had no accepted solution"""


class DesignAnswer(BaseModel):
    """A predicted design, on the cells of its mesh."""

    channels: list[str]
    points: list[list[float]]
    """(N, 3) m, the cells' centres"""
    volumes: list[float]
    """(N,) m3"""
    values: list[list[float]]
    """(N, C), in the order of `channels`"""
    quantities: dict[str, float | None]
    """quantities of interest; null where the fields do not tell one"""
    not_predicted: dict[str, str]
    """the family's other quantities, with the reason"""
    bands: DesignBandsAnswer | None
    """bands of error; null where the model is not calibrated"""
    known_geometry: bool
    """whether this design was meshed before"""
    seconds: DesignSeconds
    warnings: list[str]
    """what is unlike the training data, so that the prediction is extrapolated"""


def answer_design(body: bytes, surrogate: Surrogate, limits: Limits) -> DesignAnswer | Refusal:
    """Mesh and predict the design of a request."""
    request = read_design(body, DesignRequest)
    if isinstance(request, Refusal):
        return request
    found = predicted(request.parameters, surrogate, limits)
    return found if isinstance(found, Refusal) else _answer(found, surrogate)


def predicted(
    parameters: Mapping[str, float],
    surrogate: Surrogate,
    limits: Limits,
    start_of: StoredCase | None = None,
) -> PredictedDesign | Refusal:
    """Mesh and predict a design within the design space.

    A transient model starts from the state of the case `start_of`.
    """
    if surrogate.step_s is not None and start_of is None:
        return Refusal(
            detail="a transient model needs a state to start from: POST /predict takes one, courant"
            " predict --design --from-solver has the solver make one, and courant explore starts"
            " from the nearest solved design"
        )
    # Never the dataset, which a run's author names and this machine's credentials open.
    if not surrogate.dataset.get("settings"):
        return Refusal(
            detail="the run does not say with which settings its designs are meshed: it is of an"
            " older release; train it again"
        )
    try:
        get_family(surrogate.dataset["family"]).design_space.check(parameters)
    except InputError as error:
        return Refusal(detail=str(error)[:MOST_SHOWN])
    try:
        with collected_warnings() as told:
            found = predict_design(
                surrogate, parameters, max_points=limits.max_points, start_of=start_of
            )
        return replace(found, warnings=tuple(told))
    except (TooLargeError, NotFiniteError) as error:
        return Refusal(detail=str(error))
    except UnmeshableError:  # the client learns nothing of this machine, its log has it all
        logger.exception("a design could not be meshed")
        return Refusal(detail="the design could not be meshed; the log says why")
    except SimgenError:
        logger.exception("a design could not be predicted")
        return ServerFault(detail="this server cannot mesh and predict designs; its log says why")


def _answer(found: PredictedDesign, surrogate: Surrogate) -> DesignAnswer:
    volumes = found.cloud.volumes
    return DesignAnswer(
        channels=list(surrogate.channels),
        points=found.cloud.points.tolist(),
        volumes=[] if volumes is None else volumes.tolist(),
        values=found.values.tolist(),
        quantities=finite(found.quantities),
        not_predicted=dict(found.not_predicted),
        bands=None if found.bands is None else bands_answer(found, found.bands, found.bands.field),
        known_geometry=found.known_geometry,
        seconds=DesignSeconds(meshing=found.seconds.meshing, prediction=found.seconds.prediction),
        warnings=list(found.warnings),
    )


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers for JSON, which has none for infinity."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def bands_answer(
    found: PredictedDesign, bands: DesignBands, field: np.ndarray | None
) -> DesignBandsAnswer:
    """Return the bands of a design; `field`: half-widths (N, C), None where they are not sent."""
    return DesignBandsAnswer(
        level=bands.level,
        quantities={
            name: width for name, width in bands.quantities.items() if math.isfinite(width)
        },
        values=None if field is None else field.tolist(),
        fine=_finite_ends(found.fine),
        by_regression=dict(bands.by_regression),
        fine_by_regression=_finite_ends(found.fine_by_regression),
        refusal=bands.refusal,
        unsolved=bands.unsolved,
    )


def _finite_ends(intervals: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {name: ends for name, ends in intervals.items() if all(map(math.isfinite, ends))}


def read_design(body: bytes, kind: type[Request]) -> Request | Refusal:
    """Read a request that names a design, and is short."""
    if len(body) > MAX_BODY:
        return Refusal(detail=f"the request has more than {MAX_BODY:,} bytes")
    return read_json(body, kind)


MOST = 5
NOT_OPENED = "this server does not open the run's dataset; courant explore does"
UNREACHABLE = (
    "the run's dataset cannot be read from here; courant explore --dataset URL names its place"
)


class NearestRequest(DesignRequest):
    """A design whose solved neighbours are wanted."""

    newest: bool = False
    """look first whether the dataset has a newer version"""


class SolvedDesign(BaseModel):
    """A design that the solver has solved."""

    case: str
    distance: float
    """root mean square over the parameters of the difference, as a share of each range"""
    split: str
    added: bool
    """whether it joined the dataset after the training"""
    parameters: dict[str, float]
    quantities: dict[str, float | None]
    """by the solver; null where a case has none"""


class NearestDesigns(BaseModel):
    """The nearest solved designs, the nearest first."""

    version: str
    """of the dataset; empty where it cannot be read"""
    designs: list[SolvedDesign]
    reason: str
    """why there are none; else empty"""


class SolvedDesigns:
    """The solved designs of the dataset that a model was trained on, in its newest version."""

    def __init__(self, surrogate: Surrogate, place: str | None) -> None:
        """Take the place of the dataset; None where it must not be opened."""
        self._surrogate, self._place = surrogate, place
        self._lock = threading.Lock()
        self._trained: Dataset | None = None
        self._newest: Dataset | None = None

    @property
    def trained(self) -> Dataset:
        """Return the version of the training; SimgenError where it cannot be read."""
        if self._place is None:
            raise InputError(NOT_OPENED)
        with self._lock:
            if self._trained is None:
                self._trained = self._surrogate.open_dataset(self._place)
            return self._trained

    def newest(self, again: bool) -> Dataset:
        """Return the newest version, on request looked for again."""
        trained = self.trained
        with self._lock:
            if self._newest is None or again:
                self._newest = simgen.open_dataset(trained.url)
            return self._newest

    def nearest(self, parameters: Mapping[str, float]) -> tuple[StoredCase, float]:
        """Return the training version's case nearest to a design, and how far it is off."""
        dataset = self.trained
        rows, distances = _distances(dataset, parameters)
        first = int(distances.argmin())
        return dataset[rows[first]], float(distances[first])

    def reason(self, error: SimgenError) -> str:
        """Say why there is no dataset; a client learns nothing of this machine, its log does."""
        if self._place is None:
            return NOT_OPENED
        logger.warning("the run's dataset cannot be read: %s", error)
        return UNREACHABLE


def answer_nearest(body: bytes, solved: SolvedDesigns) -> NearestDesigns | Refusal:
    """Find the solved designs that are nearest to the one of a request."""
    request = read_design(body, NearestRequest)
    if isinstance(request, Refusal):
        return request
    try:
        dataset = solved.newest(request.newest)
        known = set(solved.trained.cases())
    except SimgenError as error:
        return NearestDesigns(version="", designs=[], reason=solved.reason(error))
    missing = [
        each.name for each in dataset.schema.parameters if each.name not in request.parameters
    ]
    if missing:
        return Refusal(detail=f"parameters: missing {', '.join(missing)}"[:500])
    return NearestDesigns(
        version=dataset.version, designs=_nearest(dataset, request.parameters, known), reason=""
    )


def _distances(dataset: Dataset, parameters: Mapping[str, float]) -> tuple[list[str], np.ndarray]:
    """Return the solved cases and the distance of each from a design."""
    asked, cases = scaled(dataset.schema.parameters, parameters), dataset.cases()
    names = [each.name for each in dataset.schema.parameters]
    rows = dataset.design.loc[cases, names].to_numpy(float).tolist()
    designs = [dict(zip(names, row, strict=True)) for row in rows]
    places = np.array([scaled(dataset.schema.parameters, design) for design in designs])
    return cases, np.sqrt(np.mean(((places - asked) / 2) ** 2, axis=1))


def _nearest(dataset: Dataset, parameters: dict[str, float], known: set[str]) -> list[SolvedDesign]:
    cases, distances = _distances(dataset, parameters)
    table = dataset.design.loc[cases]
    names = [each.name for each in dataset.schema.parameters]
    return [
        SolvedDesign(
            case=str(table.index[row]),
            distance=float(distances[row]),
            split=str(table["split"].iloc[row]),
            added=table.index[row] not in known,
            parameters={name: float(table[name].iloc[row]) for name in names},
            quantities={
                each.name: None if math.isnan(value := float(table[each.name].iloc[row])) else value
                for each in dataset.schema.quantities
            },
        )
        for row in np.argsort(distances, kind="stable")[:MOST].tolist()
    ]
