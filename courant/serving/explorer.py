"""Answer requests for designs: predicted where nobody has solved them, and the nearest solved ones.

The server meshes a design that is predicted. Those that were shown last are kept, with their
triangles, so that another component, or a click, costs milliseconds. A dataset that cannot be read
is reported in one sentence, because a run also predicts without it. A client learns nothing of this
machine; its log has it all.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat
from scipy.spatial import cKDTree

import simgen
from courant.evaluation.quantities import dependences, scaled_designs
from courant.prediction.design import PredictedDesign, TooLargeError
from courant.prediction.surrogate import NotFiniteError, Surrogate
from courant.problems.problem import collected_warnings
from courant.serving.predictions import Limits, RequestError
from simgen.cases import get_family
from simgen.cell_mesh import CellMesh
from simgen.design_space import scaled
from simgen.errors import InputError, SimgenError
from simgen.publish.figures import Triangles, layer_of_cloud, section
from simgen.regression import LEAST_DESIGNS, Sensitivity
from simgen.solving.unsolved import UnmeshableError
from simgen.store.read import Dataset, StoredCase

logger = logging.getLogger("courant.serving")

NOT_OPENED = "this server does not open the run's dataset; courant explore does"
UNREACHABLE = (
    "the run's dataset cannot be read from here; courant explore --dataset URL names its place"
)
NO_START = (
    "a transient model needs a state to start from: POST /predict takes one, courant predict"
    " --design --from-solver has the solver make one, and courant explore starts from the nearest"
    " solved design"
)
NUM_NEAREST = 5
#: Anchors whose contributions are listed.
NUM_ANCHORS = 8
#: Designs that are kept.
MAX_KEPT = 32
NICENESS = 10


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
    no_field: str
    """why the field has no band; else empty"""
    unsolved: float
    """share of the designs near this one that had no accepted solution"""

    @classmethod
    def of(cls, found: PredictedDesign, *, with_field: bool) -> DesignBandsAnswer | None:
        """Return the bands of a design; None where the model is not calibrated."""
        bands = found.bands
        if bands is None:
            return None
        fine, alone = (
            {name: ends for name, ends in of.items() if all(map(math.isfinite, ends))}
            for of in (found.fine, found.fine_by_regression)
        )
        widths = {name: width for name, width in bands.quantities.items() if math.isfinite(width)}
        return cls(
            level=bands.level,
            quantities=widths,
            values=bands.field.tolist() if with_field and bands.field is not None else None,
            fine=fine,
            by_regression=dict(bands.by_regression),
            fine_by_regression=alone,
            no_field=bands.no_field,
            unsolved=bands.unsolved,
        )


class PredictedQuantities(BaseModel):
    """What the answers to all requests for a predicted design have."""

    channels: list[str]
    quantities: dict[str, float | None]
    """quantities of interest; null where the fields do not give one"""
    not_predicted: dict[str, str]
    """the family's other quantities, with the reason"""
    bands: DesignBandsAnswer | None
    """bands of error, of the field in `POST /designs` alone; null where the model is not
    calibrated
    """
    known_geometry: bool
    """whether this design was meshed before"""
    seconds: DesignSeconds
    warnings: list[str]
    """what is unlike the training data, so that the prediction is extrapolated"""


class DesignAnswer(PredictedQuantities):
    """A predicted design, on the cells of its mesh."""

    points: list[list[float]]
    """(N, 3) m, the cells' centres"""
    volumes: list[float]
    """(N,) m3"""
    values: list[list[float]]
    """(N, C), in the order of `channels`"""


class SectionRequest(DesignRequest):
    """A design to show."""

    anchors: bool = False
    """whether to return the places of the anchors"""
    position: FiniteFloat | None = None
    """m: the plane of a 3D design, on the axis along which it is thinnest; null: its middle"""


class Section(PredictedQuantities):
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
    units: list[str]
    limits: list[tuple[float, float]]
    """by channel: the ends of its colours, the same for all designs"""
    values: list[list[float]]
    """by channel, (V,)"""
    widths: list[list[float]] | None
    """by channel, (V,): half-widths of the band; null where none holds"""
    anchors: list[tuple[float, float]]
    """places of the anchors in the picture; empty where they have none, or were not asked for"""
    start: str
    """the start of a transient prediction, in words; empty for a steady model"""
    has_surface: bool
    """whether `POST /surfaces` has the boundary"""
    num_cells: int


