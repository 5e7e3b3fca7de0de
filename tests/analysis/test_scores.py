"""Every score recovers the number that a planted decomposition has in closed form."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.spatial import cKDTree

from courant.analysis import scores
from courant.analysis.case_scores import ErrorAddresses
from courant.analysis.dynamics import pod
from courant.analysis.scores import (
    AnchorFields,
    core_distances,
    following_scores,
    match,
    motion_sums,
    product_sums,
    swirl,
    temporal_moments,
    velocity_gradients,
    vortex_cores,
)
from courant.evaluation.metrics import ratio
from tests.analysis.conftest import grid

GENERATOR = np.random.default_rng(0)


def tiles(per_side: int, num: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split the unit square into square tiles: points, the tiles' centres, each point's tile."""
    points = grid(num)
    column, row = (points[:, :2] * per_side).astype(int).T
    middle = (np.arange(per_side) + 0.5) / per_side
    centres = np.array([(x, y, 0.0) for x in middle for y in middle])
    return points, centres, column * per_side + row


def tile_fields(per_side: int) -> AnchorFields:
    """Fields that are one on their own tile, with the anchor in its middle."""
    points, centres, labels = tiles(per_side)
    fields = (labels == np.arange(len(centres))[:, None])[..., None].astype(float)
    return AnchorFields.of(fields, points, np.ones(len(points)), centres)


def test_fields_joined_from_parts_are_those_of_all_points() -> None:
    points, volumes = grid(6), GENERATOR.uniform(0.5, 2.0, 36)
    fields = GENERATOR.normal(size=(5, 36, 2))
    whole = AnchorFields.of(fields, points, volumes)
    cuts = [slice(0, 10), slice(10, 36)]
    joined = AnchorFields.joined(
        [AnchorFields.of(fields[:, cut], points[cut], volumes[cut]) for cut in cuts]
    )
    for each in dataclasses.fields(AnchorFields):
        if (value := getattr(whole, each.name)) is not None:
            np.testing.assert_allclose(getattr(joined, each.name), value, rtol=1e-12)
    weighted = (volumes[:, None] * fields[1] * fields[3]).sum() / volumes.sum()
    assert whole.gram[1, 3] == pytest.approx(weighted)


def test_tiles_are_local_and_where_their_anchors_are() -> None:
    fields = tile_fields(4)
    np.testing.assert_allclose(fields.centroids, fields.anchors, atol=1e-12)
    np.testing.assert_allclose(fields.total, 1.0)
    np.testing.assert_allclose(fields.energies, 1 / 16)
    assert scores.own_anchor_nearest(fields).all()
    np.testing.assert_allclose(fields.supports, 0.9 / 16)
    assert scores.overlap(fields) == pytest.approx(0.0, abs=1e-12)
    # A square of side s sampled at n x n cell centres: s sqrt((1 - 1/n^2) / 6).
    np.testing.assert_allclose(fields.radii, math.sqrt((1 - 1 / 10**2) / 6) / 4)
    shifted = dataclasses.replace(fields, anchors=np.roll(fields.anchors, 1, axis=0))
    expected = np.linalg.norm(fields.anchors - shifted.anchors, axis=1)
    np.testing.assert_allclose(scores.anchor_distances(shifted), expected)
    assert not scores.own_anchor_nearest(shifted).any()


def test_support_and_centroid_weigh_cells_by_their_volume() -> None:
    volumes = np.array([9.0, 1.0])
    fields = AnchorFields.of(np.array([[[0.0], [5.0]], [[2.0], [2.0]]]), np.eye(2), volumes)
    np.testing.assert_allclose(fields.supports, [0.1, 0.9])
    np.testing.assert_allclose(fields.centroids, [[0, 1], [0.9, 0.1]])


