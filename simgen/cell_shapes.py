"""Draw cells and faces as meshio's meshes, or points where these are not on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import meshio
import numpy as np

from simgen.cell_mesh import NAMES, CellMesh

Place = Literal["cells", "points"]
#: VTK's symmetric tensors are xx, yy, zz, xy, yz, xz; OpenFOAM's, and ours, xx, xy, xz, yy, yz, zz.
VTK_SYMMETRIC = [0, 3, 5, 1, 4, 2]
"""Where one order has the other's components: the same both ways"""


@dataclass(frozen=True)
class Shape:
    """A mesh for fields on its cells or its points."""

    mesh: meshio.Mesh
    on: Place
    order: np.ndarray | None = None
    """Which value belongs to each cell, where the mesh lists them by type; None = as they are"""

    def filled(self, data: Mapping[str, np.ndarray]) -> meshio.Mesh:
        """Return the mesh with arrays (N,) or (N, C), in VTK's shapes."""
        arrays = {name: _as_vtk(values) for name, values in data.items()}
        mesh = meshio.Mesh(self.mesh.points, self.mesh.cells)
        if self.on == "points":
            mesh.point_data = arrays
            return mesh
        if self.order is not None:
            arrays = {name: values[self.order] for name, values in arrays.items()}
        ends = np.cumsum([len(block.data) for block in mesh.cells])[:-1]
        mesh.cell_data = {name: np.split(values, ends) for name, values in arrays.items()}
        return mesh


def points_shape(points: np.ndarray) -> Shape:
    """Return a mesh of points (N, 3), each a cell of its own."""
    vertices = [("vertex", np.arange(len(points))[:, None])]
    return Shape(meshio.Mesh(points, vertices), "points")


class HasCells(Protocol):
    """A stored case, or a cloud that is not stored."""

    @property
    def points(self) -> np.ndarray:
        """(N, 3) m"""

    @property
    def mesh(self) -> CellMesh | None:
        """The cells around the points, and the boundary's faces; None where not on record."""


def cells_of(cloud: HasCells) -> Shape:
    """Return the cells, or the points where these are not on record."""
    points, mesh = cloud.points, cloud.mesh
    return points_shape(points) if mesh is None else _shape(mesh, 0, len(points))


def faces_of(cloud: HasCells, centres: np.ndarray) -> Shape:
    """Return the faces of the boundary, by their centres (B, 3) m, or these themselves."""
    if cloud.mesh is None:
        return points_shape(centres)
    return _shape(cloud.mesh, len(cloud.points), len(centres))


def _shape(mesh: CellMesh, first: int, number: int) -> Shape:
    blocks = mesh.blocks(first, number)
    cells = [(NAMES[kind], corners) for kind, corners, _ in blocks]
    order = np.concatenate([members for _, _, members in blocks])
    return Shape(meshio.Mesh(mesh.points, cells), "cells", order)


def _as_vtk(values: np.ndarray) -> np.ndarray:
    """Reshape (N, C): scalars become (N,), 2D vectors get a third component.

    Six components are those of a symmetric tensor, in VTK's order.
    """
    if values.ndim == 1:
        return values
    number = values.shape[-1]
    if number == 1:
        return values[:, 0]
    if number == len(VTK_SYMMETRIC):
        return values[:, VTK_SYMMETRIC]
    return np.pad(values, ((0, 0), (0, 1))) if number == 2 else values