class ContributionRequest(DesignRequest):
    """A place in the picture of a design."""

    x: float
    y: float
    position: FiniteFloat | None = None
    """m: of the picture's plane, as for a section"""
    channel: int = Field(ge=0)


class AnchorContribution(BaseModel):
    """One anchor's part of a value."""

    anchor: int
    value: float
    x: float | None
    """its place in the picture"""
    y: float | None


class ValueSum(BaseModel):
    """The value at the cell nearest to a place, as a sum."""

    x: float
    y: float
    value: float
    offset: float
    anchors: list[AnchorContribution]
    """those that add or take most, the largest first"""
    rest: float
    """the sum of all others"""


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


class SobolIndices(BaseModel):
    """Sobol indices of one quantity, by parameter."""

    first: dict[str, float]
    """the share of the variance over the design space that a parameter explains alone"""
    total: dict[str, float]
    """with all its interactions"""
    fit: float
    """R2, on designs left out, of the Gaussian process that they come from"""


class QuantityDependence(BaseModel):
    """The dependence of one quantity on the parameters; null where the designs do not give it."""

    predicted: SobolIndices | None
    solved: SobolIndices | None


class Dependences(BaseModel):
    """The dependence of the quantities on the parameters."""

    ready: bool
    """false while they are being computed: ask again"""
    quantities: dict[str, QuantityDependence]
    reason: str
    """why there are none; else empty"""


@dataclass(frozen=True)
class _Shown:
    """A predicted design, with its triangles."""

    found: PredictedDesign
    layer: Triangles
    start: str
    """The start of a transient prediction, in words; empty for a steady one"""

    @property
    def values(self) -> np.ndarray:
        """(N, C): the steady field, or the last state"""
        return self.found.values if self.found.times is None else self.found.values[-1]

    @property
    def widths(self) -> np.ndarray | None:
        """(N, C) half-widths of the band; None where none holds"""
        field = None if self.found.bands is None else self.found.bands.field
        return field if field is None or self.found.times is None else field[-1]

    @cached_property
    def positions(self) -> tuple[float, float] | None:
        """From where to where a plane may lie, m; None in 2D"""
        if self.found.cloud.mesh is None or np.ptp(self.found.cloud.points[:, 2]) == 0:
            return None
        across = self.found.cloud.points[:, 3 - sum(self.layer.axes)]
        return float(across.min()), float(across.max())

    def cut(self, position: float | None) -> Triangles:
        """Return the plane through the middle, or the one at a position, m."""
        cloud, across = self.found.cloud, self.positions
        if position is None or across is None:
            return self.layer
        if not across[0] <= position <= across[1]:
            raise RequestError(
                f"position = {position:g} m is outside of {across[0]:g} to {across[1]:g}"
            )
        assert cloud.volumes is not None
        points, sizes = cloud.points.astype(float), np.cbrt(cloud.volumes.astype(float))
        try:
            return section(points, sizes, 3 - sum(self.layer.axes), position)
        except ValueError as error:
            raise RequestError(str(error)) from None

    def by_channel(self, cells: np.ndarray) -> tuple[list[list[float]], list[list[float]] | None]:
        """Return values and widths of some cells, a list for each channel."""
        widths = None if self.widths is None else [short(of) for of in self.widths[cells].T]
        return [short(of) for of in self.values[cells].T], widths


