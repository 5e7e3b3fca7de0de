"""Distances to faces: against every face tried in turn, and where centres mislead."""

import numpy as np
import pytest

from simgen.solving.convert import Polygons, distance_to_faces


def faces_of(polygons):
    points = np.concatenate(polygons)
    offsets = np.concatenate([[0], np.cumsum([len(polygon) for polygon in polygons])])
    centres = np.array([np.mean(polygon, axis=0) for polygon in polygons])
    return Polygons(centres, points, offsets, np.arange(len(points)))


def square(centre, size):
    corners = np.array([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)])
    return np.asarray(centre) + size / 2 * corners


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


def test_a_large_face_is_found_beside_many_small_ones_whose_centres_are_nearer():
    small = [square((9 + x / 10, 9 + y / 10, 1.1), 0.1) for x in range(10) for y in range(10)]
    faces = faces_of([square((5, 5, 0), 10), *small])
    distance, direction = distance_to_faces(
        np.array([[9.5, 9.5, 0.1]]), faces, np.arange(1 + len(small))
    )
    np.testing.assert_allclose(distance, [0.1])
    np.testing.assert_allclose(direction, [[0, 0, -1]], atol=1e-12)


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
    distance, direction = distance_to_faces(places, faces_of(polygons), np.arange(len(polygons)))
    expected = np.array([nearest_of_all(place, polygons) for place in places])
    np.testing.assert_allclose(distance, np.linalg.norm(expected - places, axis=1), rtol=1e-9)
    np.testing.assert_allclose(places + distance[:, None] * direction, expected, atol=1e-9)


def test_only_the_chosen_faces_count():
    faces = faces_of([square((0, 0, 0), 1), square((0, 0, 5), 1)])
    distance, direction = distance_to_faces(np.array([[0.0, 0, 1]]), faces, np.array([1]))
    np.testing.assert_allclose(distance, [4])
    np.testing.assert_allclose(direction, [[0, 0, 1]])
