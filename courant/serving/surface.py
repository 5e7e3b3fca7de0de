"""Answer the explorer's page: the boundary of a predicted 3D design, with the field beside it."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel
from scipy.spatial import cKDTree

from courant.prediction.design import PredictedDesign
from courant.serving.designs import DesignRequest, read_design
from courant.serving.explorer import Explored, short
from courant.serving.requests import Refusal
from simgen.cell_mesh import CellMesh


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
