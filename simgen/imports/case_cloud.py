"""Check the arrays of one case of a source and bring them into the shapes of datasets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from simgen.cell_mesh import CellMesh
from simgen.errors import InputError
from simgen.imports.source_case import SourceBoundary, SourceCase
from simgen.imports.told import shown, told
from simgen.moments import stored_type, stored_type_of_points
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.store.schema import Schema


def as_cloud(case: SourceCase, schema: Schema) -> PointCloud:
    """Convert the case's arrays to the shapes and types of a dataset.

    Where one does not follow the schema, InputError names the array in one line.
    """
    try:
        return _Arrays(case, schema).cloud()
    except InputError as error:
        raise InputError(f"case {case.name}: {told(error)}") from error


class _Arrays:
    """The arrays of one case, with their checks."""

    def __init__(self, case: SourceCase, schema: Schema) -> None:
        self.case, self.schema = case, schema
        own = case.grid_shape
        self.grid = schema.grid_shape if own is None else _whole_numbers(own, "grid_shape")
        self.frames: tuple[int, ...] = ()
        self.points_type = np.dtype("f4")

    def cloud(self) -> PointCloud:
        case, schema = self.case, self.schema
        points = self._places(case.points, "points")
        self.points_type = stored_type_of_points(points, schema.dimension)
        points = points.astype(self.points_type)
        time = self._time()
        self.frames = () if time is None else (len(time),)
        kinds = len(schema.measured_kinds)
        cloud = PointCloud(
            points=points,
            volumes=self._optional(case.volumes, (len(points),), "volumes"),
            distance=self._optional(case.distance, (len(points), kinds), "distance"),
            direction=self._optional(case.direction, (len(points), kinds, 3), "direction"),
            patch_kinds=schema.patch_kinds,
            time=time,
            fields=self._fields(case.fields, len(points), self.grid, ""),
            boundary=self._boundary(),
            distance_kinds=schema.distance_kinds,
            grid_shape=None if case.grid_shape is None else self.grid,
            mesh=self._mesh(),
        )
        schema.check(cloud)
        return cloud

    def _time(self) -> np.ndarray | None:
        if self.case.time is None:
            return None
        time = _numbers(self.case.time, "time").astype("f8")
        if time.ndim != 1 or not len(time) or not np.isfinite(time).all():
            raise InputError(f"time has shape {time.shape}, expected (T,) finite seconds")
        return time

    def _places(self, values: Any, name: str) -> np.ndarray:
        """Return (N, 3) from (N, d)."""
        places, dimension = _numbers(values, name), self.schema.dimension
        if places.ndim == 1 and dimension == 1:
            places = places[:, None]
        if places.ndim != 2 or places.shape[1] not in (dimension, 3) or not len(places):
            raise InputError(f"{name} has shape {places.shape}, expected (N, {dimension})")
        if places[:, dimension:].any():
            raise InputError(f"{name} of a {dimension}D case must have zeros behind")
        return _checked(np.pad(places, ((0, 0), (0, 3 - places.shape[1]))), name)

    def _optional(self, values: Any, shape: tuple[int, ...], name: str) -> np.ndarray | None:
        if values is None:
            return None
        array = _numbers(values, name)
        if array.shape != shape:
            raise InputError(f"{name} has shape {array.shape}, expected {shape}")
        return _checked(array, name).astype("f4")

    def _fields(
        self, given: Mapping[str, Any], length: int, grid: tuple[int, ...] | None, place: str
    ) -> dict[str, np.ndarray]:
        if not isinstance(given, Mapping):
            raise InputError(f"{place}fields must be a mapping from names to arrays")
        wanted = self.schema.boundary_fields if place else self.schema.fields
        names = {each.name for each in wanted}
        unknown = [shown(name) for name in given if name not in names]
        missing = [name for name in names if name not in given]
        if unknown or missing:
            wrong = f"unknown {unknown[0]}" if unknown else f"no {min(missing)}"
            raise InputError(f"{place}fields: {wrong}; expected {', '.join(sorted(names))}")
        return {
            each.name: self._field(
                given[each.name], length, grid, len(each.components), f"{place}{each.name}"
            )
            for each in wanted
        }

    def _field(
        self, values: Any, length: int, grid: tuple[int, ...] | None, components: int, name: str
    ) -> np.ndarray:
        """Return (*frames, length, components)."""
        array = _numbers(values, name)
        shape = (*self.frames, length, components)
        accepted = [shape]
        if grid is not None:
            accepted.append((*self.frames, *grid, components))
        if components == 1:
            accepted += [each[:-1] for each in accepted]
        if array.shape not in accepted or array.size != math.prod(shape):
            raise InputError(f"{name} has shape {array.shape}, expected {shape}")
        array = _checked(array.reshape(shape), name)
        return np.ascontiguousarray(array, dtype=stored_type(array))

    def _mesh(self) -> CellMesh | None:
        mesh = self.case.mesh
        if mesh is None:
            return None
        if not isinstance(mesh, CellMesh):
            raise InputError(f"mesh is a {type(mesh).__name__}, expected a CellMesh")
        return replace(mesh, points=mesh.points.astype(self.points_type))

    def _boundary(self) -> BoundaryCloud | None:
        boundary = self.case.boundary
        if boundary is None:
            return None
        if not isinstance(boundary, SourceBoundary):
            raise InputError(f"boundary is a {type(boundary).__name__}, expected a SourceBoundary")
        points = self._places(boundary.points, "boundary/points")
        normals = self._places(boundary.normals, "boundary/normals")
        areas = self._optional(boundary.areas, (len(points),), "boundary/areas")
        if areas is None:
            raise InputError("boundary/areas is absent")
        return BoundaryCloud(
            points=points.astype(self.points_type),
            normals=normals.astype("f4"),
            areas=areas,
            patch=self._patch(boundary.patch, len(points)),
            fields=self._fields(boundary.fields, len(points), None, "boundary/"),
        )

    def _patch(self, given: Any, length: int) -> np.ndarray:
        kinds = self.schema.patch_kinds
        patch = _array(given, "boundary/patch")
        if patch.shape != (length,):
            raise InputError(f"boundary/patch has shape {patch.shape}, expected ({length},)")
        if patch.dtype.kind == "U" and set(patch.tolist()) <= set(kinds):
            return np.array([kinds.index(kind) for kind in patch.tolist()], "u1")
        if patch.dtype.kind in "iu" and ((patch >= 0) & (patch < len(kinds))).all():
            return patch.astype("u1")
        raise InputError(
            f"boundary/patch must hold the names {', '.join(kinds)} or whole numbers from 0 to"
            f" {len(kinds) - 1}"
        )


def _whole_numbers(values: Any, name: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(value) for value in values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} is no list of whole numbers") from error
    if min(numbers, default=0) < 1:
        raise InputError(f"{name} = {numbers}, expected positive numbers")
    return numbers


def _array(values: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except Exception as error:  # an object's own __array__ may raise anything
        raise InputError(f"{name} is no array ({told(error)})") from error


def _numbers(values: Any, name: str) -> np.ndarray:
    """Return real numbers in whatever shape they have."""
    array = _array(values, name)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} is no array of real numbers but of {array.dtype}")
    return array


def _checked(values: np.ndarray, name: str) -> np.ndarray:
    """Return the values; InputError where some are not finite, or too large for f4."""
    largest = np.finfo("f4").max
    if wrong := int(np.count_nonzero(~np.isfinite(values))):
        raise InputError(f"{name} holds {wrong} values that are not finite")
    if wrong := int(np.count_nonzero(np.abs(values) > largest)):
        raise InputError(f"{name} holds {wrong} values beyond {largest:.2g}, the largest stored")
    return values
