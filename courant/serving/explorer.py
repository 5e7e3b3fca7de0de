"""Answer requests for designs: predicted where nobody has solved them, and the nearest solved ones.

Designs that were shown last are kept, with their triangles, so that another component, or a click,
costs milliseconds. A client learns nothing of this machine; its log has it all.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, Field, FiniteFloat

import simgen
from courant.evaluation.metrics import finite_or_none, ratio
from courant.evaluation.quantities import of_solved, recorded
from courant.evaluation.record import is_useful
from courant.evaluation.references import of_designs
from courant.prediction.answers import FIELDS, REGRESSION, SAME_DESIGN
from courant.prediction.bands import QuantityBand, quantity_bands
from courant.prediction.files import WrittenPrediction
from courant.prediction.surrogate import PredictedDesign, Surrogate, TooLargeError, by_field
from courant.problems.problem import NotFiniteError, collected_warnings
from courant.serving.predictions import Limits, RequestError, Strict
from simgen.cell_mesh import shape_of
from simgen.errors import InputError, SimgenError
from simgen.point_cloud import point_tree
from simgen.publish.figures import FLOWN_THROUGH, Triangles, crossings, layer_of_cloud, section
from simgen.quantities import obtainable
from simgen.solving.unsolved import UnmeshableError
from simgen.store.read import Dataset, StoredCase

logger = logging.getLogger("courant.serving")

NOT_OPENED = "this server does not open the run's dataset; courant explore does"
UNREACHABLE = "the run's dataset cannot be read here; courant explore --dataset URL names its place"
NO_START = (
    "a transient model needs a state to start from: POST /predict takes one, courant explore starts"
    " from the nearest solved design"
)
NUM_NEAREST, MAX_KEPT = 5, 32  # solved designs, kept designs
MOST_OFF, TINY = 0.05, 1e-300  # of a quantity of cells at solved designs; not to divide by zero
MAX_ALONG = 512  # kept answers along curves
Interval = tuple[float, float]
_Key = tuple[tuple[str, float], ...]
Read = TypeVar("Read")
Box = tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]  # left, right, low and high in m


class DesignRequest(Strict):
    """A design within the model's design space; `GET /model` lists the parameters."""

    parameters: dict[str, FiniteFloat]


class DesignBandsAnswer(BaseModel):
    """Bands around the answer; that of the fields holds in 90 % of the designs."""

    quantities: dict[str, QuantityBand]  # without those that have none
    too_wide: dict[str, str]  # why a quantity's band is too wide to be of use; empty if it is not
    values: list[list[float]] | None  # (N, C) half-widths of the fields'; null where no band holds
    fine: dict[str, Interval]  # by quantity, on an infinitely fine mesh, but for the model's error
    no_field: str  # why the field has no band; else empty
    unsolved: float  # share of the designs near this one that had no accepted solution


class PredictedQuantities(BaseModel):
    """What the answers to all requests for a predicted design have."""

    design: str  # its id, as of a case
    channels: list[str]
    quantities: dict[str, float | None]  # null where the fields do not give one
    sources: dict[str, str]  # what each is made of: regression, fields, or both
    of_fields: dict[str, float | None]  # quantities of the fields alone, where answers are others
    off_in_cells: dict[str, float]  # of solved fields by this share, so of no use of predicted ones
    left_out: dict[str, float]  # what regressions that were fitted to this design give without it
    constant: list[str]  # quantities with one answer for all designs, which is none
    not_predicted: dict[str, str]  # the family's other quantities, with the reason
    bands: DesignBandsAnswer  # the field's in `POST /designs` alone
    known_geometry: bool
    seconds: dict[str, float]  # wall time of `meshing` (or reading a mesh) and of `prediction`
    warnings: list[str]


class DesignAnswer(PredictedQuantities):
    """A predicted design, on the cells of its mesh."""

    points: list[list[float]]  # (N, 3) m, cells' centres; volumes (N,) m3, values (N, C)
    volumes: list[float]
    values: list[list[float]]


