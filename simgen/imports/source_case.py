"""One case as its source has it, and its check and conversion to a dataset's point cloud."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from simgen.case import CaseResult, Gate
from simgen.cell_mesh import CellMesh
from simgen.design_space import DesignPoint, DesignSpace
from simgen.errors import InputError
from simgen.moments import stored_type, stored_type_of_points
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.solving.gates import rejection
from simgen.store.schema import Schema
from simgen.store.split import SPLITS

MOST_LETTERS = 64
CASE_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_LETTERS - 1}}}")
LONGEST_VALUE, LONGEST_MESSAGE = 60, 300


def shown(value: object) -> str:
    """Return a foreign value as a few printable characters on one line."""
    return " ".join(ascii(value).split())[:LONGEST_VALUE]


def one_line(error: BaseException) -> str:
    """Return an error's text on one line, without control characters."""
    printable = (each if each.isprintable() else " " for each in str(error))
    return " ".join("".join(printable).split())[:LONGEST_MESSAGE]


def as_utf8(text: str) -> str:
    """Replace what UTF-8 cannot hold, as names of files may have: no store holds it."""
    return text.encode(errors="replace").decode()


@dataclass(frozen=True)
class SourceBoundary:
    """The B faces of a case's boundary."""

    points: Any
    """(B, d) m"""
    normals: Any
    """(B, d), unit vectors out of the domain"""
    areas: Any
    """(B,) m2"""
    patch: Any
    """(B,) names of patch kinds, or their numbers in the schema's order"""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Like those of the case, at the faces"""


@dataclass(frozen=True)
class SourceCase:
    """One case as its source has it: N points in d dimensions, T snapshots, C components."""

    name: str
    """Its id in the dataset: letters, digits, '.', '_' and '-'"""
    points: Any
    """(N, d), or (N, 3) with zeros behind"""
    fields: Mapping[str, Any]
    """By name: (N, C), or (N,) for one component; on a grid (*grid, C) or (*grid,); transient with
    T in front
    """
    time: Any = None
    """(T,) s, increasing; None for a steady case"""
    parameters: Mapping[str, float] = field(default_factory=dict)
    split: str | None = None
    """train, validation or test, if the schema's splits are published"""
    grid_shape: Sequence[int] | None = None
    """The shape, if the points are a regular grid of this case's own"""
    volumes: Any = None
    """(N,) m3"""
    distance: Any = None
    """(N, K) m"""
    direction: Any = None
    """(N, K, 3)"""
    boundary: SourceBoundary | None = None
    mesh: CellMesh | None = None
    """The cells around the points and the faces of the boundary, for drawing"""
    gates: tuple[Gate, ...] = ()
    """Checks of the case; a case that did not pass one of them is not imported"""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready values for the case's record, such as its solver"""


@dataclass(frozen=True)
class UnreadCase:
    """A case that is read only if the dataset does not hold it already."""

    name: str
    files: str
    """A digest that changes when a file of the case, or an option of its import, does"""
    read: Callable[[], SourceCase]
    """Raises InputError or CaseError in one line where it cannot be imported"""


def case_name(place: str) -> str:
    """Make the name of a case from its place in a folder: `runs/a 1` is `runs-a-1`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", place).strip("-._") or "case"
    if len(name) <= MOST_LETTERS:
        return name
    digest = hashlib.blake2b(os.fsencode(place), digest_size=4).hexdigest()
    return f"{name[: MOST_LETTERS - len(digest) - 1]}-{digest}"


def grid_points(*axes: Any) -> np.ndarray:
    """Return (N, d) points of the grid over these coordinates, the last axis fastest."""
    coordinates = np.meshgrid(*(np.asarray(axis) for axis in axes), indexing="ij")
    return np.stack([values.ravel() for values in coordinates], axis=-1)


def check_name(name: object) -> None:
    """Raise InputError for what cannot name a folder of the store."""
    if not isinstance(name, str) or not CASE_NAME.fullmatch(name):
        raise InputError(
            f"import: case {shown(name)} needs a name of letters, digits, '.', '_' and '-',"
            f" {MOST_LETTERS} at most"
        )


def case_record(case: SourceCase, schema: Schema) -> CaseResult:
    """Return the case's record, which depends on the case alone; InputError in one line."""
    split = case.split
    if schema.splits == "drawn" and split is not None:
        raise InputError("splits are drawn; leave out split")
    if schema.splits != "drawn" and split not in SPLITS:
        raise InputError(f"split is {shown(split)}, expected {', '.join(SPLITS)}")
    try:
        values = {str(name): float(value) for name, value in dict(case.parameters).items()}
        parameters = DesignSpace(schema.parameters).check(values)
        text = json.dumps(dict(case.provenance), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"a parameter is no number, or provenance no JSON ({error})") from error
    if why := rejection(list(case.gates)):
        raise InputError(why)
    assert schema.source is not None
    return CaseResult(
        DesignPoint(schema.family, schema.family_revision, parameters, {}),
        "accepted",
        gates=case.gates,
        provenance={
            "solver": "imported",
            "source": asdict(schema.source),
            "wall_time_s": {},
            **json.loads(as_utf8(text)),
        },
        name=case.name,
        split=split,
    )


