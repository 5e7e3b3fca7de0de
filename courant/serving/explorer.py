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

import numpy as np
import torch
from pydantic import BaseModel, Field

from courant.prediction.design import PredictedDesign
from courant.prediction.surrogate import Surrogate
from courant.serving.dependence import DependenceStudy
from courant.serving.designs import (
    DesignBandsAnswer,
    DesignRequest,
    DesignSeconds,
    bands_answer,
    finite,
    predicted,
    read_design,
)
from courant.serving.requests import Limits, Refusal
from courant.serving.solved_designs import SolvedDesigns
from simgen.publish.field_plots import Triangles, layer_of_cloud

MAX_KEPT = 32
MOST_ANCHORS = 8


class SectionRequest(DesignRequest):
    """A design to show."""

    anchors: bool = False
    """whether to tell where the anchors are"""


class Section(BaseModel):
    """A predicted design in the plane of the picture, and its quantities."""

    across: str
    """the coordinate that runs to the right"""
    up: str
    plane: str
    """such as `y = 0 m`"""
    x: list[float]
    """(V,) m"""
    y: list[float]
    triangles: list[tuple[int, int, int]]
    """(F,) corners"""
    channels: list[str]
    units: list[str]
    limits: list[tuple[float, float]]
    """by channel: the ends of its colours, the same for all designs"""
    values: list[list[float]]
    """by channel, (V,)"""
    widths: list[list[float]] | None
    """by channel, (V,): half-widths of the band; null where none holds"""
    quantities: dict[str, float | None]
    not_predicted: dict[str, str]
    bands: DesignBandsAnswer | None
    """without values of fields"""
    anchors: list[tuple[float, float]]
    """places of the anchors in the picture; empty where they have none, or were not asked for"""
    has_surface: bool
    """whether `POST /surfaces` has the boundary"""
    num_cells: int
    known_geometry: bool
    seconds: DesignSeconds
    warnings: list[str]
    """what is unlike the training data"""


class ContributionRequest(DesignRequest):
    """A place in the picture of a design."""

    x: float
    y: float
    channel: int = Field(ge=0)


class Contribution(BaseModel):
    """What one anchor adds to a value."""

    anchor: int
    value: float
    x: float | None
    """its place in the picture"""
    y: float | None


class Contributions(BaseModel):
    """The value at the cell nearest to a place, as a sum."""

    x: float
    y: float
    value: float
    offset: float
    anchors: list[Contribution]
    """those that add or take most, the largest first"""
    rest: float
    """what all others add together"""


@dataclass(frozen=True)
class _Shown:
    found: PredictedDesign
    layer: Triangles


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
        found = predicted(parameters, self.surrogate, self.limits)
        if isinstance(found, Refusal):
            return found
        layer = layer_of_cloud(found.cloud, self.surrogate.normaliser.dimension)
        if not isinstance(layer, Triangles):
            return Refusal(detail="a model in one dimension has no section to show")
        shown = _Shown(found, layer)
        with self._lock:
            self._kept[key] = shown
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return shown


def answer_section(body: bytes, explored: Explored) -> Section | Refusal:
    """Predict a design and cut it."""
    request = read_design(body, SectionRequest)
    if isinstance(request, Refusal):
        return request
    shown = explored.of(request.parameters)
    if isinstance(shown, Refusal):
        return shown
    # They take an encoding of their own, and most moves do not show them.
    anchors = _anchors(explored.surrogate, shown.found) if request.anchors else None
    found, layer, normaliser = shown.found, shown.layer, explored.surrogate.normaliser
    shape, cells = layer.triangulation, layer.cell
    across, up = ("xyz"[axis] for axis in layer.axes)
    band = None if found.bands is None else found.bands.field
    return Section(
        across=across,
        up=up,
        plane=layer.plane,
        x=short(shape.x),
        y=short(shape.y),
        triangles=[tuple(corners) for corners in shape.get_masked_triangles().tolist()],
        channels=list(explored.surrogate.channels),
        units=[channel.unit for channel in normaliser.channels],
        limits=[
            (mean - 2.5 * std, mean + 2.5 * std)
            for mean, std in zip(normaliser.mean, normaliser.std, strict=True)
        ],
        values=[short(values) for values in found.values[cells].T],
        widths=None if band is None else [short(values) for values in band[cells].T],
        quantities=finite(found.quantities),
        not_predicted=dict(found.not_predicted),
        bands=_bands(found),
        anchors=_in_picture(anchors, layer),
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
    shape = shown.layer.triangulation
    corner = int(np.hypot(shape.x - request.x, shape.y - request.y).argmin())
    cell = int(shown.layer.cell[corner])
    parts = surrogate.decompose_prepared(shown.found.prepared, np.array([cell]))
    with torch.inference_mode():
        normal = parts.whole().contributions[0, 0, :, 0, request.channel].cpu().numpy()
    normaliser = surrogate.normaliser.at(request.parameters)
    values = normal * normaliser.std[request.channel]
    offset = normaliser.restore(parts.offset.cpu().numpy())[request.channel]
    places = _in_picture(_anchors(surrogate, shown.found), shown.layer)
    largest = np.argsort(np.abs(values))[::-1][:MOST_ANCHORS]
    return Contributions(
        x=float(shape.x[corner]),
        y=float(shape.y[corner]),
        value=float(shown.found.values[cell, request.channel]),
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