def test_a_field_without_energy_has_no_place_and_spoils_no_other() -> None:
    values = np.zeros((2, 36, 1))
    values[0] = 1.0
    fields = AnchorFields.of(values, grid(6), np.ones(36), np.full((2, 3), 0.5))
    assert np.isnan(fields.centroids[1]).all()
    assert np.isnan(fields.supports).tolist() == [False, True]
    assert scores.own_anchor_nearest(fields).tolist() == [True, False]
    assert scores.overlap(fields) == 0.0


def test_overlap_and_cancellation_of_fields_of_one_shape() -> None:
    shape = GENERATOR.normal(size=(36, 2))
    fields = AnchorFields.of(np.stack([3 * shape, -2 * shape]), grid(6), np.ones(36))
    assert scores.overlap(fields) == pytest.approx(1.0)
    assert scores.cancellation(fields) == pytest.approx(5.0)
    assert scores.cancellation(tile_fields(3)) == pytest.approx(1.0)


def test_economy_of_known_energies() -> None:
    energies = np.array([1.0, 4.0, 3.0, 2.0])
    np.testing.assert_allclose(scores.energy_curve(energies), [0, 0.4, 0.7, 0.9, 1.0])
    # Mean absolute difference over twice the mean: (1*3 + 2*2 + 3*1) * 2 / 16 / (2 * 2.5).
    assert scores.gini(energies) == pytest.approx(0.25)
    assert scores.gini(np.ones(7)) == pytest.approx(0.0)
    assert scores.gini(np.eye(1, 8)[0]) == pytest.approx(1 - 1 / 8)


def test_curves_are_errors_of_fields_that_are_added_up() -> None:
    values, volumes = GENERATOR.normal(size=(5, 36, 2)) + 0.3, GENERATOR.uniform(0.5, 2.0, 36)
    gram = AnchorFields.of(values, grid(6), volumes).gram
    orders = [GENERATOR.permutation(5) for _ in range(3000)]

    def energy(numbers: np.ndarray) -> float:
        return float((volumes[:, None] * values[numbers].sum(axis=0) ** 2).sum())

    order, whole = orders[0], energy(orders[0])
    lost = [energy(order[:taken]) / whole for taken in range(6)]
    left = [energy(order[taken:]) / whole for taken in range(6)]
    np.testing.assert_allclose(scores.deletion_curve(gram, order), lost, atol=1e-12)
    np.testing.assert_allclose(scores.insertion_curve(gram, order), left, atol=1e-12)
    sampled = np.mean([scores.deletion_curve(gram, each) for each in orders], axis=0)
    np.testing.assert_allclose(scores.random_deletion(gram), sampled, atol=0.03)
    orthogonal = np.diag([1.0, 4.0, 3.0, 2.0])
    assert scores.by_energy(orthogonal).tolist() == [1, 2, 3, 0]
    deletion = scores.deletion_curve(orthogonal, scores.by_energy(orthogonal))
    assert scores.area(deletion) == pytest.approx((0.5 + 0.4 + 0.7 + 0.9) / 4)


def test_shuffled_and_scaled_fields_are_matched_again_and_unrelated_ones_hardly() -> None:
    fields, volumes = GENERATOR.normal(size=(6, 50, 2)), GENERATOR.uniform(0.5, 2.0, 50)
    order = np.array([0, 1, 3, 2, 5, 4])
    found = match(product_sums(fields, 2.0 * fields[order], volumes))
    assert found.partners.tolist() == order.tolist()
    assert found.score == pytest.approx(1.0)
    energies = (np.square(fields).sum(-1) * volumes).sum(-1)
    assert found.kept == pytest.approx(energies[:2].sum() / energies.sum())
    weaker = match(product_sums(fields, fields[order][:4], volumes))
    assert (weaker.partners == -1).sum() == 2 and weaker.score < 1
    first, second = GENERATOR.normal(size=(2, 8, 4000, 1))
    assert abs(match(product_sums(first, second, np.ones(4000))).score) < 0.1


