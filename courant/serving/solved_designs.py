"""Find the solved designs of a run's dataset that are nearest to one that was asked for.

The dataset is opened once, and its table of designs is kept: no field is read. What is unreachable
is said in one sentence, because a run also predicts without its dataset.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel

import simgen
from courant.prediction.surrogate import Surrogate
from courant.serving.designs import DesignRequest, read_design
from courant.serving.requests import Refusal
from simgen.design_space import scaled
from simgen.errors import InputError, SimgenError
from simgen.store.access.reader import Dataset
from simgen.store.access.stored_case import StoredCase

MOST = 5
NOT_OPENED = "this server does not open the run's dataset; courant explore does"
UNREACHABLE = (
    "the run's dataset cannot be read from here; courant explore --dataset URL names its place"
)
logger = logging.getLogger("courant.serving")


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
