"""Answer the explorer's page: a section of a predicted design, and what made one of its points.

    answer_section(body, explored)          sliders were moved
    answer_contributions(body, explored)    a place in the picture was chosen

Designs that were shown last are kept, with their triangles, so that another component, or a click,
costs milliseconds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from courant.prediction.design import PredictedDesign
from courant.prediction.surrogate import Surrogate
from courant.serving.dependence import DependenceStudy
from courant.serving.designs import (
    DesignBandsAnswer,
    DesignSeconds,
    bands_answer,
    finite,
    predicted,
    read_design,
)
from courant.serving.requests import Limits, Refusal
from courant.serving.sections import (
    Contribution,
    ContributionRequest,
    Contributions,
    Section,
    SectionRequest,
)
from courant.serving.solved_designs import SolvedDesigns
from simgen.cases import get_family
from simgen.errors import InputError, SimgenError
from simgen.publish.field_plots import Triangles, layer_of_cloud, section
from simgen.store.access.stored_case import StoredCase

MAX_KEPT = 32
MOST_ANCHORS = 8


@dataclass(frozen=True)
class _Shown:
    found: PredictedDesign
    layer: Triangles
    start: str
    """What a transient prediction started from, in words; empty for a steady one"""

    @property
    def values(self) -> np.ndarray:
        """Return (N, C): the steady field, or the last state."""
        return self.found.values if self.found.times is None else self.found.values[-1]

    @cached_property
    def positions(self) -> tuple[float, float] | None:
        """Return from where to where a plane may lie, m; None in 2D."""
        if self.found.cloud.mesh is None or np.ptp(self.found.cloud.points[:, 2]) == 0:
            return None
        across = self.found.cloud.points[:, 3 - sum(self.layer.axes)]
        return float(across.min()), float(across.max())

    @property
    def widths(self) -> np.ndarray | None:
        """Return (N, C) half-widths of the band; None where none holds."""
        field = None if self.found.bands is None else self.found.bands.field
        return field if field is None or self.found.times is None else field[-1]


@dataclass
class Explored:
    """A model, and the designs that were shown last."""

    surrogate: Surrogate
    limits: Limits
    solved: SolvedDesigns
    study: DependenceStudy
    _kept: OrderedDict[tuple[tuple[str, float], ...], _Shown] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(cls, surrogate: Surrogate, limits: Limits, dataset: str | None = None) -> Explored:
        """Explore a model; `dataset` is the place of its dataset, None where it stays closed."""
        solved = SolvedDesigns(surrogate, dataset)
        return cls(surrogate, limits, solved, DependenceStudy(surrogate, solved))

    def of(self, parameters: Mapping[str, float]) -> _Shown | Refusal:
        """Return a design that was shown before, or predict it."""
        key = tuple(sorted(parameters.items()))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        begun = self._begun(parameters)
        if isinstance(begun, Refusal):
            return begun
        case, start = begun
        found = predicted(parameters, self.surrogate, self.limits, case)
        if isinstance(found, Refusal):
            return found
        if found.times is not None:
            start += f" and shows t = {found.times[-1]:g} s"
        layer = layer_of_cloud(found.cloud, self.surrogate.normaliser.dimension)
        if not isinstance(layer, Triangles):
            return Refusal(detail="a model in one dimension has no section to show")
        shown = _Shown(found, layer, start)
        with self._lock:
            self._kept[key] = shown
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return shown

    def _begun(self, parameters: Mapping[str, float]) -> tuple[StoredCase | None, str] | Refusal:
        """Return the case whose state a transient prediction starts from, and say so."""
        surrogate = self.surrogate
        if surrogate.step_s is None:
            return None, ""
        try:
            get_family(surrogate.dataset["family"]).design_space.check(parameters)
        except InputError as error:
            return Refusal(detail=str(error)[:500])
        try:
            case, distance = self.solved.nearest(parameters)
        except SimgenError as error:
            return Refusal(detail=self.solved.reason(error))
        begin = surrogate.problem.start(case)
        return case, (
            f"The rollout starts from the state at {begin:g} s of the nearest solved design,"
            f" {case.id}, which differs by {100 * distance:.2g} %,"
        )


def _cut(shown: _Shown, position: float | None) -> Triangles | Refusal:
    """Return the plane through the middle of a design, or the one at a position, m."""
    cloud, across = shown.found.cloud, shown.positions
    if position is None or across is None:
        return shown.layer
    if not across[0] <= position <= across[1]:
        return Refusal(
            detail=f"position = {position:g} m is outside of {across[0]:g} to {across[1]:g}"
        )
    assert cloud.volumes is not None
    points, sizes = cloud.points.astype(float), np.cbrt(cloud.volumes.astype(float))
    try:
        return section(points, sizes, 3 - sum(shown.layer.axes), position)
    except ValueError as error:
        return Refusal(detail=str(error))


def answer_section(body: bytes, explored: Explored) -> Section | Refusal:
    """Predict a design and cut it."""
    request = read_design(body, SectionRequest)
    if isinstance(request, Refusal):
        return request
    shown = explored.of(request.parameters)
    if isinstance(shown, Refusal):
        return shown
    layer = _cut(shown, request.position)
    if isinstance(layer, Refusal):
        return layer
    # They take an encoding of their own, and most moves do not show them.
    anchors = _anchors(explored.surrogate, shown.found) if request.anchors else None
    found, normaliser = shown.found, explored.surrogate.normaliser
    shape, cells = layer.triangulation, layer.cell
    across, up = ("xyz"[axis] for axis in layer.axes)
    band = shown.widths
    return Section(
        across=across,
        up=up,
        plane=layer.plane,
        position=layer.position,
        positions=shown.positions,
        x=short(shape.x),
        y=short(shape.y),
        triangles=[tuple(corners) for corners in shape.get_masked_triangles().tolist()],
        channels=list(explored.surrogate.channels),
        units=[channel.unit for channel in normaliser.channels],
        limits=[
            (mean - 2.5 * std, mean + 2.5 * std)
            for mean, std in zip(normaliser.mean, normaliser.std, strict=True)
        ],
        values=[short(values) for values in shown.values[cells].T],
        widths=None if band is None else [short(values) for values in band[cells].T],
        quantities=finite(found.quantities),
        not_predicted=dict(found.not_predicted),
        bands=_bands(found),
        anchors=_in_picture(anchors, layer),
        start=shown.start,
        has_surface=normaliser.dimension == 3 and found.cloud.mesh is not None,
        num_cells=found.cloud.num_points,
        known_geometry=found.known_geometry,
        seconds=DesignSeconds(meshing=found.seconds.meshing, prediction=found.seconds.prediction),
        warnings=list(found.warnings),
    )


def answer_contributions(body: bytes, explored: Explored) -> Contributions | Refusal:
    """Take the value at a place apart."""
    request = read_design(body, ContributionRequest)
    if isinstance(request, Refusal):
        return request
    surrogate = explored.surrogate
    if not surrogate.decomposes:
        return Refusal(detail="this model does not decompose its predictions")
    if request.channel >= len(surrogate.channels):
        return Refusal(detail=f"channel {request.channel}: the model has {surrogate.channels}")
    shown = explored.of(request.parameters)
    if isinstance(shown, Refusal):
        return shown
    layer = _cut(shown, request.position)
    if isinstance(layer, Refusal):
        return layer
    shape = layer.triangulation
    corner = int(np.hypot(shape.x - request.x, shape.y - request.y).argmin())
    cell = int(layer.cell[corner])
    parts = surrogate.decompose_prepared(shown.found.prepared, np.array([cell]))
    with torch.inference_mode():
        normal = parts.whole().contributions[0, -1, :, 0, request.channel].cpu().numpy()
    normaliser = surrogate.normaliser.at(request.parameters)
    values = normal * normaliser.std[request.channel]
    offset = normaliser.restore(parts.offset.cpu().numpy())[request.channel]
    places = _in_picture(_anchors(surrogate, shown.found), layer)
    largest = np.argsort(np.abs(values))[::-1][:MOST_ANCHORS]
    return Contributions(
        x=float(shape.x[corner]),
        y=float(shape.y[corner]),
        value=float(shown.values[cell, request.channel]),
        offset=float(offset),
        anchors=[
            Contribution(
                anchor=int(number),
                value=float(values[number]),
                x=places[number][0] if places else None,
                y=places[number][1] if places else None,
            )
            for number in largest
        ],
        rest=float(np.delete(values, largest).sum()),
    )


def _bands(found: PredictedDesign) -> DesignBandsAnswer | None:
    if found.bands is None:
        return None
    return bands_answer(found, found.bands, None)


def _anchors(surrogate: Surrogate, found: PredictedDesign) -> np.ndarray | None:
    """Return (L, 3) m; None for a model without anchors that have places."""
    if not surrogate.decomposes:
        return None
    anchors = surrogate.decompose_prepared(found.prepared, np.array([0])).anchors
    return None if anchors is None else surrogate.places(anchors[0].detach().cpu().numpy())


def _in_picture(anchors: np.ndarray | None, layer: Triangles) -> list[tuple[float, float]]:
    if anchors is None:
        return []
    return [(float(place[layer.axes[0]]), float(place[layer.axes[1]])) for place in anchors]


def short(values: np.ndarray) -> list[float]:
    """Round to four digits of the largest: a picture shows no more, and the answer is shorter."""
    size = float(np.abs(values).max()) if len(values) else 0.0
    digits = 5 - int(np.floor(np.log10(size))) if size > 0 else 0
    return np.round(values.astype(float), max(digits, 0)).tolist()
