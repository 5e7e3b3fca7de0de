"""Centres, areas and volumes of a mesh small enough to know them."""

import numpy as np
import pytest

from simgen.foam import geometry
from simgen.foam.geometry import read_geometry

HEADER = "FoamFile\n{{\n    version 2.0;\n    format ascii;\n    class {kind};\n    object {name};\n}}\n"

#: The unit cube cut along its diagonal plane x = y: cell 0 holds (1, 0, z), cell 1 holds (0, 1, z).
POINTS = [(x, y, z) for z in (0, 1) for x, y in ((0, 0), (1, 0), (1, 1), (0, 1))]
FACES = [
    (0, 4, 6, 2),
    (0, 1, 5, 4),
    (1, 2, 6, 5),
    (0, 2, 1),
    (4, 5, 6),
    (2, 3, 7, 6),
    (3, 0, 4, 7),
    (0, 3, 2),
    (4, 6, 7),
]
OWNER, NEIGHBOUR = [0, 0, 0, 0, 0, 1, 1, 1, 1], [1]


@pytest.fixture
def cube(tmp_path):
    mesh = tmp_path / "constant" / "polyMesh"
    mesh.mkdir(parents=True)

    def write(name, kind, entries):
        lines = "\n".join(str(entry) for entry in entries)
        (mesh / name).write_text(HEADER.format(kind=kind, name=name) + f"{len(entries)}\n(\n{lines}\n)\n")

    write("points", "vectorField", [f"({x} {y} {z})" for x, y, z in POINTS])
    write("faces", "faceList", [f"{len(face)}({' '.join(map(str, face))})" for face in FACES])
    write("owner", "labelList", OWNER)
    write("neighbour", "labelList", NEIGHBOUR)
    write("boundary", "polyBoundaryMesh", ["walls { type wall; nFaces 8; startFace 1; }"])
    return tmp_path


@pytest.mark.parametrize("block", [1, 2, 2000])
def test_a_cube_of_two_prisms(cube, monkeypatch, block):
    monkeypatch.setattr(geometry, "BLOCK", block)
    found = read_geometry(cube)
    np.testing.assert_allclose(found.volumes, [0.5, 0.5])
    np.testing.assert_allclose(found.centres, [[2 / 3, 1 / 3, 0.5], [1 / 3, 2 / 3, 0.5]])
    np.testing.assert_allclose(found.face_centres[0], [0.5, 0.5, 0.5])
    np.testing.assert_allclose(np.abs(found.face_areas[0]), [1, 1, 0], atol=1e-15)
    np.testing.assert_allclose(found.face_centres[3], [2 / 3, 1 / 3, 0])
    np.testing.assert_allclose(found.face_areas[3], [0, 0, -0.5], atol=1e-15)
    outward = np.concatenate([found.face_areas[:5].sum(axis=0), found.face_areas[5:].sum(axis=0) - found.face_areas[0]])
    np.testing.assert_allclose(outward, 0, atol=1e-15)
