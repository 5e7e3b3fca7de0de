"""Plot fields on a point cloud: filled triangles in 2D, the middle plane of 3D, a line in 1D.

Triangles connect cell centres, but never across a body.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import matplotlib.tri as tri
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from scipy.spatial import cKDTree

from simgen.point_cloud import PointCloud
from simgen.store.read import StoredCase

#: The longest side of a triangle in a middle plane, in cells.
LONGEST_SIDE = 3.0
#: Where no boundary is known, a triangle's size is compared with a point's distance to this
#: neighbour: the nearest ones may all lie in one direction, across a boundary layer.
NEIGHBOUR = 8


@dataclass(frozen=True)
class Triangles:
    """A triangulation of a case's cell centres and boundary faces.

    `cell` is the cell from which each corner takes its value.
    """

    triangulation: tri.Triangulation
    cell: np.ndarray
    axes: tuple[int, int] = (0, 1)
    """The coordinates that run across and up"""
    position: float = 0.0
    """Position of the plane on the third axis, in m"""

    @property
    def plane(self) -> str:
        """Format as `y = 0.025 m`."""
        # + 0.0 removes the sign of a negative zero.
        return f"{'xyz'[3 - sum(self.axes)]} = {round(self.position, 9) + 0.0:.3g} m"

    @property
    def aspect(self) -> float:
        """Height over width."""
        shape = self.triangulation
        return float(np.ptp(shape.y) / np.ptp(shape.x))


@dataclass(frozen=True)
class Line:
    """The points of a 1D case, or of one that spans no area, from left to right."""

    x: np.ndarray
    """(N,) m along the first of the axes, in order"""
    cell: np.ndarray
    """(N,), the index of each point in the case"""
    axes: tuple[int, int] = (0, 1)
    aspect: float = 0.6
    """Height over width of the picture"""


Layer = Triangles | Line


def layer(case: StoredCase) -> Layer:
    """Choose what is drawn of a case: all of a 1D or 2D one, the middle plane of a 3D one.

    Points that span no area are drawn as a line.
    """
    points = case.points.astype(float)
    if case.dataset.schema.dimension == 1:
        return line(points)
    try:
        return _triangles(case, points)
    except (ValueError, RuntimeError):  # matplotlib's: fewer than three corners, or all in line
        return line(points)


def line(points: np.ndarray) -> Line:
    """Return points (N, 3) along the axis on which they reach furthest."""
    axis = int(np.argmax(np.ptp(points, axis=0)))
    order = np.argsort(points[:, axis], kind="stable")
    return Line(points[order, axis], order, (axis, (axis + 1) % 3))


def _triangles(case: StoredCase, points: np.ndarray) -> Triangles:
    schema = case.dataset.schema
    if schema.dimension == 3:
        return middle_plane(points, point_spacing(case))
    if case.grid_shape is not None:
        return grid_triangles(points, case.grid_shape)
    return triangulate(case) if schema.boundary else open_triangles(points)


def layer_of_cloud(cloud: PointCloud, dimension: int) -> Layer:
    """Choose as `layer` does for a cloud with cells and boundary that is not stored."""
    if dimension == 3 and cloud.volumes is not None:
        return middle_plane(cloud.points.astype(float), np.cbrt(cloud.volumes.astype(float)))
    return triangulate(cloud)


def point_spacing(case: StoredCase) -> np.ndarray:
    """Return (N,) m: the width of the cells, or the spacing of the points."""
    if case.dataset.schema.volumes:
        return np.cbrt(case.volumes.astype(float))
    points = case.points.astype(float)
    return np.asarray(cKDTree(points).query(points, k=2)[0][:, 1])


def grid_triangles(points: np.ndarray, shape: tuple[int, ...]) -> Triangles:
    """Split each cell of a regular grid of points (N, 3), last axis fastest, into two triangles."""
    number = np.arange(len(points)).reshape(shape)
    low, right, up, far = number[:-1, :-1], number[1:, :-1], number[:-1, 1:], number[1:, 1:]
    corners = [np.stack([low, right, far], axis=-1), np.stack([low, far, up], axis=-1)]
    triangles = np.concatenate([each.reshape(-1, 3) for each in corners])
    return Triangles(
        tri.Triangulation(points[:, 0], points[:, 1], triangles), np.arange(len(points))
    )


def open_triangles(points: np.ndarray) -> Triangles:
    """Triangulate points (N, 3) in the plane whose boundary is unknown.

    Delaunay triangles much larger than the spacing of the points reach across a body and are left
    out.
    """
    plane = points[:, :2]
    triangulation = tri.Triangulation(plane[:, 0], plane[:, 1])
    near = cKDTree(plane).query(plane, k=min(NEIGHBOUR + 1, len(plane)))[0][:, -1]
    _mask_long(triangulation, plane, near)
    return Triangles(triangulation, np.arange(len(points)))


def _is_mostly_masked(triangulation: tri.Triangulation) -> bool:
    return triangulation.mask is not None and bool(triangulation.mask.mean() > 0.5)


def _mask_long(triangulation: tri.Triangulation, points: np.ndarray, sizes: np.ndarray) -> None:
    """Mask triangles with a side much longer than the sizes (N,) at their corners."""
    corners = points[triangulation.triangles]
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    triangulation.set_mask(longest > LONGEST_SIDE * sizes[triangulation.triangles].max(axis=1))


def triangulate(case: StoredCase | PointCloud) -> Triangles:
    """Triangulate by Delaunay, and mask triangles outside the domain.

    A triangle is outside if its centroid lies beyond the nearest boundary face, along that face's
    outward normal. Boundary faces are corners too, so that bodies keep their shape; they are drawn
    with their nearest cell's value.
    """
    cells, boundary = case.points[:, :2].astype(float), case.boundary
    if boundary is None:
        return open_triangles(case.points.astype(float))
    faces, normals = boundary.points[:, :2].astype(float), boundary.normals[:, :2].astype(float)
    points = np.concatenate([cells, faces])
    triangulation = tri.Triangulation(points[:, 0], points[:, 1])
    centroids = points[triangulation.triangles].mean(axis=1)
    _, nearest = cKDTree(faces).query(centroids)
    triangulation.set_mask(np.einsum("ij,ij->i", centroids - faces[nearest], normals[nearest]) > 0)
    return Triangles(
        triangulation, np.concatenate([np.arange(len(cells)), cKDTree(cells).query(faces)[1]])
    )


def middle_plane(points: np.ndarray, sizes: np.ndarray) -> Triangles:
    """Return the layer of points (N, 3) around the middle plane of the cloud's thinnest axis."""
    thin = thinnest_axis(points)
    position = float(np.sort(points[:, thin])[len(points) // 2])
    return section(points, sizes, thin, position)


def thinnest_axis(points: np.ndarray) -> int:
    """Return the axis along which a cloud (N, 3) is thinnest."""
    return int(np.argmin(np.ptp(points, axis=0)))


def section(points: np.ndarray, sizes: np.ndarray, axis: int, position: float) -> Triangles:
    """Return the layer of points (N, 3) around a plane across an axis.

    A point belongs to it within half a cell of the plane, by the `sizes` (N,). Triangles with a
    side of more than three cells reach across a body or out of the domain, and are masked. Where
    that would be most of them, cells are stretched: then their spacing in the plane counts, and
    where that masks most of them too, none is masked.
    ValueError for a plane with fewer than three points.
    """
    across, up = (each for each in range(3) if each != axis)
    cell = np.flatnonzero(np.abs(points[:, axis] - position) <= 0.5 * sizes + 1e-9)
    if len(cell) < 3:
        raise ValueError(f"no cells around {'xyz'[axis]} = {position:g} m")
    triangulation = tri.Triangulation(points[cell, across], points[cell, up])
    _mask_long(triangulation, points[cell], sizes[cell])
    if _is_mostly_masked(triangulation):
        plane = points[cell][:, [across, up]]
        near = cKDTree(plane).query(plane, k=min(NEIGHBOUR + 1, len(plane)))[0][:, -1]
        _mask_long(triangulation, plane, near)
    if _is_mostly_masked(triangulation):
        triangulation.set_mask(None)
    return Triangles(triangulation, cell, (across, up), position)


def draw_field(
    axes: Axes,
    triangles: Layer,
    values: np.ndarray,
    *,
    limits: tuple[float, float],
    cmap: str | Colormap,
) -> ScalarMappable | None:
    """Fill the triangles with the cells' values (N,), or draw the line.

    Returns the artist for a colour bar; None for a line.
    """
    if isinstance(triangles, Line):
        axes.plot(triangles.x, values[triangles.cell], lw=1.2, color="#0b5fa5")
        axes.set(ylim=_with_margin(*limits), xlabel=f"{'xyz'[triangles.axes[0]]} (m)")
        axes.grid(alpha=0.25)
        return None
    shape = triangles.triangulation
    artist = axes.tripcolor(
        shape,
        values[triangles.cell],
        shading="gouraud",
        cmap=cmap,
        vmin=limits[0],
        vmax=limits[1],
        rasterized=True,
    )
    axes.set_aspect("equal")
    axes.set_xlim(shape.x.min(), shape.x.max())
    axes.set_ylim(shape.y.min(), shape.y.max())
    axes.set(xticks=[], yticks=[])
    return artist


def add_colorbar(
    figure: Figure, artist: ScalarMappable | None, axes: Any, **style: Any
) -> Colorbar | None:
    """Add the colour bar of what `draw_field` has drawn; a line has its own axis."""
    return None if artist is None else figure.colorbar(artist, ax=axes, **style)


def _with_margin(low: float, high: float) -> tuple[float, float]:
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def symmetric(values: np.ndarray) -> tuple[float, float]:
    """Return limits around zero that hold all values but the outermost half percent."""
    bound = float(np.quantile(np.abs(values), 0.995)) or 1.0
    return -bound, bound


def spanning(values: np.ndarray) -> tuple[float, float]:
    """Return limits that hold all values but the outermost half percent at either end."""
    low, high = np.quantile(values, (0.005, 0.995))
    return float(low), float(high if high > low else low + 1)


DPI = 110


def png_bytes(figure: Figure, dpi: int = DPI) -> bytes:
    """Return the figure as a PNG file's content."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()
