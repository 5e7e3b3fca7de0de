"""Centres, areas and volumes of a mesh small enough to know them."""

import shutil

import numpy as np
import pytest

from simgen.errors import CaseError
from simgen.foam import mesh as geometry
from simgen.foam.mesh import Polygons, read_geometry
from simgen.solving.convert import distance_to_faces
from tests.imports.foam_cases import FoamMesh, Form, write_mesh

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
WALLS = {"walls": "wall"}
OWNER = [0, 0, 0, 0, 0, 1, 1, 1, 1]


@pytest.fixture
def cube(tmp_path):
    behind = [1, *["walls"] * 8]
    mesh = FoamMesh(np.array(POINTS), tuple(zip(FACES, OWNER, behind, strict=True)), WALLS)
    write_mesh(tmp_path, mesh, Form())
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
    np.testing.assert_allclose(found.face_areas[:5].sum(axis=0), 0, atol=1e-15)


def test_a_mesh_that_moves_is_an_error_with_its_place(cube):
    shutil.copytree(cube / "constant/polyMesh", cube / "0.5/polyMesh")
    with pytest.raises(CaseError, match=r"has 0\.5/polyMesh beside constant/polyMesh"):
        read_geometry(cube)


def faces_of(polygons):
    points = np.concatenate(polygons)
    offsets = np.concatenate([[0], np.cumsum([len(polygon) for polygon in polygons])])
    return Polygons(points=points, face_offsets=offsets, face_points=np.arange(len(points)))


def nearest_on_segment(place, start, end):
    along = np.dot(place - start, end - start) / max(np.dot(end - start, end - start), 1e-300)
    return start + np.clip(along, 0, 1) * (end - start)


def nearest_on_triangle(place, a, b, c):
    """The foot on the triangle's plane where it lies inside, else the nearest point of an edge."""
    plane = np.stack([b - a, c - a], axis=1)
    (u, v), *_ = np.linalg.lstsq(plane, place - a, rcond=None)
    if np.linalg.matrix_rank(plane) == 2 and u >= 0 and v >= 0 and u + v <= 1:
        return a + plane @ (u, v)
    edges = [nearest_on_segment(place, *edge) for edge in ((a, b), (b, c), (c, a))]
    return min(edges, key=lambda point: np.linalg.norm(point - place))


def nearest_of_all(place, polygons):
    points = [
        nearest_on_triangle(place, polygon[0], polygon[k], polygon[k + 1])
        for polygon in polygons
        for k in range(1, len(polygon) - 1)
    ]
    return min(points, key=lambda point: np.linalg.norm(point - place))


@pytest.mark.parametrize("seed", range(3))
def test_distances_are_those_of_every_face_tried_in_turn(seed):
    rng = np.random.default_rng(seed)
    sizes = 10 ** rng.uniform(-2, 1, 60)
    polygons = [
        rng.uniform(-2, 2, 3) + size * (rng.random((3 + number % 3, 3)) - 0.5)
        for number, size in enumerate(sizes)
    ]
    polygons.append(np.array([(0.0, 0, 0), (1, 1, 1), (2, 2, 2)]))  # a face that is but a line
    places = rng.uniform(-3, 3, (40, 3))
    chosen = np.arange(seed % 2, len(polygons), 2)
    distance, direction = distance_to_faces(places, faces_of(polygons), chosen)
    expected = np.array([nearest_of_all(place, polygons[seed % 2 :: 2]) for place in places])
    np.testing.assert_allclose(distance, np.linalg.norm(expected - places, axis=1), rtol=1e-9)
    np.testing.assert_allclose(places + distance[:, None] * direction, expected, atol=1e-9)