def test_contiguity_of_whole_and_of_torn_regions() -> None:
    points, _, labels = tiles(4)
    volumes = np.ones(len(points))
    assert scores.contiguity(labels, points, volumes, 2) == 1.0
    # The outer columns of tiles are one anchor's: one half of its region is apart from the other.
    torn = np.where(labels // 4 == 3, labels % 4, labels)
    assert scores.contiguity(torn, points, volumes, 2) == pytest.approx(0.75)
    scattered = GENERATOR.integers(16, size=len(points))
    assert scores.contiguity(scattered, points, volumes, 2) < 0.15
    assert scores.contiguity(labels, points * [1.0, 0.05, 1.0], volumes, 2) is None


def test_temporal_variance_of_constant_and_oscillating_fields() -> None:
    time = np.arange(12) / 12
    swing = np.stack([np.ones(12), np.cos(2 * np.pi * time), 1 + np.cos(2 * np.pi * time)])
    fields = (swing.T[:, :, None] * GENERATOR.normal(size=30))[..., None]
    cuts = (slice(0, 11), slice(11, 30))
    moments = sum(temporal_moments(fields[:, :, cut], np.ones(30)[cut]) for cut in cuts)
    # 1 + cos has the mean square 3/2, of which 1/2 is its variance.
    np.testing.assert_allclose(ratio(*moments), [0, 1, 1 / 3], atol=1e-12)


def test_a_random_partition_is_at_chance_and_the_nearest_one_is_local() -> None:
    fields = tile_fields(4)
    chance = scores.partition_fields(fields, GENERATOR.integers(16, size=len(fields.points)))
    assert scores.own_anchor_nearest(chance).mean() < 0.4
    assert np.nanmedian(chance.radii) > 0.35
    assert scores.cancellation(chance) == pytest.approx(1.0)
    assert chance.energies.sum() == pytest.approx(float(fields.gram.sum()))
    nearest = scores.partition_fields(fields, cKDTree(fields.anchors).query(fields.points)[1])
    np.testing.assert_allclose(nearest.magnitudes, fields.magnitudes)
    np.testing.assert_allclose(nearest.gram, fields.gram)


def test_projections_on_pod_modes_add_up_to_a_field_of_their_span() -> None:
    points, volumes = grid(8), GENERATOR.uniform(0.5, 2.0, 64)
    shapes, weights = GENERATOR.normal(size=(3, 64, 2)), GENERATOR.normal(size=(9, 3))
    snapshots = 2.0 + np.tensordot(weights, shapes, axes=1)
    projected = pod(snapshots, volumes, rank=16).fields(snapshots[4], volumes)
    fields = AnchorFields.of(projected, points, volumes)
    assert fields.num_anchors == 3
    deviation = snapshots[4] - snapshots.mean(axis=0)
    np.testing.assert_allclose(fields.total, np.linalg.norm(deviation, axis=-1), rtol=1e-9)
    np.testing.assert_allclose(fields.gram - np.diag(fields.energies), 0, atol=1e-12)


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def test_addresses_sum_to_the_error_exactly_and_add_up_over_parts() -> None:
    points, volumes = GENERATOR.normal(size=(300, 3)), GENERATOR.uniform(0.1, 5.0, 300)
    weights = softmax(3 * GENERATOR.normal(size=(300, 20))).astype(np.float32)
    errors = GENERATOR.normal(size=(300, 2))
    cuts = (slice(0, 120), slice(120, 300))
    found = ErrorAddresses.joined(
        [ErrorAddresses.of(weights[c], errors[c], points[c], volumes[c]) for c in cuts]
    )
    total = (volumes[:, None] * errors**2).sum() / volumes.sum()
    assert found.total == pytest.approx(total, rel=1e-13)
    assert found.governed.sum() == pytest.approx(1.0, rel=1e-13)
    np.testing.assert_allclose(found.squared, (errors**2).sum(axis=1))
    seventh = (volumes * weights[:, 7] * (errors**2).sum(axis=1)).sum() / volumes.sum()
    assert found.errors[7] == pytest.approx(seventh, rel=1e-6)
    whole = ErrorAddresses.of(weights, errors, points, volumes)
    np.testing.assert_allclose(found.centres, whole.centres)


def test_a_planted_bad_anchor_is_found_with_its_place() -> None:
    points, centres, labels = tiles(4)
    # Each anchor has weight around its place; number 9 contributes a wrong field.
    distances = np.square(points[:, None] - centres).sum(axis=-1)
    weights, bad, volumes = softmax(-distances / 0.1**2), 9, np.ones(len(points))
    found = ErrorAddresses.of(weights, 0.01 + 3.0 * weights[:, [bad]], points, volumes)
    assert found.worst[0] == bad == found.densities.argmax()
    np.testing.assert_allclose(found.centres[bad], centres[bad], atol=1e-2)
    assert found.worst_part(1 / 16) == pytest.approx(found.errors[bad] / found.total)
    assert found.worst_part(1 / 16) > 0.7 and found.worst_part(1.0) == pytest.approx(1.0)
    # An error everywhere belongs to anchors by volume, and no error to none.
    weights = np.eye(16)[labels]
    found = ErrorAddresses.of(weights, np.full((len(points), 1), 0.5), points, volumes)
    np.testing.assert_allclose(found.densities, 0.25)
    assert found.worst_part(0.25) == pytest.approx(0.25)
    found = ErrorAddresses.of(weights, np.zeros((len(points), 2)), points, volumes)
    assert found.total == 0 and found.worst_part() == 0 and np.isnan(found.centres).all()


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
    assert np.linalg.norm(found[:, None] - places, axis=-1).min(axis=1).max() < 0.03
    assert len(vortex_cores(points, np.zeros(len(points)), 0.1)) == 0


def test_a_field_that_moves_with_a_vortex_follows_it_and_a_fixed_one_does_not() -> None:
    points, along = cloud(), 0.15 + SPEED * np.arange(STEPS)
    places = np.stack([np.stack([along, 0 * along + y], axis=1) for y in (0.3, 0.7)], axis=1)
    cores = [
        vortex_cores(points, swirl(velocity_gradients(points, vortices(points, each))), 0.1)
        for each in places
    ]
    assert [len(each) for each in cores] == [2] * STEPS
    # The first field is a blob on the first vortex, on top of a constant part; the second pulsates
    # in one place.
    blob = [np.exp(-np.square(points - each[0]).sum(axis=1) / (2 * 0.04**2)) for each in places]
    pulse = [
        np.sin(step) * np.exp(-np.square(points - [0.9, 0.5]).sum(axis=1) / (2 * 0.04**2))
        for step in range(STEPS)
    ]
    fields = np.stack([np.stack([a + points[:, 0], b]) for a, b in zip(blob, pulse, strict=True)])
    motion = motion_sums(fields[..., None], points, np.ones(len(points)))
    follows = following_scores(motion[:, :1], cores, 0.1)
    assert follows["vortex_distance"] < 0.5 * follows["vortex_chance"]
    fixed = following_scores(motion[:, 1:], cores, 0.1)
    assert fixed["vortex_distance"] == pytest.approx(fixed["vortex_chance"], rel=0.15)
    assert following_scores(motion, [cores[0], *[np.zeros((0, 2))] * (STEPS - 1)], 0.1) == {}


def test_distances_are_to_the_nearest_core_of_the_step_and_of_all_others() -> None:
    cores = [np.array([[0.0, 0.0], [5.0, 0.0]]), np.zeros((0, 2)), np.array([[1.0, 0.0]])]
    centroids = np.array([[[0.5, 0.0]], [[0.5, 0.0]], [[np.nan, 0.0]]])
    now, others = core_distances(centroids, cores)
    np.testing.assert_allclose(now, [[0.5], [np.nan], [np.nan]])
    np.testing.assert_allclose(others, [[0.5], [0.5], [np.nan]])
