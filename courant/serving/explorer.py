"""Answer the explorer's page.

    answer_section(body, explored)          sliders were moved
    answer_contributions(body, explored)    a place in the picture was chosen
    answer_surface(body, explored)          the boundary of a 3D design is shown
    explored.study.answer()                 Sobol indices of the quantities, once they are computed

Designs that were shown last are kept, with their triangles, so that another component, or a click,
costs milliseconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from pydantic import BaseModel, Field, FiniteFloat
from scipy.spatial import cKDTree

from courant.evaluation.sensitivity import Dependence, dependences
from courant.prediction.design import PredictedDesign
from courant.prediction.surrogate import Surrogate
from courant.serving.designs import (
    DesignBandsAnswer,
    DesignRequest,
    DesignSeconds,
    SolvedDesigns,
    bands_answer,
    finite,
    predicted,
    read_design,
)
from courant.serving.predictions import Limits, Refusal
from simgen.cases import get_family
from simgen.cell_mesh import CellMesh
from simgen.errors import InputError, SimgenError
from simgen.publish.dataset_figures import LEAST_DESIGNS, Sensitivity
from simgen.publish.field_plots import Triangles, layer_of_cloud, section
from simgen.store.read import StoredCase

logger = logging.getLogger("courant.serving")


class SectionRequest(DesignRequest):
    """A design to show."""

    anchors: bool = False
    """whether to tell where the anchors are"""
    position: FiniteFloat | None = None
    """m: the plane of a 3D design, on the axis along which it is thinnest; null: its middle"""


class Section(BaseModel):
    """A predicted design in the plane of the picture, and its quantities."""

    across: str
    """the coordinate that runs to the right"""
    up: str
    plane: str
    """such as `y = 0 m`"""
    position: float
    """m, of the plane"""
    positions: tuple[float, float] | None
    """m: from where to where a plane may lie; null in 2D"""
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
    start: str
    """what a transient prediction started from, in words; empty for a steady model"""
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
    position: FiniteFloat | None = None
    """m: of the picture's plane, as for a section"""
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


NICENESS = 10


class Indices(BaseModel):
    """Sobol indices of one quantity, by parameter."""

    first: dict[str, float]
    """the share of the variance over the design space that a parameter explains alone"""
    total: dict[str, float]
    """with all its interactions"""
    fit: float
    """R2, on designs left out, of the Gaussian process that they come from"""


class QuantityDependence(BaseModel):
    """What one quantity depends on; null where the designs do not tell it."""

    predicted: Indices | None
    solved: Indices | None


class Dependences(BaseModel):
    """What the quantities depend on."""

    ready: bool
    """false while they are being computed: ask again"""
    quantities: dict[str, QuantityDependence]
    reason: str
    """why there are none; else empty"""


class DependenceStudy:
    """The indices of a model, computed once in a thread of low priority."""

    def __init__(
        self,
        surrogate: Surrogate,
        solved: SolvedDesigns,
        measure: Callable[..., dict[str, Dependence]] = dependences,
    ) -> None:
        self._surrogate, self._solved, self._measure = surrogate, solved, measure
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._answer = Dependences(ready=False, quantities={}, reason="")

    def answer(self) -> Dependences:
        """Return what is known by now; the first call starts the study."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._study, name="sobol", daemon=True)
                self._thread.start()
        return self._answer

    def _study(self) -> None:
        # Of this thread alone: moves of sliders come first. Only root may lower what it has.
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            mine = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, max(mine, NICENESS))
        try:
            dataset = self._solved.trained
            found = self._measure(self._surrogate, dataset)
            names = [each.name for each in dataset.schema.parameters]
        except SimgenError as error:
            self._end({}, self._solved.reason(error))
            with self._lock:
                self._thread = None  # the next request tries again
        except Exception:  # the client learns nothing of this machine, its log has it all
            logger.exception("Sobol indices could not be computed")
            self._end({}, "the indices could not be computed; the log says why")
        else:
            self._end(
                {
                    quantity: QuantityDependence(
                        predicted=_indices(each.predicted, names),
                        solved=_indices(each.solved, names),
                    )
                    for quantity, each in found.items()
                    if each.predicted or each.solved
                },
                f"the dataset's designs do not tell them: they ask for {LEAST_DESIGNS} designs a"
                " parameter, and for quantities that depend smoothly on the parameters",
            )

    def _end(self, quantities: dict[str, QuantityDependence], reason: str) -> None:
        self._answer = Dependences(
            ready=True, quantities=quantities, reason="" if quantities else reason
        )


def _indices(found: Sensitivity | None, parameters: list[str]) -> Indices | None:
    if found is None:
        return None
    return Indices(
        first=dict(zip(parameters, found.first, strict=True)),
        total=dict(zip(parameters, found.total, strict=True)),
        fit=found.fit,
    )


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


class Surface(BaseModel):
    """The faces of a design's boundary as triangles, each with the value of the cell behind it."""

    points: list[tuple[float, float, float]]
    """(P,) m"""
    triangles: list[tuple[int, int, int]]
    """(F,) corners"""
    values: list[list[float]]
    """by channel, (F,)"""
    widths: list[list[float]] | None
    """by channel, (F,): half-widths of the band; null where none holds"""


def answer_surface(body: bytes, explored: Explored) -> Surface | Refusal:
    """Predict a design and take its boundary."""
    request = read_design(body, DesignRequest)
    if isinstance(request, Refusal):
        return request
    shown = explored.of(request.parameters)
    if isinstance(shown, Refusal):
        return shown
    found, mesh = shown.found, shown.found.cloud.mesh
    if mesh is None or explored.surrogate.normaliser.dimension != 3:
        return Refusal(detail="this design has no surface to show")
    triangles, faces = boundary_triangles(mesh, found)
    boundary = found.cloud.boundary
    assert boundary is not None
    _, behind = cKDTree(found.cloud.points).query(boundary.points)
    cells = behind[faces]
    used, corners = np.unique(triangles, return_inverse=True)
    band = shown.widths
    size = float(np.ptp(mesh.points[used], axis=0).max())
    digits = 5 - int(np.floor(np.log10(size)))
    places = np.round(mesh.points[used].astype(float), digits)
    return Surface(
        points=[(x, y, z) for x, y, z in places.tolist()],
        triangles=[(a, b, c) for a, b, c in corners.reshape(-1, 3).tolist()],
        values=[short(values) for values in shown.values[cells].T],
        widths=None if band is None else [short(values) for values in band[cells].T],
    )


def boundary_triangles(mesh: CellMesh, found: PredictedDesign) -> tuple[np.ndarray, np.ndarray]:
    """Cut the boundary's faces into triangles: corners (F, 3), and of which face each is, (F,)."""
    boundary = found.cloud.boundary
    assert boundary is not None
    corners, of = [], []
    for _, face, members in mesh.blocks(found.cloud.num_points, len(boundary.points)):
        for second in range(1, face.shape[1] - 1):
            corners.append(face[:, [0, second, second + 1]])
            of.append(members)
    return np.concatenate(corners), np.concatenate(of)
