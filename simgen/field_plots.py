"""Plots of fields on a point cloud: filled triangles between cell centres, none across a body; in 3D those of a middle plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import matplotlib.tri as tri
import numpy as np
from matplotlib.axes import Axes
from scipy.spatial import cKDTree

from simgen.store.reader import StoredCase

#: Of a triangle of a middle plane, in cells.
LONGEST_SIDE = 3.0


@dataclass(frozen=True)
class Triangles:
    """A triangulation of a case's cell centres and boundary faces, and the cell that each of its corners takes its value from."""

    triangulation: tri.Triangulation
    cell: np.ndarray
    axes: tuple[int, int] = (0, 1)
    """Numbers of the coordinates that run across and up"""
    position: float = 0.0
    """Of the plane on the third axis, in m"""

    @property
    def plane(self) -> str:
        """`y = 0.025 m`"""
        return f"{'xyz'[3 - sum(self.axes)]} = {round(self.position, 9) + 0.0:.3g} m"  # + 0.0: a zero without a sign

    @property
    def aspect(self) -> float:
        """Height over width."""
        shape = self.triangulation
        return float(np.ptp(shape.y) / np.ptp(shape.x))


def layer(case: StoredCase) -> Triangles:
    """What is drawn of a case: all of a 2D one, the middle plane of a 3D one."""
    return triangulate(case) if case.dataset.schema.dimension == 2 else middle_plane(case)


def triangulate(case: StoredCase) -> Triangles:
    """Delaunay triangles, those that lie outside the fluid masked.

    A triangle is outside where its centroid lies beyond the nearest boundary face, seen along that face's outward normal.
    Boundary faces are corners too, so that bodies keep their shape; they are drawn with their nearest cell's value.
    """
    cells, boundary = case.points[:, :2].astype(float), case.boundary
    faces, normals = boundary.points[:, :2].astype(float), boundary.normals[:, :2].astype(float)
    points = np.concatenate([cells, faces])
    triangulation = tri.Triangulation(points[:, 0], points[:, 1])
    centroids = points[triangulation.triangles].mean(axis=1)
    _, nearest = cKDTree(faces).query(centroids)
    triangulation.set_mask(np.einsum("ij,ij->i", centroids - faces[nearest], normals[nearest]) > 0)
    return Triangles(triangulation, np.concatenate([np.arange(len(cells)), cKDTree(cells).query(faces)[1]]))


def middle_plane(case: StoredCase) -> Triangles:
    """The layer of cells of a 3D case that a plane through its middle cell, across the cloud's thinnest axis, passes through.

    Cells count whose centres are within half a cell of it, a cell being the cube root of its volume. Triangles with a side of
    more than three cells reach across a body or out of the domain, and are masked.
    """
    points, sizes = case.points.astype(float), np.cbrt(case.volumes.astype(float))
    thin = int(np.argmin(np.ptp(points, axis=0)))
    across, up = (axis for axis in range(3) if axis != thin)
    position = float(np.sort(points[:, thin])[len(points) // 2])
    cell = np.flatnonzero(np.abs(points[:, thin] - position) <= 0.5 * sizes + 1e-9)
    triangulation = tri.Triangulation(points[cell, across], points[cell, up])
    corners = points[cell][triangulation.triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    triangulation.set_mask(longest > LONGEST_SIDE * sizes[cell][triangulation.triangles].max(axis=1))
    return Triangles(triangulation, cell, (across, up), position)


def draw_field(axes: Axes, triangles: Triangles, values: np.ndarray, *, limits: tuple[float, float], cmap: str) -> Any:
    """Fill the triangles with the cells' values (N,); returns the artist for a colour bar."""
    shape = triangles.triangulation
    artist = axes.tripcolor(
        shape, values[triangles.cell], shading="gouraud", cmap=cmap, vmin=limits[0], vmax=limits[1], rasterized=True
    )
    axes.set_aspect("equal")
    axes.set_xlim(shape.x.min(), shape.x.max())
    axes.set_ylim(shape.y.min(), shape.y.max())
    axes.set(xticks=[], yticks=[])
    return artist


def symmetric(values: np.ndarray) -> tuple[float, float]:
    """Limits around zero that hold all values but the outermost half percent."""
    bound = float(np.quantile(np.abs(values), 0.995)) or 1.0
    return -bound, bound


def spanning(values: np.ndarray) -> tuple[float, float]:
    """Limits that hold all values but the outermost half percent at either end."""
    low, high = np.quantile(values, (0.005, 0.995))
    return float(low), float(high if high > low else low + 1)