class PictureRequest(DesignRequest):
    """A design to show."""

    position: FiniteFloat | None = None  # m, on the axis where the design is thinnest; null: middle
    step: int | None = Field(default=None, ge=0)  # of a rollout, from 0 on; null: the last


class SectionRequest(PictureRequest):
    """A design to show in a plane, and what to compare it with."""

    anchors: bool = False
    window: Literal["all"] | Box | None = None  # null: around the body, if there is one
    # a design, or this one's solution, or the network's fields where others are shown
    beside: dict[str, FiniteFloat] | Literal["solver", "network"] | None = None


class Section(PredictedQuantities):
    """A predicted design in the plane of the picture, and its quantities."""

    across: str  # the coordinate that runs to the right
    up: str
    plane: str
    position: float
    positions: Interval | None  # m: from where to where the plane may lie; null in 2D
    window: Box  # that is shown
    whole: Box
    has_body: bool  # that is shown in a window of its own by default
    x: list[float]  # (V,) m
    y: list[float]
    triangles: list[list[int]]
    walls: list[Box]  # lines from x, y to x, y: walls, bodies and plates
    open: list[Box]  # inlets, outlets and the far field
    values: list[list[float]]  # by channel, (V,)
    widths: list[list[float]] | None  # half-widths of the band; null where none holds
    other: list[list[float]] | None  # at the same places, also where it has no fluid
    times: list[float]  # s, of the rollout's steps; empty for a steady model
    step: int  # that is shown
    anchors: list[Interval]  # places in the picture; empty: they have none or are not asked for
    start: str  # the start of a transient prediction, in words; empty for a steady model
    fields_by: str  # what predicted the fields, such as POD + GP; empty for the network
    has_surface: bool
    num_cells: int


class ContributionRequest(PictureRequest):
    """A place in the picture of a design."""

    x: float
    y: float
    channel: int = Field(ge=0)


class ValueSum(BaseModel):
    """The network's value at the cell nearest to a place, as a sum."""

    x: float
    y: float
    offset: float
    parts: list[float]  # by anchor
    places: list[Interval]  # of the anchors in the picture; empty where they have none


class Surface(BaseModel):
    """A design's boundary as triangles, with values at their corners.

    Each is the mean over the triangles of one patch around it, of the values in the cells behind.
    """

    points: list[list[float]]  # m
    triangles: list[list[int]]
    values: list[list[float]]  # by channel, at the points
    other: list[list[float]] | None  # what they are compared with
    widths: list[list[float]] | None  # half-widths of the band; null where none holds


class ExportRequest(DesignRequest):
    """A design to keep as a file, for ParaView or as a table of its cells, with its band."""

    kind: Literal["vtu", "csv", "zip"]
    """zip: all steps of a rollout, and a .pvd that names them"""
    step: int | None = Field(default=None, ge=0)  # of a rollout, from 0 on; null: the last
    beside: Literal["solver"] | None = None  # its field and the error too


class NearestRequest(DesignRequest):
    """A design whose solved neighbours are wanted."""

    newest: bool = False  # look first whether the dataset has a newer version
    errors: bool = False  # predict those that the fields were not fitted to, at first a second each


class SolvedDesign(BaseModel):
    """A design that the solver has solved."""

    case: str
    distance: float  # root mean square over the parameters, as a share of their ranges
    split: str
    added: bool  # whether it joined the dataset after the training
    parameters: dict[str, float]
    quantities: dict[str, float | None]
    errors: dict[str, float] | None  # NMAE of fields, if wanted and they were not fitted to it


class NearestDesigns(BaseModel):
    """The nearest solved designs, the nearest first, or the reason why there are none."""

    version: str
    designs: list[SolvedDesign]
    reason: str


class CurveRequest(DesignRequest):
    """A quantity of a design, over one of its parameters."""

    quantity: str
    over: str
    here: bool = False  # only at the design's own value


