"""Swirl, vortex cores, and fields that follow them, of flows known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from courant.analysis.scores import (
    core_distances,
    following_scores,
    motion_sums,
    moving_centroids,
    swirl,
    velocity_gradients,
    vortex_cores,
)

SIZE, SPEED, STEPS = 0.05, 0.08, 8


def cloud(num: int = 3000, dimension: int = 2) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(num, dimension))


def vortices(points: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Velocities (N, 2) of vortices whose cores rotate rigidly, of alternating sign."""
    found = np.zeros_like(points)
    for number, place in enumerate(places):
        x, y = (points - place).T
        turn = (-1) ** number * np.exp(-(x**2 + y**2) / (2 * SIZE**2))
        found += np.stack([-turn * y, turn * x], axis=1)
    return found


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_gradient_of_a_linear_flow_is_exact(dimension: int) -> None:
    points = cloud(400, dimension)
    gradient = np.random.default_rng(1).normal(size=(dimension, dimension))
    found = velocity_gradients(points, points @ gradient.T)
    np.testing.assert_allclose(found, np.broadcast_to(gradient, found.shape), atol=1e-6)


def test_a_rotation_swirls_at_its_rate_and_a_shear_not_at_all() -> None:
    points = cloud(200)
    turning = np.stack([-3 * points[:, 1], 3 * points[:, 0]], axis=1)
    np.testing.assert_allclose(swirl(velocity_gradients(points, turning)), 3.0, rtol=1e-6)
    shear = np.stack([5 * points[:, 1], 0 * points[:, 0]], axis=1)
    np.testing.assert_allclose(swirl(velocity_gradients(points, shear)), 0.0, atol=1e-3)


def test_cores_are_where_vortices_were_planted_in_a_stream() -> None:
    points = cloud()
    places = np.array([[0.2, 0.3], [0.5, 0.7], [0.8, 0.4]])
    flow = vortices(points, places) + np.array([2.0, 0.0])
    found = vortex_cores(points, swirl(velocity_gradients(points, flow)), 0.1)
    assert len(found) == 3
    nearest = np.linalg.norm(found[:, None] - places, axis=-1).min(axis=1)
    assert nearest.max() < 0.03
    assert len(vortex_cores(points, np.zeros(len(points)), 0.1)) == 0


def moving_places() -> np.ndarray:
    """Two vortices that are carried along, (T, 2, 2)."""
    along = 0.15 + SPEED * np.arange(STEPS)
    return np.stack([np.stack([along, 0 * along + y], axis=1) for y in (0.3, 0.7)], axis=1)


def test_a_field_that_is_carried_with_a_vortex_follows_it_and_one_that_stands_does_not() -> None:
    points, places = cloud(), moving_places()
    cores = [
        vortex_cores(points, swirl(velocity_gradients(points, vortices(points, each))), 0.1)
        for each in places
    ]
    assert [len(each) for each in cores] == [2] * STEPS
    # The first field is a blob on the first vortex, on top of a part that stands still; the second
    # pulsates in one place.
    blob = [np.exp(-np.square(points - each[0]).sum(axis=1) / (2 * 0.04**2)) for each in places]
    pulse = [
        np.sin(step) * np.exp(-np.square(points - [0.9, 0.5]).sum(axis=1) / (2 * 0.04**2))
        for step in range(STEPS)
    ]
    fields = np.stack([np.stack([a + points[:, 0], b]) for a, b in zip(blob, pulse, strict=True)])
    sums = motion_sums(fields[..., None], points, np.ones(len(points)))
    halves = [
        motion_sums(fields[:, :, part, None], points[part], np.ones(len(points[part])))
        for part in (slice(0, 1000), slice(1000, None))
    ]
    np.testing.assert_allclose(np.sum(halves, axis=0), sums)
    centroids = moving_centroids(sums)
    now, others = core_distances(centroids, cores)
    assert now.shape == others.shape == (STEPS, 2)
    follows = following_scores(centroids[:, :1], cores, 0.1)
    assert follows["vortex_distance"] < 0.5 * follows["vortex_chance"]
    stands = following_scores(centroids[:, 1:], cores, 0.1)
    assert stands["vortex_distance"] == pytest.approx(stands["vortex_chance"], rel=0.15)


def test_distances_are_to_the_nearest_core_of_the_step_and_of_all_others() -> None:
    cores = [np.array([[0.0, 0.0], [5.0, 0.0]]), np.zeros((0, 2)), np.array([[1.0, 0.0]])]
    centroids = np.array([[[0.5, 0.0]], [[0.5, 0.0]], [[np.nan, 0.0]]])
    now, others = core_distances(centroids, cores)
    np.testing.assert_allclose(now, [[0.5], [np.nan], [np.nan]])
    np.testing.assert_allclose(others, [[0.5], [0.5], [np.nan]])
    assert following_scores(centroids, cores[:2], 1.0) == {}
