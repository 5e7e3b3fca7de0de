"""Cells by their corners, from the faces of a polyMesh."""

import numpy as np
import pytest

from simgen.cell_mesh import (
    HEXAHEDRON,
    PYRAMID,
    QUAD,
    TETRA,
    TRIANGLE,
    WEDGE,
    CellMesh,
    face_neighbours,
)
from simgen.errors import InputError
from simgen.foam.mesh import MeshGeometry, cell_mesh, vtk_cell

#: VTK's faces of each kind of cell, by corners.
FACES = {
    TETRA: ((0, 1, 3), (1, 2, 3), (2, 0, 3), (0, 2, 1)),
    PYRAMID: ((0, 3, 2, 1), (0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)),
    WEDGE: ((0, 1, 2), (3, 5, 4), (0, 3, 4, 1), (1, 4, 5, 2), (2, 5, 3, 0)),
    HEXAHEDRON: ((0, 4, 7, 3), (1, 2, 6, 5), (0, 1, 5, 4),
                 (3, 7, 6, 2), (0, 3, 2, 1), (4, 5, 6, 7)),
}  # fmt: skip
POINTS = np.array(
    [*[(x, y, z) for x in (0, 1, 2) for z in (0, 1) for y in (0, 1)],
     (3, 0.5, 0.5), (0.5, 2, 0.5), (1.5, 2, 0.5), (0.5, 3, 3)], dtype=float
)  # fmt: skip
#: Two hexahedra in a row, a pyramid at their end, a wedge and a tetrahedron on top.
CELLS = [
    (HEXAHEDRON, (0, 4, 5, 1, 2, 6, 7, 3)),
    (HEXAHEDRON, (4, 8, 9, 5, 6, 10, 11, 7)),
    (PYRAMID, (8, 9, 11, 10, 12)),
    (WEDGE, (1, 3, 13, 5, 7, 14)),
    (TETRA, (1, 3, 13, 15)),
]


def faces_of(kind, labels):
    return [[labels[corner] for corner in face] for face in FACES[kind]]


def mesh_of(cells):
    """The same mesh as OpenFOAM keeps it: internal faces first, normals out of their owners."""
    owners = {}
    for number, cell in enumerate(cells):
        for face in faces_of(*cell):
            owners.setdefault(frozenset(face), []).append((number, face))
    shared = [found for found in owners.values() if len(found) == 2]
    outer = [found for found in owners.values() if len(found) == 1]
    faces = [found[0][1] for found in shared + outer]
    geometry = MeshGeometry(
        centres=np.zeros((len(cells), 3)),
        volumes=np.zeros(len(cells)),
        face_centres=np.zeros((len(faces), 3)),
        face_areas=np.zeros((len(faces), 3)),
        owner=np.array([found[0][0] for found in shared + outer]),
        neighbour=np.array([found[1][0] for found in shared]),
        patches={},
        points=POINTS,
        face_offsets=np.cumsum([0, *map(len, faces)]),
        face_points=np.concatenate([np.array(face) for face in faces]),
    )
    boundary = np.arange(len(shared), len(faces))[::-1]
    return geometry, boundary, faces


def test_cells_have_the_faces_that_openfoam_gave_them():
    geometry, boundary, faces = mesh_of(CELLS)
    mesh = cell_mesh(geometry, boundary)
    mesh.check(len(CELLS), len(boundary))
    found = [
        (int(mesh.entries[at]), mesh.entries[at + 2 : at + 2 + mesh.entries[at + 1]].tolist())
        for at in mesh.starts
    ]
    for (kind, labels), cell in zip(found, CELLS, strict=False):
        assert kind == cell[0]
        assert set(map(frozenset, faces_of(kind, labels))) == set(map(frozenset, faces_of(*cell)))
        base, tip = POINTS[labels[:3]], POINTS[labels[-1]]
        volume = np.linalg.det([base[1] - base[0], base[2] - base[0], tip - base[0]])
        assert volume < 0 if kind == WEDGE else volume > 0
    assert [labels for _, labels in found[len(CELLS) :]] == [faces[face] for face in boundary]
    assert {kind for kind, _ in found[len(CELLS) :]} == {5, QUAD}


def test_a_polyhedron_leaves_a_case_without_cells():
    geometry, boundary, _ = mesh_of(CELLS)
    two_as_one = np.where(geometry.owner == 1, 0, geometry.owner)
    merged = MeshGeometry(**{**vars(geometry), "owner": two_as_one})
    assert cell_mesh(merged, boundary) is None
    assert vtk_cell([[0, 1, 2]] * 4) is None


def test_entries_that_do_not_fit_are_refused():
    points = np.zeros((4, 3), "f4")
    good = CellMesh(points, np.array([TETRA, 4, 0, 1, 2, 3, 5, 3, 0, 1, 2], "i4"))
    good.check(1, 1)
    for entries, faces, reason in (
        (good.entries[:-1], 1, "cut short"),
        (good.entries[:6], 1, "1 cells and faces, expected 1 and 1"),
        (np.where(good.entries == 3, 9, good.entries)[:6], 0, "a corner is none of its points"),
        (np.array([TETRA, 0], "i4"), 0, "cut short"),
        (np.array([99, 1, 0, TRIANGLE, 1, 0], "i4"), 1, "a cell is none of triangle"),
    ):
        with pytest.raises(InputError, match=reason):
            CellMesh(points, entries).check(1, faces)


def pairs(lists: np.ndarray) -> set[tuple[int, int]]:
    return {(cell, int(each)) for cell, row in enumerate(lists) for each in row if each >= 0}


def test_they_are_openfoams_owners_and_neighbours():
    geometry, boundary, _ = mesh_of(CELLS)
    mesh = cell_mesh(geometry, boundary)
    found = face_neighbours(mesh, len(CELLS))
    neighbour = geometry.neighbour
    owners = geometry.owner[: len(neighbour)]
    expected = set(zip(owners.tolist(), neighbour.tolist(), strict=True))
    assert pairs(found) == expected | {(there, here) for here, there in expected}
    assert found.dtype == np.int32 and found.shape == (len(CELLS), 2)


def test_a_thin_wall_between_two_cells_keeps_them_apart():
    geometry, boundary, faces = mesh_of(CELLS)
    mesh = cell_mesh(geometry, boundary)
    neighbour = geometry.neighbour
    (between,) = (n for n in range(len(neighbour)) if {geometry.owner[n], neighbour[n]} == {0, 1})
    wall = [QUAD, 4, *faces[between][::-1]]
    walled = CellMesh(mesh.points, np.concatenate([mesh.entries, np.array(wall, "i4")]))
    expected = pairs(face_neighbours(mesh, len(CELLS))) - {(0, 1), (1, 0)}
    assert pairs(face_neighbours(walled, len(CELLS))) == expected


@pytest.mark.parametrize(
    ("num", "expected"), [(0, set()), (1, set()), (3, {(0, 1), (1, 0), (0, 2), (2, 0)})]
)
def test_flat_cells_share_their_sides_and_a_cell_alone_has_none(num, expected):
    entries = [QUAD, 4, 0, 1, 3, 2, QUAD, 4, 1, 5, 7, 3, TRIANGLE, 3, 0, 1, 13]
    mesh = CellMesh(POINTS.astype("f4"), np.array(entries[: [0, 6, 12, 17][num]], "i4"))
    found = face_neighbours(mesh, num)
    assert pairs(found) == expected and len(found) == num
