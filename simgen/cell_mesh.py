"""Hold the cells and boundary faces of a case's mesh by their corners.

`entries` lists the cells in the order of the cloud's points, then the faces in the order of the
boundary's: for each its VTK type, its number of corners, and these as rows of `points`.

Cells are neighbours where they have a face's corners in common, unless that face belongs to the
boundary: two cells on either side of a thin wall are not. Faces of meshes that do not conform,
where several small faces lie on a large one, connect nothing.

meshio, which takes a while to import, is imported where something is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from simgen.errors import InputError

if TYPE_CHECKING:
    import meshio

NAMES = {
    5: "triangle",
    7: "polygon",
    9: "quad",
    10: "tetra",
    12: "hexahedron",
    13: "wedge",
    14: "pyramid",
}
"""meshio's name of each of VTK's types"""
TRIANGLE, POLYGON, QUAD, TETRA, HEXAHEDRON, WEDGE, PYRAMID = NAMES


@dataclass(frozen=True)
class CellMesh:
    """P corners, N cells and B boundary faces."""

    points: np.ndarray  # (P, 3) m, of the type of the case's points
    entries: np.ndarray  # (E,) i4

    def check(self, num_cells: int, num_faces: int) -> None:
        """Raise InputError unless it has so many cells and faces, with corners that exist."""
        if self.points.ndim != 2 or self.points.shape[1] != 3 or self.entries.ndim != 1:
            raise InputError(
                f"mesh: points have shape {self.points.shape}, entries {self.entries.shape},"
                " expected (P, 3) and (E,)"
            )
        if not np.isfinite(self.points).all():
            raise InputError("mesh: points hold values that are not finite")
        starts = self.starts
        if len(starts) != num_cells + num_faces:
            raise InputError(
                f"mesh: it has {len(starts)} cells and faces, expected {num_cells} and {num_faces}"
            )
        if not np.isin(self.entries[starts], list(NAMES)).all():
            raise InputError(f"mesh: a cell is none of {', '.join(NAMES.values())}")
        is_label = np.ones(len(self.entries), dtype=bool)
        is_label[starts] = is_label[starts + 1] = False
        labels = self.entries[is_label]
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.points):
            raise InputError("mesh: a corner is none of its points")

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each cell, then each face, begins in `entries`."""
        entries, starts, at = self.entries.tolist(), [], 0
        while at < len(entries):
            starts.append(at)
            size = entries[at + 1] if at + 1 < len(entries) else 0
            at += 2 + size
            if size < 1 or at > len(entries):
                raise InputError("mesh: its entries are cut short")
        return np.array(starts, dtype=np.int64)

    def blocks(self, first: int, number: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Group entries by type: VTK type, corners (k, n), and which of the entries (k,)."""
        starts = self.starts[first : first + number]
        kinds = np.stack([self.entries[starts], self.entries[starts + 1]], axis=1)
        found = []
        for kind, size in np.unique(kinds, axis=0).tolist():
            members = np.flatnonzero((kinds == (kind, size)).all(axis=1))
            corners = self.entries[starts[members][:, None] + 2 + np.arange(size)]
            found.append((kind, corners, members))
        return found

    def cut(
        self, first: int, number: int, axis: int, position: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return where faces, entries from `first` on, cross a plane across an axis.

        Segments (S, 2, 3) m, and of which of the faces each is (S,); faces in the plane have none.
        """
        segments, faces = [np.zeros((0, 2, 3))], [np.zeros(0, np.int64)]
        for _, corners, members in self.blocks(first, number):
            here = self.points[corners].astype(float)
            there = np.roll(here, -1, axis=1)
            ahead, behind = here[..., axis] - position, there[..., axis] - position
            crosses = (ahead < 0) != (behind < 0)
            crosses &= (crosses.sum(axis=1) == 2)[:, None]
            share = (ahead / np.where(crosses, ahead - behind, 1.0))[..., None]
            segments.append((here + share * (there - here))[crosses].reshape(-1, 2, 3))
            faces.append(members[crosses.any(axis=1)])
        return np.concatenate(segments), np.concatenate(faces)


_FACES: dict[int, tuple[tuple[int, ...], ...]] = {
    TETRA: ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)),
    PYRAMID: ((0, 1, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)),
    WEDGE: ((0, 1, 2), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)),
    HEXAHEDRON: tuple(
        tuple(map(int, face)) for face in ("0123", "4567", "0154", "1265", "2376", "3047")
    ),
}
"""The faces of a cell by its corners, in VTK's order; a flat cell has its sides"""
_MOST_CORNERS = 4  # Of a face between two cells: none of the cells has larger ones
NONE = -1