def as_cloud(case: SourceCase, schema: Schema) -> PointCloud:
    """Convert the case's arrays to the shapes and types of a dataset.

    InputError names the first array that does not follow the schema.
    """
    points = _places(case.points, "points", schema.dimension)
    precision = stored_type_of_points(points, schema.dimension)
    time = None if case.time is None else _numbers(case.time, "time").astype("f8")
    if time is not None and (time.ndim != 1 or not len(time)):
        raise InputError(f"time has shape {time.shape}, expected (T,) seconds")
    frames = () if time is None else (len(time),)
    grid = schema.grid_shape if case.grid_shape is None else tuple(map(int, case.grid_shape))
    boundary, mesh = None, case.mesh
    if (faces := case.boundary) is not None:
        places = _places(faces.points, "boundary/points", schema.dimension)
        kinds, patch = schema.patch_kinds, np.asarray(faces.patch)
        if patch.dtype.kind == "U" and set(patch.tolist()) <= set(kinds):
            patch = np.array([kinds.index(kind) for kind in patch.tolist()], "u1")
        if patch.dtype.kind not in "iu" or not ((patch >= 0) & (patch < len(kinds))).all():
            raise InputError(
                f"boundary/patch must hold the names {', '.join(kinds)} or whole numbers from 0 to"
                f" {len(kinds) - 1}"
            )
        boundary = BoundaryCloud(
            points=places.astype(precision),
            normals=_places(faces.normals, "boundary/normals", schema.dimension).astype("f4"),
            areas=_numbers(faces.areas, "boundary/areas").astype("f4"),
            patch=patch.astype("u1"),
            fields=_fields(faces.fields, schema, (*frames, len(places)), None, "boundary/"),
        )
    volumes, distance, direction = (
        None if values is None else _numbers(values, name).astype("f4")
        for name, values in (
            ("volumes", case.volumes),
            ("distance", case.distance),
            ("direction", case.direction),
        )
    )
    cloud = PointCloud(
        points=points.astype(precision),
        volumes=volumes,
        distance=distance,
        direction=direction,
        patch_kinds=schema.patch_kinds,
        time=time,
        fields=_fields(case.fields, schema, (*frames, len(points)), grid, ""),
        boundary=boundary,
        distance_kinds=schema.distance_kinds,
        grid_shape=None if case.grid_shape is None else grid,
        mesh=None if mesh is None else replace(mesh, points=mesh.points.astype(precision)),
    )
    schema.check(cloud)
    return cloud


def _numbers(values: Any, name: str) -> np.ndarray:
    """Return an array of real numbers that single precision can hold, if they are finite."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is no array ({one_line(error)})") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} is no array of real numbers but of {array.dtype}")
    largest = np.finfo("f4").max
    if wrong := int(np.count_nonzero(np.isfinite(array) & (np.abs(array) > largest))):
        raise InputError(f"{name} holds {wrong} values beyond {largest:.2g}, the largest stored")
    return array


def _places(values: Any, name: str, dimension: int) -> np.ndarray:
    """Return (N, 3) from (N, d)."""
    places = _numbers(values, name)
    if places.ndim == 1 and dimension == 1:
        places = places[:, None]
    if places.ndim != 2 or places.shape[1] not in (dimension, 3) or not len(places):
        raise InputError(f"{name} has shape {places.shape}, expected (N, {dimension})")
    if places[:, dimension:].any():
        raise InputError(f"{name} of a {dimension}D case must have zeros behind")
    if wrong := int(np.count_nonzero(~np.isfinite(places))):
        raise InputError(f"{name} holds {wrong} values that are not finite")
    return np.pad(places, ((0, 0), (0, 3 - places.shape[1])))


def _fields(
    given: Mapping[str, Any],
    schema: Schema,
    rows: tuple[int, ...],
    grid: tuple[int, ...] | None,
    place: str,
) -> dict[str, np.ndarray]:
    """Return (*rows, C) by name, from arrays of a grid's shape, too, and without a C of 1."""
    wanted = {each.name: each for each in (schema.boundary_fields if place else schema.fields)}
    fields = {}
    for name, values in given.items():
        if name not in wanted:
            raise InputError(f"{place}fields: unknown {shown(name)}; expected {', '.join(wanted)}")
        array, components = _numbers(values, f"{place}{name}"), len(wanted[name].components)
        shape = (*rows, components)
        accepted = [shape] if grid is None else [shape, (*rows[:-1], *grid, components)]
        if components == 1:
            accepted += [each[:-1] for each in accepted]
        if array.shape not in accepted or array.size != math.prod(shape):
            raise InputError(f"{place}{name} has shape {array.shape}, expected {shape}")
        array = array.reshape(shape)
        if wrong := int(np.count_nonzero(~np.isfinite(array))):
            raise InputError(f"{place}{name} holds {wrong} values that are not finite")
        fields[name] = np.ascontiguousarray(array, dtype=stored_type(array))
    return fields