class Curve(BaseModel):
    """The answers for a quantity, as of `POST /sections`, along a parameter."""

    at: list[float]
    values: list[float | None]
    widths: list[float | None]  # half-widths of the bands; null where none holds
    source: str  # regression, fields, or both
    solved: list[Interval]  # the solver's, where other parameters differ by 5 % of their ranges


def carried_over(points: np.ndarray, values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Interpolate (..., N, C) to places (M, 3); on the same mesh that is the nearest cell."""
    away, near = point_tree(points).query(places, min(4, len(points)))
    weights = 1 / np.maximum(away, 1e-9 * float(np.ptp(points)))[..., None] ** 2
    there = (weights * values[..., near, :]).sum(axis=-2) / weights.sum(axis=-2)
    return there.astype(values.dtype)


@dataclass(frozen=True)
class _Shown:
    """A predicted design, with its triangles."""

    found: PredictedDesign
    warnings: list[str]
    layer: Triangles
    start: str  # The start of a transient prediction, in words; empty for a steady one

    @property
    def positions(self) -> Interval | None:
        """From where to where a plane may lie, m; None in 2D"""
        points = self.found.cloud.points
        if self.found.cloud.mesh is None or np.ptp(points[:, 2]) == 0:
            return None
        across = points[:, 3 - sum(self.layer.axes)]
        return float(across.min()), float(across.max())

    def cut(self, position: float | None) -> Triangles:
        """Return the plane through the middle, or the one at a position, m."""
        cloud, ends = self.found.cloud, self.positions
        if position is None or ends is None:
            return self.layer
        low, high = ends
        if not low <= position <= high:
            raise RequestError(f"position = {position:g} m is outside of {low:g} to {high:g}")
        try:
            return section(cloud, 3 - sum(self.layer.axes), position)
        except ValueError as error:
            raise RequestError(str(error)) from None

    def edges(self, layer: Triangles) -> dict[str, Any]:
        """Return the lines (x, y, x, y) in which a plane crosses walls, and open boundaries."""
        cloud = self.found.cloud
        lines, faces = crossings(cloud, 3 - sum(layer.axes), layer.position)
        drawn = lines[:, :, list(layer.axes)].reshape(-1, 4)
        of = [] if cloud.boundary is None else cloud.boundary.patch[faces]
        is_open = np.isin(np.array(cloud.patch_kinds)[of], list(FLOWN_THROUGH))
        return {
            "walls": list(map(short, drawn[~is_open])),
            "open": list(map(short, drawn[is_open])),
        }

    def step(self, asked: int | None) -> int:
        """Return the number of the shown step; RequestError for one that a rollout does not have"""
        number = 1 if self.found.times is None else len(self.found.times)
        if asked is not None and asked >= number:
            raise RequestError(f"step = {asked}: the prediction has {number}, from 0 on")
        return number - 1 if asked is None else asked

    def state(self, asked: int | None) -> tuple[np.ndarray, np.ndarray | None]:
        """Return values and widths of the band (N, C) of a steady field, or of a rollout's step."""
        known = (of for of in (self.found.values, self.found.bands.field) if of is not None)
        values, *widths = (of.reshape(-1, *of.shape[-2:])[self.step(asked)] for of in known)
        return values, widths[0] if widths else None


class Explored:
    """A model, the dataset that it was trained on, and the designs that were shown last."""

    def __init__(
        self, surrogate: Surrogate, limits: Limits, dataset: str | None = None, verdict: str = ""
    ) -> None:
        """Take the place of the dataset, None where it must not be opened; files have a verdict."""
        self.surrogate, self.limits, self._place = surrogate, limits, dataset
        self.verdict = verdict
        self._newest: Dataset | None = None
        self._kept = lru_cache(MAX_KEPT)(self._show)
        self._along, self._errors = lru_cache(MAX_ALONG)(self._answer), lru_cache()(self._errors_at)
        self._network = lru_cache(2)(
            lambda of: surrogate.predict_prepared(self._kept(of).found.prepared)
        )
        self._axis: int | None = None  # across the section: for all designs that of the first

    @cached_property
    def trained(self) -> Dataset:
        """The dataset version of the training; RequestError where it cannot be read."""
        if self._place is None:
            raise RequestError(NOT_OPENED)
        return _opened(self.surrogate.open_dataset, self._place)

    @cached_property
    def _better(self) -> tuple[str, Callable[..., np.ndarray] | None]:
        """What the evaluation found clearly better than the network, with its name."""
        return of_designs(self.surrogate, self._place) if self._place else ("", None)

    @cached_property
    def _off(self) -> dict[str, float]:
        """How far quantities of solved cells are off the solver's, in the median, if it is far."""
        try:
            dataset = self.trained
        except RequestError:
            return {}
        cases, off = dataset.cases("train")[:NUM_NEAREST], dict[str, float]()
        wanted, _ = obtainable(dataset.computed, self.surrogate.channels)
        found = [of_solved(wanted, dataset[case], None) for case in cases]
        for name in (each.name for each in wanted):
            truth, values = recorded(dataset, name, cases), [of.get(name, np.nan) for of in found]
            off[name] = float(np.median(np.abs(values - truth) / np.maximum(np.abs(truth), TINY)))
        return {name: share for name, share in off.items() if share > MOST_OFF}

    def _check(self, parameters: Mapping[str, float]) -> None:
        """Raise RequestError for a design outside of the family's design space."""
        try:
            self.surrogate.family(self._place).point(parameters, self.surrogate.dataset["settings"])
        except InputError as error:
            raise RequestError(str(error)) from None

    def predict(
        self, parameters: Mapping[str, float], start_of: StoredCase | None = None
    ) -> tuple[PredictedDesign, list[str]]:
        """Mesh and predict a design, from a case's state if transient; also return warnings."""
        if self.surrogate.step_s is not None and start_of is None:
            raise RequestError(NO_START)
        self._check(parameters)
        asked: dict[str, Any] = {"max_points": self.limits.max_points, "start_of": start_of}
        try:
            with collected_warnings() as warned:
                by = self._better[1]
                return self.surrogate.predict_design(parameters, fields_by=by, **asked), warned
        except (TooLargeError, NotFiniteError) as error:
            raise RequestError(str(error)) from None
        except UnmeshableError:
            logger.exception("a design could not be meshed")
            raise RequestError("the design could not be meshed; the log has the reason") from None
        except SimgenError:
            logger.exception("a design could not be predicted")
            # A client may ask again, or another server: the request itself is in order.
            reason = "this server cannot mesh and predict designs; its log has the reason"
            raise RequestError(reason, 503) from None

    def shown(self, parameters: Mapping[str, float]) -> _Shown:
        """Return a design that was shown before, or predict it."""
        return self._kept(_key(parameters))

    def _show(self, key: _Key) -> _Shown:
        parameters, case, start = dict(key), None, ""
        if self.surrogate.step_s is not None:
            self._check(parameters)
            nearest, distance = next(iter(self.trained.distances(parameters).items()))
            case = self.trained[nearest]
            begin, is_own = self.surrogate.problem.start(case), distance <= SAME_DESIGN
            start = f"The rollout starts from the state at {begin:g} s of " + (
                f"this design's own solution, {case.id}"
                if is_own
                else f"the nearest solved design, {case.id}, {100 * distance:.2g} % away"
            )
        found, warned = self.predict(parameters, case)
        fields = by_field(found.values, self.surrogate.normaliser.channels).values()
        last = [of.reshape(-1, *of.shape[-2:])[-1] for of in fields]
        layer = layer_of_cloud(found.cloud, self.surrogate.normaliser.dimension, last, self._axis)
        if not isinstance(layer, Triangles):
            raise RequestError("a model in one dimension has no section to show")
        self._axis = 3 - sum(layer.axes)
        return _Shown(found, warned, layer, start)

    def design(self, request: DesignRequest) -> DesignAnswer:
        """Mesh and predict a design."""
        found, warned = self.predict(request.parameters)
        volumes = found.cloud.volumes
        return DesignAnswer(
            **self._quantities(found, warned, with_field=True),
            points=found.cloud.points.tolist(),
            volumes=[] if volumes is None else volumes.tolist(),
            values=found.values.tolist(),
        )

    def _quantities(
        self, found: PredictedDesign, warned: list[str], *, with_field: bool
    ) -> dict[str, Any]:
        """Return the fields of `PredictedQuantities`."""
        bands, answers, steady = found.bands, self.surrogate.answers, found.times is None
        field = bands.field if with_field else None
        others = [n for n in found.of_fields if steady and found.sources[n] != FIELDS]
        off = self._off if others else {}
        answer = DesignBandsAnswer(
            quantities=dict(bands.quantities),
            too_wide={n: self._too_wide(n, found, of) for n, of in bands.quantities.items()},
            values=None if field is None else field.tolist(),
            fine=dict(found.fine),
            no_field=bands.no_field,
            unsolved=bands.unsolved,
        )
        return {
            "design": found.point.id,
            "channels": list(self.surrogate.channels),
            "quantities": {n: finite_or_none(value) for n, value in found.quantities.items()},
            "sources": found.sources,
            "constant": answers.constant,
            "of_fields": {n: finite_or_none(found.of_fields[n]) for n in others if n not in off},
            "off_in_cells": {n: off[n] for n in others if n in off},
            "left_out": answers.left_out(self.surrogate.scaled(found.point.parameters)),
            "not_predicted": found.not_predicted,
            "bands": answer,
            "known_geometry": found.known_geometry,
            "seconds": {"meshing": found.seconds.meshing, "prediction": found.seconds.prediction},
            "warnings": warned,
        }

    def _too_wide(self, name: str, found: PredictedDesign, band: QuantityBand) -> str:
        """Return why a band is of no use at this design, empty if it is."""
        regressed = self.surrogate.answers.quantities.get(name)
        known = np.array(regressed.values if regressed else [np.nan], dtype=float)
        size, spread = max(abs(found.quantities[name]), TINY), float(np.nanstd(known))
        if np.nanmin(known) < 0 < np.nanmax(known):  # near zero no band is
            size = float(np.nanmean(np.abs(known)))
        if is_useful(band.half_width / size, spread / size):
            return ""
        differ = f"wider than designs differ, ± {spread:.2g}"
        return differ if band.half_width > spread else "wider than half of the value"

    def section(self, request: SectionRequest) -> Section:
        """Predict a design and cut it."""
        shown = self.shown(request.parameters)
        layer = shown.cut(request.position)
        found, times, step = shown.found, shown.found.times, shown.step(request.step)
        box = layer.whole if request.window == "all" else layer.box
        if isinstance(request.window, tuple):
            box = np.reshape(request.window, (2, 2)).T
        shape, (low, high) = layer.triangulation, box
        triangles, places = shape.get_masked_triangles(), np.stack([shape.x, shape.y], axis=1)
        if not (low < high).all():
            raise RequestError("window: left, right, low and high in m, each pair in order")
        beyond, ends = 0.1 * (high - low), places[triangles]
        seen = (ends.min(axis=1) < high + beyond) & (ends.max(axis=1) > low - beyond)
        used, numbers = np.unique(triangles[seen.all(axis=1)], return_inverse=True)
        if not len(used):
            raise RequestError("no part of the domain lies in this window")
        cell, places = layer.cell[used], places[used]
        (values, widths), size = shown.state(step), float(np.ptp(places, axis=0).max())
        other = None if request.beside is None else self._other(request, shown, cell)
        return Section(
            **self._quantities(found, shown.warnings, with_field=False),
            values=by_column(values[cell]),
            widths=None if widths is None else by_column(widths[cell]),
            other=None if other is None else by_column(other),
            across="xyz"[layer.axes[0]],
            up="xyz"[layer.axes[1]],
            plane=layer.plane,
            position=layer.position,
            positions=shown.positions,
            window=tuple(box.T.ravel().tolist()),
            whole=tuple(layer.whole.T.ravel().tolist()),
            has_body=layer.window is not None,
            x=short(places[:, 0], size),
            y=short(places[:, 1], size),
            triangles=numbers.reshape(-1, 3).tolist(),
            **shown.edges(layer),
            times=[] if times is None else times.tolist(),
            step=step,
            # They take an encoding of their own, and most moves do not show them.
            anchors=self._anchors(found, layer) if request.anchors else [],
            start="" if self._better[1] else shown.start,
            fields_by=self._better[0],
            has_surface=self.surrogate.normaliser.dimension == 3 and found.cloud.mesh is not None,
            num_cells=found.cloud.num_points,
        )

    def _other(
        self, request: SectionRequest, shown: _Shown, cells: np.ndarray
    ) -> np.ndarray | None:
        """Return what a design is compared with at some of its cells, (K, C).

        None where the solver has not solved the design, or not at this time.
        """
        times, step = shown.found.times, shown.step(request.step)
        if request.beside == "network":
            if not self._better[1]:
                return None
            of_all = self._network(_key(request.parameters))
            return of_all.reshape(-1, *of_all.shape[-2:])[step, cells]
        if request.beside == "solver":
            at_s = None if times is None else [float(times[step])]
            if (solution := self._solution(request.parameters, at_s)) is None:
                return None
            points, values = solution[0], solution[1].reshape(-1, *solution[1].shape[-2:])[0]
        else:
            assert request.beside is not None
            other = self.shown(request.beside)
            points, (values, _) = other.found.cloud.points, other.state(request.step)
        return carried_over(points, values, shown.found.cloud.points[cells])

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
        parts = surrogate.decomposition(shown.found.prepared, cells=np.array([cell]))
        with torch.inference_mode():
            every = parts.whole().contributions[0, shown.step(request.step), :, 0, channel]
            normal = every.cpu().numpy()
        normaliser = surrogate.normaliser.at(request.parameters)
        values = normal * normaliser.std[channel]
        return ValueSum(
            x=float(shape.x[corner]),
            y=float(shape.y[corner]),
            offset=float(normaliser.restore(parts.offset.cpu().numpy())[channel]),
            parts=values.tolist(),
            places=self._anchors(shown.found, layer),
        )

    def _anchors(self, found: PredictedDesign, layer: Triangles) -> list[Any]:
        """Return the anchors' (x, y) in the picture; empty for anchors without places."""
        surrogate, anchors = self.surrogate, None
        if surrogate.decomposes:
            anchors = surrogate.decomposition(found.prepared, cells=np.array([0])).anchors
        places = surrogate.places(anchors)
        return [] if places is None else places[:, list(layer.axes)].astype(float).tolist()

    def surface(self, request: SectionRequest) -> Surface:
        """Predict a design and take its boundary."""
        shown = self.shown(request.parameters)
        cloud = shown.found.cloud
        if cloud.mesh is None or self.surrogate.normaliser.dimension != 3:
            raise RequestError("this design has no surface to show")
        boundary = cloud.boundary
        assert boundary is not None
        parts = [
            (corners[:, [0, n, n + 1]], members)
            for _, corners, members in cloud.mesh.blocks(cloud.num_points, len(boundary.points))
            for n in range(1, corners.shape[1] - 1)
        ]
        triangles, faces = map(np.concatenate, zip(*parts, strict=True))
        behind = point_tree(cloud.points).query(boundary.points)[1][faces]
        # A place on an edge between patches is one of each: values are of patches.
        num_places = len(cloud.mesh.points)
        on_patch = triangles + num_places * boundary.patch[faces, None].astype(int)
        used, numbers, around = np.unique(on_patch, return_inverse=True, return_counts=True)

        def mean(values: np.ndarray) -> list[list[float]]:
            of_face = (np.repeat(each, 3) for each in values[behind].T)
            return [short(np.bincount(numbers.ravel(), each) / around) for each in of_face]

        values, widths = shown.state(request.step)
        every = np.arange(cloud.num_points)
        other = None if request.beside is None else self._other(request, shown, every)
        places = cloud.mesh.points[used % num_places].astype(float)
        digits = 5 - int(np.floor(np.log10(float(np.ptp(places, axis=0).max()))))
        return Surface(
            points=np.round(places, digits).tolist(),
            triangles=numbers.reshape(-1, 3).tolist(),
            values=mean(values),
            other=None if other is None else mean(other),
            widths=None if widths is None else mean(widths),
        )

    def export(self, request: ExportRequest) -> bytes:
        """Predict a design and write its fields on all cells as a file."""
        found, step = (shown := self.shown(request.parameters)).found, shown.step(request.step)
        times = None if found.times is None else found.times.tolist()
        if request.kind == "zip" and times is None:
            raise RequestError("a steady prediction has no steps: ask for vtu or csv")
        beside = self._solution(request.parameters, times) if request.beside else None
        written = WrittenPrediction(
            self.surrogate,
            found.cloud.points,
            shape_of(found.cloud.mesh, found.cloud.points),
            times,
            found.values,
            found.point.parameters,
            found.bands.field,
            None if beside is None else carried_over(*beside, found.cloud.points),
            self._better[0],
            self.verdict,
        )
        name = f"{self.surrogate.dataset['family']}-{found.point.id}.{request.kind}"
        with tempfile.TemporaryDirectory() as folder:
            written.write(Path(folder) / name, step)
            return (Path(folder) / name).read_bytes()

    def _solution(
        self, parameters: Mapping[str, float], times: Sequence[float] | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the points and the states of a design's own solution, as `Problem.solutions`."""
        dataset = self._solved()
        case, distance = next(iter(dataset.distances(parameters).items()))
        if distance > SAME_DESIGN:
            return None
        states = _opened(self.surrogate.problem.solutions, dataset[case], times)
        return None if states is None else (dataset[case].points, states)

    def _solved(self, newest: bool = False) -> Dataset:
        """Return the dataset's version with the solved designs, kept until the newest is wanted."""
        if self._newest is None or newest:
            self._newest = _opened(simgen.open_dataset, self.trained.url)
        return self._newest

    def _errors_at(self, name: str) -> dict[str, float] | None:
        """Return the NMAE of the fields that are shown, where they were not fitted to a case."""
        surrogate, case, by = self.surrogate, self._solved()[name], self._better[1]
        if name in self.trained.cases("train"):
            return None
        try:
            window = next(surrogate.problem.windows(case))
            start, truth = window.start_s, window.truth
            of = case.points, case.parameters, surrogate.times(start or 0.0)
            predicted = by(*of) if by else surrogate.predict_case(case, start_s=start)
        except (InputError, NotFiniteError):  # as of a case that ends too early
            return None
        channels = surrogate.normaliser.channels
        away = by_field(np.abs(predicted.reshape(truth.shape) - truth), channels)
        sizes = by_field(np.abs(truth), channels)
        return {name: float(ratio(of.sum(), sizes[name].sum())) for name, of in away.items()}

    def nearest(self, request: NearestRequest) -> NearestDesigns:
        """Find the solved designs of the newest version that are nearest to one."""
        try:
            dataset = self._solved(request.newest)
        except RequestError as error:
            return NearestDesigns(version="", designs=[], reason=error.detail)
        self._check(request.parameters)
        names = [each.name for each in dataset.schema.parameters]
        quantities = [each.name for each in dataset.schema.quantities]
        found = []
        for case, distance in islice(dataset.distances(request.parameters).items(), NUM_NEAREST):
            row: Any = dataset.design.loc[case]
            solved = SolvedDesign(
                case=case,
                distance=distance,
                split=str(row["split"]),
                added=case not in self.trained.cases(),
                parameters={name: float(row[name]) for name in names},
                quantities={name: finite_or_none(float(row[name])) for name in quantities},
                errors=self._errors(case) if request.errors else None,
            )
            found.append(solved)
        return NearestDesigns(version=dataset.version, designs=found, reason="")

    def curve(self, request: CurveRequest) -> Curve:
        """Follow a quantity over a parameter; what the fields have a part in is predicted."""
        self._check(request.parameters)
        surrogate, name = self.surrogate, request.quantity
        over = next((each for each in surrogate.space if each.name == request.over), None)
        # A rollout starts from another design's state: fields have no part in its answers, nor have
        # those of another predictor.
        usable = surrogate.step_s is None and not self._better[1]
        source = surrogate.answers.source(name, usable)
        known = [each["name"] for each in surrogate.dataset["quantities"]]
        if over is None or name not in known:
            raise RequestError(f"{request.quantity} over {request.over}: one of them is unknown")
        whole = np.linspace(over.low, over.high, 41 if source == REGRESSION else 7).tolist()
        at = [request.parameters[over.name]] if request.here else whole
        designs = [{**request.parameters, over.name: each} for each in at]
        if source == REGRESSION:
            answers, scaled = surrogate.answers, np.array([surrogate.scaled(of) for of in designs])
            values = answers.at(scaled, {}, usable=False)[name].tolist()
            found = [
                ({name: y}, quantity_bands(answers, surrogate.bands, x, {name: y}, usable=False))
                for x, y in zip(scaled, values, strict=True)
            ]
        else:
            found = [self._along(_key(design)) for design in designs]
        return Curve(
            at=at,
            values=[finite_or_none(quantities.get(name, np.nan)) for quantities, _ in found],
            widths=[of[name].half_width if name in of else None for _, of in found],
            source=source,
            solved=self._solved_along(request),
        )

    def _answer(self, key: _Key) -> tuple[dict[str, float], dict[str, QuantityBand]]:
        """Predict the quantities of a design on a curve, with bands; its fields are not kept."""
        found = self._show(key).found
        return dict(found.quantities), dict(found.bands.quantities)

    def _solved_along(self, request: CurveRequest) -> list[Interval]:
        try:
            dataset = self._solved()
        except RequestError:
            return []
        table = dataset.design.loc[dataset.cases()]
        rows: Any = table[[each.name for each in self.surrogate.space]].to_dict("records")
        away = np.array([self.surrogate.scaled(row) for row in rows])
        away = np.abs(away - self.surrogate.scaled(request.parameters))
        away[:, [each.name == request.over for each in self.surrogate.space]] = 0
        near = table[[request.over, request.quantity]][(away <= 0.1).all(axis=1)].dropna()
        return [(x, y) for x, y in near.to_numpy().tolist()]


def _opened(read: Callable[..., Read], *given: Any) -> Read:
    """Read of a dataset; RequestError where it is out of reach."""
    try:
        return read(*given)
    except SimgenError as error:
        logger.warning("the run's dataset cannot be read: %s", error)
        raise RequestError(UNREACHABLE) from None


def _key(parameters: Mapping[str, float]) -> _Key:
    return tuple(sorted(parameters.items()))


def by_column(values: np.ndarray) -> list[list[float]]:
    """Return a list of short numbers for each column of values (V, C)."""
    return [short(each) for each in values.T]


def short(values: np.ndarray, size: float | None = None) -> list[float]:
    """Round to four digits of the largest, or of a size: a picture shows no more."""
    if size is None:
        size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    digits = 5 - int(np.floor(np.log10(size))) if size > 0 else 0
    return np.round(values.astype(float), max(digits, 0)).tolist()