class Explored:
    """A model, the dataset that it was trained on, and the designs that were shown last."""

    def __init__(self, surrogate: Surrogate, limits: Limits, dataset: str | None = None) -> None:
        """Take the place of the dataset; None where it must not be opened."""
        self.surrogate, self.limits, self._place = surrogate, limits, dataset
        self._lock = threading.Lock()
        self._trained: Dataset | None = None
        self._newest: Dataset | None = None
        self._kept: OrderedDict[tuple[tuple[str, float], ...], _Shown] = OrderedDict()
        self._study: threading.Thread | None = None
        self._dependences = Dependences(ready=False, quantities={}, reason="")

    @property
    def trained(self) -> Dataset:
        """The dataset version of the training; SimgenError where it cannot be read."""
        if self._place is None:
            raise InputError(NOT_OPENED)
        with self._lock:
            if self._trained is None:
                self._trained = self.surrogate.open_dataset(self._place)
            return self._trained

    def _no_dataset(self, error: SimgenError) -> str:
        if self._place is None:
            return NOT_OPENED
        logger.warning("the run's dataset cannot be read: %s", error)
        return UNREACHABLE

    def _check(self, parameters: Mapping[str, float]) -> None:
        """Raise RequestError for a design outside of the family's design space."""
        try:
            get_family(self.surrogate.dataset["family"]).design_space.check(parameters)
        except InputError as error:
            raise RequestError(str(error)) from None

    def predict(
        self, parameters: Mapping[str, float], start_of: StoredCase | None = None
    ) -> PredictedDesign:
        """Mesh and predict a design; a transient model starts from the state of a case."""
        if self.surrogate.step_s is not None and start_of is None:
            raise RequestError(NO_START)
        self._check(parameters)
        most = self.limits.max_points
        try:
            with collected_warnings() as warned:
                found = self.surrogate.predict_design(
                    parameters, max_points=most, start_of=start_of
                )
            return replace(found, warnings=tuple(warned))
        except (TooLargeError, NotFiniteError) as error:
            raise RequestError(str(error)) from None
        except UnmeshableError:
            logger.exception("a design could not be meshed")
            raise RequestError("the design could not be meshed; the log has the reason") from None
        except SimgenError:
            logger.exception("a design could not be predicted")
            # A client may ask again, or another server: the request itself is in order.
            raise RequestError(
                "this server cannot mesh and predict designs; its log has the reason", 503
            ) from None

    def shown(self, parameters: Mapping[str, float]) -> _Shown:
        """Return a design that was shown before, or predict it."""
        key = tuple(sorted(parameters.items()))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        case, start = None, ""
        if self.surrogate.step_s is not None:
            self._check(parameters)
            try:
                cases, distances = _distances(self.trained, parameters)
                first = int(distances.argmin())
                case = self.trained[cases[first]]
            except SimgenError as error:
                raise RequestError(self._no_dataset(error)) from None
            start = (
                f"The rollout starts from the state at {self.surrogate.problem.start(case):g} s of"
                f" the nearest solved design, {case.id}, which differs by"
                f" {100 * distances[first]:.2g} %,"
            )
        found = self.predict(parameters, case)
        if found.times is not None:
            start += f" and shows t = {found.times[-1]:g} s"
        layer = layer_of_cloud(found.cloud, self.surrogate.normaliser.dimension)
        if not isinstance(layer, Triangles):
            raise RequestError("a model in one dimension has no section to show")
        shown = _Shown(found, layer, start)
        with self._lock:
            self._kept[key] = shown
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return shown

    def design(self, request: DesignRequest) -> DesignAnswer:
        """Mesh and predict a design."""
        found = self.predict(request.parameters)
        volumes = found.cloud.volumes
        return DesignAnswer(
            **self._quantities(found, with_field=True),
            points=found.cloud.points.tolist(),
            volumes=[] if volumes is None else volumes.tolist(),
            values=found.values.tolist(),
        )

    def _quantities(self, found: PredictedDesign, *, with_field: bool) -> dict[str, Any]:
        """Return the fields of `PredictedQuantities`."""
        seconds = found.seconds
        return {
            "channels": list(self.surrogate.channels),
            "quantities": {
                name: value if math.isfinite(value) else None
                for name, value in found.quantities.items()
            },
            "not_predicted": dict(found.not_predicted),
            "bands": DesignBandsAnswer.of(found, with_field=with_field),
            "known_geometry": found.known_geometry,
            "seconds": DesignSeconds(meshing=seconds.meshing, prediction=seconds.prediction),
            "warnings": list(found.warnings),
        }

    def section(self, request: SectionRequest) -> Section:
        """Predict a design and cut it."""
        shown = self.shown(request.parameters)
        layer = shown.cut(request.position)
        found, normaliser = shown.found, self.surrogate.normaliser
        shape = layer.triangulation
        across, up = ("xyz"[axis] for axis in layer.axes)
        values, widths = shown.by_channel(layer.cell)
        return Section(
            **self._quantities(found, with_field=False),
            across=across,
            up=up,
            plane=layer.plane,
            position=layer.position,
            positions=shown.positions,
            x=short(shape.x),
            y=short(shape.y),
            triangles=[tuple(corners) for corners in shape.get_masked_triangles().tolist()],
            units=[channel.unit for channel in normaliser.channels],
            limits=[
                (mean - 2.5 * std, mean + 2.5 * std)
                for mean, std in zip(normaliser.mean, normaliser.std, strict=True)
            ],
            values=values,
            widths=widths,
            # They take an encoding of their own, and most moves do not show them.
            anchors=self._anchors(found, layer) if request.anchors else [],
            start=shown.start,
            has_surface=normaliser.dimension == 3 and found.cloud.mesh is not None,
            num_cells=found.cloud.num_points,
        )

    def contributions(self, request: ContributionRequest) -> ValueSum:
        """Split the value at a place into the anchors' contributions."""
        surrogate, channel = self.surrogate, request.channel
        if not surrogate.decomposes:
            raise RequestError("this model does not decompose its predictions")
        if channel >= len(surrogate.channels):
            raise RequestError(f"channel {channel}: the model has {surrogate.channels}")
        shown = self.shown(request.parameters)
        layer = shown.cut(request.position)
        shape = layer.triangulation
        corner = int(np.hypot(shape.x - request.x, shape.y - request.y).argmin())
        cell = int(layer.cell[corner])
        parts = surrogate.decompose_prepared(shown.found.prepared, np.array([cell]))
        with torch.inference_mode():
            normal = parts.whole().contributions[0, -1, :, 0, channel].cpu().numpy()
        normaliser = surrogate.normaliser.at(request.parameters)
        values = normal * normaliser.std[channel]
        places = self._anchors(shown.found, layer)
        largest = np.argsort(np.abs(values))[::-1][:NUM_ANCHORS]
        return ValueSum(
            x=float(shape.x[corner]),
            y=float(shape.y[corner]),
            value=float(shown.values[cell, channel]),
            offset=float(normaliser.restore(parts.offset.cpu().numpy())[channel]),
            anchors=[
                AnchorContribution(
                    anchor=int(number),
                    value=float(values[number]),
                    x=places[number][0] if places else None,
                    y=places[number][1] if places else None,
                )
                for number in largest
            ],
            rest=float(np.delete(values, largest).sum()),
        )

    def _anchors(self, found: PredictedDesign, layer: Triangles) -> list[tuple[float, float]]:
        """Return the anchors' places in the picture; empty for anchors without places."""
        if not self.surrogate.decomposes:
            return []
        anchors = self.surrogate.decompose_prepared(found.prepared, np.array([0])).anchors
        if anchors is None:
            return []
        places = self.surrogate.places(anchors[0].detach().cpu().numpy())
        return [(x, y) for x, y in places[:, list(layer.axes)].astype(float).tolist()]

    def surface(self, request: DesignRequest) -> Surface:
        """Predict a design and take its boundary."""
        shown = self.shown(request.parameters)
        cloud = shown.found.cloud
        if cloud.mesh is None or self.surrogate.normaliser.dimension != 3:
            raise RequestError("this design has no surface to show")
        assert cloud.boundary is not None
        triangles, faces = boundary_triangles(
            cloud.mesh, cloud.num_points, len(cloud.boundary.points)
        )
        _, behind = cKDTree(cloud.points).query(cloud.boundary.points)
        used, corners = np.unique(triangles, return_inverse=True)
        places = cloud.mesh.points[used].astype(float)
        digits = 5 - int(np.floor(np.log10(float(np.ptp(places, axis=0).max()))))
        values, widths = shown.by_channel(behind[faces])
        return Surface(
            points=[(x, y, z) for x, y, z in np.round(places, digits).tolist()],
            triangles=[(a, b, c) for a, b, c in corners.reshape(-1, 3).tolist()],
            values=values,
            widths=widths,
        )

    def nearest(self, request: NearestRequest) -> NearestDesigns:
        """Find the solved designs of the newest version that are nearest to one."""
        try:
            trained = self.trained
            with self._lock:
                if self._newest is None or request.newest:
                    self._newest = simgen.open_dataset(trained.url)
                dataset = self._newest
        except SimgenError as error:
            return NearestDesigns(version="", designs=[], reason=self._no_dataset(error))
        names = [each.name for each in dataset.schema.parameters]
        if missing := [name for name in names if name not in request.parameters]:
            raise RequestError(f"parameters: missing {', '.join(missing)}")
        cases, distances = _distances(dataset, request.parameters)
        known, table = set(trained.cases()), dataset.design.loc[cases]
        found = []
        for row in np.argsort(distances, kind="stable")[:NUM_NEAREST].tolist():
            quantities = {
                each.name: float(table[each.name].iloc[row]) for each in dataset.schema.quantities
            }
            found.append(
                SolvedDesign(
                    case=cases[row],
                    distance=float(distances[row]),
                    split=str(table["split"].iloc[row]),
                    added=cases[row] not in known,
                    parameters={name: float(table[name].iloc[row]) for name in names},
                    quantities={
                        name: None if math.isnan(value) else value
                        for name, value in quantities.items()
                    },
                )
            )
        return NearestDesigns(version=dataset.version, designs=found, reason="")

    def dependences(self) -> Dependences:
        """Return what is known by now; the first call starts a thread of low priority."""
        with self._lock:
            if self._study is None:
                self._study = threading.Thread(target=self._measure, name="sobol", daemon=True)
                self._study.start()
        return self._dependences

    def _measure(self) -> None:
        # Of this thread alone: moves of sliders come first. Only root may lower what it has.
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            mine = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, max(mine, NICENESS))
        quantities: dict[str, QuantityDependence] = {}
        try:
            names = [each.name for each in self.trained.schema.parameters]
            for quantity, each in dependences(self.surrogate, self.trained).items():
                if each.predicted or each.solved:
                    quantities[quantity] = QuantityDependence(
                        predicted=_indices(each.predicted, names),
                        solved=_indices(each.solved, names),
                    )
            reason = (
                f"the dataset's designs do not determine them: they need {LEAST_DESIGNS} designs a"
                " parameter, and quantities that depend smoothly on the parameters"
            )
        except SimgenError as error:
            reason = self._no_dataset(error)
            self._study = None  # the next request tries again
        except Exception:
            logger.exception("Sobol indices could not be computed")
            reason = "the indices could not be computed; the log has the reason"
        self._dependences = Dependences(
            ready=True, quantities=quantities, reason="" if quantities else reason
        )


