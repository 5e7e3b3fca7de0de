"""Centres, areas and volumes of a mesh small enough to know them."""

import gzip
import shutil

import numpy as np
import pytest

from simgen.errors import CaseError
from simgen.foam import mesh as geometry
from simgen.foam.mesh import read_geometry

HEADER = (
    "FoamFile\n{{\n    version 2.0;\n    format ascii;\n    class {kind};\n    object {name};\n}}\n"
)

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
        (mesh / name).write_text(
            HEADER.format(kind=kind, name=name) + f"{len(entries)}\n(\n{lines}\n)\n"
        )

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
    outward = np.concatenate(
        [found.face_areas[:5].sum(axis=0), found.face_areas[5:].sum(axis=0) - found.face_areas[0]]
    )
    np.testing.assert_allclose(outward, 0, atol=1e-15)


#: Of this hexahedron with one corner drawn out, as OpenFOAM v1912 gives them (postProcess -func
#: writeCellVolumes, writeCellCentres).
WARPED_POINTS = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)]
WARPED_POINTS += [(0, 0, 1), (1, 0, 1), (0, 1, 1), (1.3, 1.2, 1.5)]
WARPED_FACES = ["0 2 3 1", "4 5 7 6", "0 1 5 4", "2 6 7 3", "0 4 6 2", "1 3 7 5"]
WARPED_CENTRE = [0.5683389877600042, 0.5571219517226499, 0.5905795060425039]
WARPED_FACE_CENTRES = [
    (0.5, 0.5, 0),
    (0.5992634297237983, 0.5781785327013447, 1.135488392485029),
    (0.5, 0, 0.5),
    (0.6124836144535895, 1.05486332044531, 0.6556028717807446),
    (0, 0.5, 0.5),
    (1.081863515326693, 0.5864145745634631, 0.6503570633767763),
]


@pytest.fixture
def warped(tmp_path):
    lists = {
        "points": [f"({x} {y} {z})" for x, y, z in WARPED_POINTS],
        "faces": [f"4({face})" for face in WARPED_FACES],
        "owner": [0] * 6,
        "neighbour": [],
        "boundary": ["walls { type wall; nFaces 6; startFace 0; }"],
    }
    (tmp_path / "constant/polyMesh").mkdir(parents=True)
    for name, entries in lists.items():
        text = HEADER.format(kind=name, name=name) + f"{len(entries)}\n("
        text += "\n".join(map(str, entries)) + ")"
        (tmp_path / "constant/polyMesh" / name).write_text(text)
    return tmp_path


def test_a_warped_cell_is_as_openfoam_gives_it(warped):
    found = read_geometry(warped)
    np.testing.assert_allclose(found.face_centres, WARPED_FACE_CENTRES, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.centres, [WARPED_CENTRE], rtol=1e-14)
    np.testing.assert_allclose(found.volumes, [1.25], rtol=1e-14)


def test_a_mesh_that_moves_is_refused_by_the_name_of_its_first_time(warped):
    shutil.copytree(warped / "constant/polyMesh", warped / "0.5/polyMesh")
    with pytest.raises(CaseError, match=r"has 0\.5/polyMesh beside constant/polyMesh"):
        read_geometry(warped)


def test_a_decomposed_case_is_refused_with_the_way_out(warped):
    (warped / "constant").rename(warped / "processor0")
    with pytest.raises(CaseError, match=r"is decomposed \(processor0\); .* reconstructParMesh"):
        read_geometry(warped)


def test_a_packed_mesh_is_read(warped):
    for file in (warped / "constant/polyMesh").iterdir():
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    np.testing.assert_allclose(read_geometry(warped).volumes, [1.25])
