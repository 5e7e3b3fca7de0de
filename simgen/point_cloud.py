"""PointCloud: the arrays of one converted case, validated on construction; what the store writes and reads.

Arrays and their axes (N cells, B boundary faces, K patch kinds, T snapshots; C components of a field):

    points (N, 3) f4 m        cell centres; a 2D case carries z = 0
    volumes (N,) f4 m3        cell volumes (2D: area times the thickness of the slab)
    distance (N, K) f4 m      distance to the nearest face of each patch kind, in the order of `patch_kinds`
    direction (N, K, 3) f4    unit vector from the cell centre to that nearest face
    time (T,) f8 s            snapshot times; None for a steady case
    fields[name] (T, N, C) f4 transient, (N, C) steady
    boundary.points (B, 3), boundary.normals (B, 3) outward unit, boundary.areas (B,) m2, boundary.patch (B,) u1 an index
    into `patch_kinds`, boundary.fields[name] (T, B, C) or (B, C)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from simgen.errors import InputError


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
    volumes: np.ndarray
    distance: np.ndarray
    direction: np.ndarray
    patch_kinds: tuple[str, ...]
    time: np.ndarray | None
    fields: Mapping[str, np.ndarray]
    boundary: BoundaryCloud

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """InputError where shapes do not agree, values are not finite, or times do not increase."""
        cells, kinds, faces = len(self.points), len(self.patch_kinds), len(self.boundary.points)
        frames = () if self.time is None else (len(self.time),)
        expected = {
            "points": (self.points, (cells, 3)),
            "volumes": (self.volumes, (cells,)),
            "distance": (self.distance, (cells, kinds)),
            "direction": (self.direction, (cells, kinds, 3)),
            "boundary/points": (self.boundary.points, (faces, 3)),
            "boundary/normals": (self.boundary.normals, (faces, 3)),
            "boundary/areas": (self.boundary.areas, (faces,)),
            "boundary/patch": (self.boundary.patch, (faces,)),
        }
        for name, values in self.fields.items():
            expected[name] = (values, (*frames, cells, values.shape[-1]))
        for name, values in self.boundary.fields.items():
            expected[f"boundary/{name}"] = (values, (*frames, faces, values.shape[-1]))
        for name, (values, shape) in expected.items():
            if values.shape != shape:
                raise InputError(f"point cloud: {name} has shape {values.shape}, expected {shape}")
            if not np.isfinite(values).all():
                raise InputError(
                    f"point cloud: {name} holds {np.count_nonzero(~np.isfinite(values))} values that are not finite"
                )
        if cells == 0:
            raise InputError("point cloud: no cells")
        if self.time is not None and np.any(np.diff(self.time) <= 0):
            raise InputError("point cloud: snapshot times do not increase")

    @property
    def num_points(self) -> int:
        return len(self.points)

    @property
    def num_snapshots(self) -> int | None:
        return None if self.time is None else len(self.time)
