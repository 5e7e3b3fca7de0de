"""Plots of fields on a 2D point cloud: filled triangles between cell centres, none across a body."""

from __future__ import annotations

from typing import Any

import matplotlib.tri as tri
import numpy as np
from matplotlib.axes import Axes
from scipy.spatial import cKDTree

from simgen.store.reader import StoredCase


def triangulate(case: StoredCase) -> tri.Triangulation:
    """Delaunay triangles of the case's cell centres, those that lie outside the fluid masked.

    A triangle is outside where its centroid lies beyond the nearest boundary face, seen along that face's outward normal.
    """
    points, boundary = case.points[:, :2].astype(float), case.boundary
    triangles = tri.Triangulation(points[:, 0], points[:, 1])
    centroids = points[triangles.triangles].mean(axis=1)
    faces, normals = boundary.points[:, :2].astype(float), boundary.normals[:, :2].astype(float)
    _, nearest = cKDTree(faces).query(centroids)
    beyond = np.einsum("ij,ij->i", centroids - faces[nearest], normals[nearest]) > 0
    triangles.set_mask(beyond)
    return triangles


def draw_field(
    axes: Axes, triangles: tri.Triangulation, values: np.ndarray, *, limits: tuple[float, float], cmap: str
) -> Any:
    """Fill the triangles with values (N,) at their corners; returns the artist for a colour bar."""
    artist = axes.tripcolor(
        triangles, values, shading="gouraud", cmap=cmap, vmin=limits[0], vmax=limits[1], rasterized=True
    )
    axes.set_aspect("equal")
    axes.set_xlim(triangles.x.min(), triangles.x.max())
    axes.set_ylim(triangles.y.min(), triangles.y.max())
    axes.tick_params(labelsize=7)
    return artist


def symmetric(values: np.ndarray) -> tuple[float, float]:
    """Limits around zero that hold all values but the outermost half percent."""
    bound = float(np.quantile(np.abs(values), 0.995)) or 1.0
    return -bound, bound


def spanning(values: np.ndarray) -> tuple[float, float]:
    """Limits that hold all values but the outermost half percent at either end."""
    low, high = np.quantile(values, (0.005, 0.995))
    return float(low), float(high if high > low else low + 1)