def face_neighbours(mesh: CellMesh, num_cells: int) -> np.ndarray:
    """Return (N, k) i4: for each of the first N cells the numbers of its neighbours, then -1.

    k is the most neighbours of any cell.
    """
    # The corners (F, 4) of each cell's faces, and the cells (F,).
    corners = [np.zeros((0, _MOST_CORNERS), np.int64)]
    owner_blocks = [np.zeros(0, np.int64)]
    for kind, cells, members in mesh.blocks(0, num_cells):
        size = cells.shape[1]
        sides = tuple((n, (n + 1) % size) for n in range(size))
        for face in sides if kind in (TRIANGLE, QUAD, POLYGON) else _FACES[kind]:
            corners.append(_padded(cells[:, list(face)]))
            owner_blocks.append(members)
    keys, owners = _keys(np.concatenate(corners)), np.concatenate(owner_blocks)
    order = np.lexsort(keys.T)
    keys, owners = keys[order], owners[order]
    # Equal faces now follow each other; the face of two cells occurs twice.
    first = np.flatnonzero((keys[1:] == keys[:-1]).all(axis=1))
    # Of the boundary's faces, a polygon of more corners has no cell here.
    blocks = mesh.blocks(num_cells, len(mesh.starts) - num_cells)
    closed = [_padded(each) for _, each, _ in blocks if each.shape[1] <= _MOST_CORNERS]
    if closed:
        closed_keys = _keys(np.concatenate(closed))
        both = np.concatenate([closed_keys, keys[first]])
        number = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
        first = first[~np.isin(number[len(closed_keys) :], number[: len(closed_keys)])]
    pairs = np.stack([owners[first], owners[first + 1]], axis=1)
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = pairs[np.lexsort(pairs.T[::-1])]
    count = np.bincount(pairs[:, 0], minlength=num_cells)
    place = np.arange(len(pairs)) - np.repeat(np.cumsum(count) - count, count)
    lists = np.full((num_cells, int(count.max(initial=0))), NONE, dtype=np.int32)
    lists[pairs[:, 0], place] = pairs[:, 1]
    return lists


def _padded(corners: np.ndarray) -> np.ndarray:
    missing = _MOST_CORNERS - corners.shape[1]
    return np.pad(corners.astype(np.int64), ((0, 0), (0, missing)), constant_values=NONE)


def _keys(corners: np.ndarray) -> np.ndarray:
    """Return (F, 2), equal for equal sets of corners: two sorted corners in each 64-bit number."""
    ordered = np.sort(corners, axis=1) - NONE
    return (ordered[:, 0::2] << 32) | ordered[:, 1::2]


# Cells and faces as meshio's meshes.

#: VTK's symmetric tensors are xx, yy, zz, xy, yz, xz; OpenFOAM's, and ours, xx, xy, xz, yy, yz, zz.
VTK_SYMMETRIC = [0, 3, 5, 1, 4, 2]  # Where one order has the other's components: the same both ways


@dataclass(frozen=True)
class Shape:
    """A mesh for fields on its cells or its points."""

    mesh: meshio.Mesh
    on: Literal["cells", "points"]
    order: np.ndarray | None = None
    """Which value belongs to each cell, where the mesh lists them by type; None = as they are"""

    def filled(self, data: Mapping[str, np.ndarray]) -> meshio.Mesh:
        """Return the mesh with arrays (N,) or (N, C), in VTK's shapes."""
        arrays = {name: _as_vtk(values) for name, values in data.items()}
        from meshio import Mesh

        mesh = Mesh(self.mesh.points, self.mesh.cells)
        if self.on == "points":
            mesh.point_data = arrays
            return mesh
        if self.order is not None:
            arrays = {name: values[self.order] for name, values in arrays.items()}
        ends = np.cumsum([len(block.data) for block in mesh.cells])[:-1]
        mesh.cell_data = {name: np.split(values, ends) for name, values in arrays.items()}
        return mesh


def shape_of(mesh: CellMesh | None, places: np.ndarray, first: int = 0) -> Shape:
    """Return the cells at these places (N, 3), from number `first` of the mesh on.

    Each place is a cell of its own where the mesh is not on record.
    """
    from meshio import Mesh

    if mesh is None:
        return Shape(Mesh(places, [("vertex", np.arange(len(places))[:, None])]), "points")
    blocks = mesh.blocks(first, len(places))
    cells = [(NAMES[kind], corners) for kind, corners, _ in blocks]
    order = np.concatenate([members for _, _, members in blocks])
    return Shape(Mesh(mesh.points, cells), "cells", order)


def _as_vtk(values: np.ndarray) -> np.ndarray:
    """Reshape (N, C): scalars become (N,), 2D vectors 3D, symmetric tensors get VTK's order."""
    if values.ndim == 1:
        return values
    number = values.shape[-1]
    if number == 1:
        return values[:, 0]
    if number == len(VTK_SYMMETRIC):
        return values[:, VTK_SYMMETRIC]
    return np.pad(values, ((0, 0), (0, 1))) if number == 2 else values
