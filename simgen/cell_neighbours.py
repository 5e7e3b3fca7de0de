"""List the cells that share a face with each cell of a mesh.

Cells are neighbours where they have a face's corners in common, unless that face belongs to the
boundary: two cells on either side of a thin wall are not. Faces of meshes that do not conform,
where several small faces lie on a large one, connect nothing.
"""

from __future__ import annotations

import numpy as np

from simgen.cell_mesh import HEXAHEDRON, POLYGON, PYRAMID, QUAD, TETRA, TRIANGLE, WEDGE, CellMesh

_FACES: dict[int, tuple[tuple[int, ...], ...]] = {
    TETRA: ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)),
    PYRAMID: ((0, 1, 2, 3), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)),
    WEDGE: ((0, 1, 2), (3, 4, 5), (0, 1, 4, 3), (1, 2, 5, 4), (2, 0, 3, 5)),
    HEXAHEDRON: (
        (0, 1, 2, 3),
        (4, 5, 6, 7),
        (0, 1, 5, 4),
        (1, 2, 6, 5),
        (2, 3, 7, 6),
        (3, 0, 4, 7),
    ),
}
"""The faces of a cell by its corners, in VTK's order; a flat cell has its sides"""
_FLAT = (TRIANGLE, QUAD, POLYGON)
_MOST_CORNERS = 4
"""Of a face between two cells: none of the cells has larger ones"""
NONE = -1


def face_neighbours(mesh: CellMesh, num_cells: int) -> np.ndarray:
    """Return (N, k) i4: for each of the first N cells the numbers of its neighbours, then -1.

    k is the most neighbours of any cell.
    """
    corners, owners = _faces_of_cells(mesh, num_cells)
    closed = _keys(_boundary_faces(mesh, num_cells))
    keys = _keys(corners)
    order = np.lexsort(keys.T)
    keys, owners = keys[order], owners[order]
    # Equal faces now follow each other; the face of two cells occurs twice.
    first = np.flatnonzero((keys[1:] == keys[:-1]).all(axis=1))
    if len(closed):
        first = first[~_occurs(keys[first], closed)]
    pairs = np.stack([owners[first], owners[first + 1]], axis=1)
    return _as_lists(np.concatenate([pairs, pairs[:, ::-1]]), num_cells)


def _faces_of_cells(mesh: CellMesh, num_cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners (F, 4) of each cell's faces, padded by -1, and the cells (F,)."""
    corners = [np.zeros((0, _MOST_CORNERS), np.int64)]
    owners = [np.zeros(0, np.int64)]
    for kind, cells, members in mesh.blocks(0, num_cells):
        around = range(cells.shape[1])
        sides = tuple((n, (n + 1) % cells.shape[1]) for n in around)
        for face in sides if kind in _FLAT else _FACES[kind]:
            corners.append(_padded(cells[:, list(face)]))
            owners.append(members)
    return np.concatenate(corners), np.concatenate(owners)


def _boundary_faces(mesh: CellMesh, num_cells: int) -> np.ndarray:
    """Return the corners (B, 4) of the boundary's faces; a polygon of more has no cell here."""
    blocks = mesh.blocks(num_cells, len(mesh.starts) - num_cells)
    small = [_padded(each) for _, each, _ in blocks if each.shape[1] <= _MOST_CORNERS]
    return np.concatenate([np.zeros((0, _MOST_CORNERS), np.int64), *small])


def _padded(corners: np.ndarray) -> np.ndarray:
    missing = _MOST_CORNERS - corners.shape[1]
    return np.pad(corners.astype(np.int64), ((0, 0), (0, missing)), constant_values=NONE)


def _keys(corners: np.ndarray) -> np.ndarray:
    """Return (F, 2), equal for equal sets of corners: two sorted corners in each 64-bit number."""
    ordered = np.sort(corners, axis=1) - NONE
    return (ordered[:, 0::2] << 32) | ordered[:, 1::2]


def _occurs(keys: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Tell which of the keys (F, 2) are among others, (F,) bool."""
    _, number = np.unique(np.concatenate([among, keys]), axis=0, return_inverse=True)
    number = number.reshape(-1)
    return np.isin(number[len(among) :], number[: len(among)])


def _as_lists(pairs: np.ndarray, num_cells: int) -> np.ndarray:
    """Return (N, k) i4 of the pairs (P, 2) from a cell to its neighbour."""
    pairs = pairs[np.lexsort(pairs.T[::-1])]
    count = np.bincount(pairs[:, 0], minlength=num_cells)
    place = np.arange(len(pairs)) - np.repeat(np.cumsum(count) - count, count)
    lists = np.full((num_cells, int(count.max(initial=0))), NONE, dtype=np.int32)
    lists[pairs[:, 0], place] = pairs[:, 1]
    return lists
