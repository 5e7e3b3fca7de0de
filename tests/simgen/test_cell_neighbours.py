"""Which cells share a face, told from their corners alone."""

import numpy as np
import pytest

from simgen.cell_mesh import QUAD, TRIANGLE, CellMesh, face_neighbours
from simgen.foam.mesh import cell_mesh
from tests.simgen.test_cells import CELLS, POINTS, mesh_of


def pairs(lists: np.ndarray) -> set[tuple[int, int]]:
    return {(cell, int(each)) for cell, row in enumerate(lists) for each in row if each >= 0}


def test_they_are_openfoams_owners_and_neighbours():
    geometry, neighbour, boundary, _ = mesh_of(CELLS)
    mesh = cell_mesh(geometry, neighbour, boundary)
    found = face_neighbours(mesh, len(CELLS))
    owners = geometry.owner[: len(neighbour)]
    expected = set(zip(owners.tolist(), neighbour.tolist(), strict=True))
    assert pairs(found) == expected | {(there, here) for here, there in expected}
    assert found.dtype == np.int32 and found.shape == (len(CELLS), 2)
    for row in found:
        assert sorted(row[row >= 0]) == list(row[: (row >= 0).sum()])


def test_a_thin_wall_between_two_cells_keeps_them_apart():
    geometry, neighbour, boundary, faces = mesh_of(CELLS)
    mesh = cell_mesh(geometry, neighbour, boundary)
    (between,) = (n for n in range(len(neighbour)) if {geometry.owner[n], neighbour[n]} == {0, 1})
    wall = [QUAD, 4, *faces[between][::-1]]
    walled = CellMesh(mesh.points, np.concatenate([mesh.entries, np.array(wall, "i4")]))
    expected = pairs(face_neighbours(mesh, len(CELLS))) - {(0, 1), (1, 0)}
    assert pairs(face_neighbours(walled, len(CELLS))) == expected


def test_flat_cells_share_their_sides():
    entries = [QUAD, 4, 0, 1, 3, 2, QUAD, 4, 1, 5, 7, 3, TRIANGLE, 3, 0, 1, 13]
    mesh = CellMesh(POINTS.astype("f4"), np.array(entries, "i4"))
    assert pairs(face_neighbours(mesh, 3)) == {(0, 1), (1, 0), (0, 2), (2, 0)}


@pytest.mark.parametrize("num", [0, 1])
def test_a_cell_alone_has_none(num):
    entries = [QUAD, 4, 0, 1, 3, 2][: 6 * num]
    found = face_neighbours(CellMesh(POINTS.astype("f4"), np.array(entries, "i4")), num)
    assert found.shape == (num, 0)