def _indices(found: Sensitivity | None, parameters: list[str]) -> SobolIndices | None:
    if found is None:
        return None
    return SobolIndices(
        first=dict(zip(parameters, found.first, strict=True)),
        total=dict(zip(parameters, found.total, strict=True)),
        fit=found.fit,
    )


def _distances(dataset: Dataset, parameters: Mapping[str, float]) -> tuple[list[str], np.ndarray]:
    """Return the solved cases and the distance of each from a design."""
    cases, asked = dataset.cases(), scaled(dataset.schema.parameters, parameters)
    away = (scaled_designs(dataset, cases) - asked) / 2
    return cases, np.sqrt(np.mean(away**2, axis=1))


def short(values: np.ndarray) -> list[float]:
    """Round to four digits of the largest: a picture shows no more, and the answer is shorter."""
    size = float(np.abs(values).max()) if len(values) else 0.0
    digits = 5 - int(np.floor(np.log10(size))) if size > 0 else 0
    return np.round(values.astype(float), max(digits, 0)).tolist()


def boundary_triangles(
    mesh: CellMesh, num_cells: int, num_faces: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cut the boundary's faces into triangles: corners (F, 3), and of which face each is, (F,)."""
    corners, of = [], []
    for _, face, members in mesh.blocks(num_cells, num_faces):
        for second in range(1, face.shape[1] - 1):
            corners.append(face[:, [0, second, second + 1]])
            of.append(members)
    return np.concatenate(corners), np.concatenate(of)
