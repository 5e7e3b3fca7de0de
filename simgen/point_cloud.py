"""PointCloud: the arrays of one converted case, checked on construction, as the store keeps them.

Arrays and their axes (N cells, B boundary faces, K patch kinds, T snapshots; C components of a
field):

    points (N, 3) f4 m        cell centres; a 2D case has z = 0
    volumes (N,) f4 m3        cell volumes (2D: area times the thickness of the slab)
    distance (N, K) f4 m      distance to the nearest face of each patch kind, in the order of
                              `measured_kinds`
    direction (N, K, 3) f4    unit vector from the cell centre to that nearest face
    time (T,) f8 s            snapshot times; None for a steady case
    fields[name]              (T, N, C) f4 transient, (N, C) steady
    boundary.points (B, 3)    face centres, m
    boundary.normals (B, 3)   outward unit vectors
    boundary.areas (B,)       m2
    boundary.patch (B,) u1    an index into `patch_kinds`
    boundary.fields[name]     (T, B, C) or (B, C)
    mesh                      the N cells and B faces by their corners (`cell_mesh.py`)

Points and fields are f8 where single precision would lose what varies of them (`simgen.moments`).
Volumes, the distance field, the boundary and the mesh are None in data without them; 1D and 2D
cases have zeros in the unused coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from simgen.cell_mesh import CellMesh
from simgen.errors import InputError

if TYPE_CHECKING:
    from scipy.spatial import cKDTree


def point_tree(points: np.ndarray) -> cKDTree:
    """Return a tree of points (N, d) that finds the nearest ones.

    Its nodes are halved in space. SciPy's usual halves, of equal numbers, end in a segmentation
    fault where many points have a coordinate of zero and the process takes subnormal numbers as
    zero, as a training does.
    """
    from scipy.spatial import cKDTree  # half a second, which few commands need

    return cKDTree(points, balanced_tree=False)


@dataclass(frozen=True)
class BoundaryCloud:
    """Face centres of the domain's boundary with patch kind, outward normal and boundary values."""

    points: np.ndarray
    normals: np.ndarray
    areas: np.ndarray
    patch: np.ndarray
    fields: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class PointCloud:
    """One converted case; see the module's table for shapes and units."""

    points: np.ndarray
    volumes: np.ndarray | None
    distance: np.ndarray | None
    direction: np.ndarray | None
    patch_kinds: tuple[str, ...]
    time: np.ndarray | None
    fields: Mapping[str, np.ndarray]
    boundary: BoundaryCloud | None
    distance_kinds: tuple[str, ...] | None = None
    """The patch kinds with a distance; None = every one"""
    grid_shape: tuple[int, ...] | None = None
    """The grid's shape, if the points are a regular grid; the last axis varies fastest"""
    mesh: CellMesh | None = None
    """The cells around the points, and the faces of the boundary; None where they are not known"""

    def __post_init__(self) -> None:
        """Raise InputError if shapes disagree, values are not finite, or times do not increase."""
        cells, kinds = len(self.points), len(self.measured_kinds)
        if (self.distance is None) != (self.direction is None):
            raise InputError("point cloud: distance and direction belong together")
        expected: dict[str, tuple[np.ndarray | None, tuple[int, ...]]] = {
            "points": (self.points, (cells, 3)),
            "volumes": (self.volumes, (cells,)),
            "distance": (self.distance, (cells, kinds)),
            "direction": (self.direction, (cells, kinds, 3)),
            **self._expected_fields("", self.fields, cells),
        }
        if (boundary := self.boundary) is not None:
            faces = len(boundary.points)
            expected |= {
                "boundary/points": (boundary.points, (faces, 3)),
                "boundary/normals": (boundary.normals, (faces, 3)),
                "boundary/areas": (boundary.areas, (faces,)),
                "boundary/patch": (boundary.patch, (faces,)),
                **self._expected_fields("boundary/", boundary.fields, faces),
            }
        for name, (values, shape) in expected.items():
            if values is None:
                continue
            if values.shape != shape:
                raise InputError(f"point cloud: {name} has shape {values.shape}, expected {shape}")
            if wrong := np.count_nonzero(~np.isfinite(values)):
                raise InputError(f"point cloud: {name} holds {wrong} values that are not finite")
        if cells == 0:
            raise InputError("point cloud: no cells")
        if self.mesh is not None:
            self.mesh.check(cells, 0 if self.boundary is None else len(self.boundary.points))
        if self.time is not None and np.any(np.diff(self.time) <= 0):
            raise InputError("point cloud: snapshot times do not increase")

    def _expected_fields(
        self, place: str, fields: Mapping[str, np.ndarray], length: int
    ) -> dict[str, tuple[np.ndarray | None, tuple[int, ...]]]:
        frames = () if self.time is None else (len(self.time),)
        return {
            f"{place}{name}": (values, (*frames, length, *values.shape[-1:]))
            for name, values in fields.items()
        }

    @property
    def measured_kinds(self) -> tuple[str, ...]:
        """The K patch kinds with a distance."""
        if self.distance is None:
            return ()
        return self.patch_kinds if self.distance_kinds is None else self.distance_kinds

    @property
    def num_points(self) -> int:
        return len(self.points)

    @property
    def num_snapshots(self) -> int | None:
        return None if self.time is None else len(self.time)
