"""Answer requests for a design: predicted where nobody has solved it, and the nearest solved ones.

The server meshes a design that is predicted. Of the run's dataset, which is opened once, the table
of designs alone is read; a dataset that cannot be read is reported in one sentence, because a run
also predicts without it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat
from scipy.spatial import cKDTree

import simgen
from courant.evaluation.quantities import Dependence, dependences
from courant.prediction.bands import DesignBands
from courant.prediction.design import PredictedDesign, TooLargeError
from courant.prediction.surrogate import NotFiniteError, Surrogate
from courant.problems.problem import collected_warnings
from courant.serving.predictions import MOST_SHOWN, Limits, Refusal, Request, ServerFault, read_json
from simgen.cases import get_family
from simgen.cell_mesh import CellMesh
from simgen.design_space import scaled
from simgen.errors import InputError, SimgenError
from simgen.publish.dataset_figures import LEAST_DESIGNS, Sensitivity
from simgen.publish.field_plots import Triangles, layer_of_cloud, section
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
            found = surrogate.predict_design(
                parameters, max_points=limits.max_points, start_of=start_of
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
        refusal=bands.no_field,
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
