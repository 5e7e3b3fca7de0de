"""Every score recovers the number that a planted decomposition has in closed form."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from courant.analysis.scores import (
    AnchorFields,
    anchor_distances,
    area,
    by_energy,
    cancellation,
    contiguity,
    deletion_curve,
    dominant_anchors,
    energy_curve,
    gini,
    gyration_radii,
    insertion_curve,
    is_connected,
    match,
    nearest_anchor_partition,
    neighbour_pairs,
    overlap,
    own_anchor_nearest,
    pod_fields,
    products,
    random_deletion,
    random_partition,
    spacing,
    support_fractions,
    temporal_moments,
    temporal_variance,
    top_share,
)
from tests.analysis.planted import grid, one_hot, tile_fields, tiles

GENERATOR = np.random.default_rng(0)


def test_fields_gathered_in_parts_are_those_gathered_at_once() -> None:
    points, volumes = grid(6), GENERATOR.uniform(0.5, 2.0, 36)
    fields = GENERATOR.normal(size=(5, 36, 2))
    whole = AnchorFields.of(fields, points, volumes)
    cuts = [slice(0, 10), slice(10, 36)]
    parts = [AnchorFields.of(fields[:, cut], points[cut], volumes[cut]) for cut in cuts]
    joined = AnchorFields.joined(parts)
    for each in dataclasses.fields(AnchorFields):
        if (value := getattr(whole, each.name)) is not None:
            np.testing.assert_allclose(getattr(joined, each.name), value, rtol=1e-12)
    weighted = (volumes[:, None] * fields[1] * fields[3]).sum() / volumes.sum()
    assert whole.gram[1, 3] == pytest.approx(weighted)


def test_tiles_are_local_and_where_their_anchors_are() -> None:
    fields = tile_fields(4)
    np.testing.assert_allclose(fields.centroids, fields.anchors, atol=1e-12)
    assert own_anchor_nearest(fields).all()
    # A uniform field on a tenth of a tile's hundred cells more or less is 90 % of its energy.
    np.testing.assert_allclose(support_fractions(fields), 0.9 / 16)
    assert overlap(fields) == pytest.approx(0.0, abs=1e-12)
    # A square of side s sampled at n x n cell centres: s sqrt((1 - 1/n^2) / 6).
    side = 1 / 4
    radius = side * math.sqrt((1 - 1 / 10**2) / 6)
    np.testing.assert_allclose(gyration_radii(fields), radius)
    assert spacing(1.0, fields.num_anchors) == side


def test_fields_of_other_anchors_are_displaced_by_the_distance_between_them() -> None:
    fields = tile_fields(4)
    shifted = dataclasses.replace(fields, anchors=np.roll(fields.anchors, 1, axis=0))
    distances = anchor_distances(shifted)
    expected = np.linalg.norm(fields.anchors - shifted.anchors, axis=1)
    np.testing.assert_allclose(distances, expected)
    assert not own_anchor_nearest(shifted).any()


def test_support_weighs_cells_by_their_volume() -> None:
    volumes = np.array([9.0, 1.0])
    fields = AnchorFields.of(np.array([[[0.0], [5.0]], [[2.0], [2.0]]]), np.eye(2), volumes)
    np.testing.assert_allclose(support_fractions(fields), [0.1, 0.9])
    np.testing.assert_allclose(fields.centroids, [[0, 1], [0.9, 0.1]])


def test_a_field_without_energy_has_no_place_and_spoils_no_other() -> None:
    values = np.zeros((2, 36, 1))
    values[0] = 1.0
    fields = AnchorFields.of(values, grid(6), np.ones(36), np.full((2, 3), 0.5))
    assert np.isnan(fields.centroids[1]).all()
    assert np.isnan(support_fractions(fields)).tolist() == [False, True]
    assert own_anchor_nearest(fields).tolist() == [True, False]
    assert overlap(fields) == 0.0


def test_fields_of_one_shape_overlap_wholly() -> None:
    shape = GENERATOR.normal(size=(36, 2))
    fields = AnchorFields.of(np.stack([shape, -3 * shape]), grid(6), np.ones(36))
    assert overlap(fields) == pytest.approx(1.0)


def test_economy_of_known_energies() -> None:
    energies = np.array([1.0, 4.0, 3.0, 2.0])
    np.testing.assert_allclose(energy_curve(energies), [0, 0.4, 0.7, 0.9, 1.0])
    assert top_share(energies, 2) == pytest.approx(0.7)
    assert top_share(energies, 8) == 1.0
    # Mean absolute difference over twice the mean: (1*3 + 2*2 + 3*1) * 2 / 16 / (2 * 2.5).
    assert gini(energies) == pytest.approx(0.25)
    assert gini(np.ones(7)) == pytest.approx(0.0)
    assert gini(np.eye(1, 8)[0]) == pytest.approx(1 - 1 / 8)


def test_cancellation_is_one_for_disjoint_fields_and_the_factor_for_opposite_ones() -> None:
    assert cancellation(tile_fields(3)) == pytest.approx(1.0)
    shape = GENERATOR.normal(size=(36, 2))
    fields = AnchorFields.of(np.stack([3 * shape, -2 * shape]), grid(6), np.ones(36))
    assert cancellation(fields) == pytest.approx(5.0)


def test_curves_of_orthogonal_fields_are_their_energies() -> None:
    gram = np.diag([1.0, 4.0, 3.0, 2.0])
    order = by_energy(gram)
    assert order.tolist() == [1, 2, 3, 0]
    deletion = deletion_curve(gram, order)
    np.testing.assert_allclose(deletion, [0, 0.4, 0.7, 0.9, 1.0])
    insertion = insertion_curve(gram, order)
    np.testing.assert_allclose(insertion, [1, 0.6, 0.3, 0.1, 0], atol=1e-12)
    assert area(deletion) == pytest.approx((0.5 + 0.4 + 0.7 + 0.9) / 4)
    np.testing.assert_allclose(random_deletion(gram), np.linspace(0, 1, 5))


def test_curves_are_errors_of_fields_that_are_added_up() -> None:
    values, volumes = GENERATOR.normal(size=(5, 36, 2)) + 0.3, GENERATOR.uniform(0.5, 2.0, 36)
    gram = AnchorFields.of(values, grid(6), volumes).gram
    orders = [GENERATOR.permutation(5) for _ in range(3000)]

    def energy(numbers: np.ndarray) -> float:
        return float((volumes[:, None] * values[numbers].sum(axis=0) ** 2).sum())

    order, whole = orders[0], energy(orders[0])
    lost = [energy(order[:taken]) / whole for taken in range(6)]
    left = [energy(order[taken:]) / whole for taken in range(6)]
    np.testing.assert_allclose(deletion_curve(gram, order), lost, atol=1e-12)
    np.testing.assert_allclose(insertion_curve(gram, order), left, atol=1e-12)
    sampled = np.mean([deletion_curve(gram, each) for each in orders], axis=0)
    np.testing.assert_allclose(random_deletion(gram), sampled, atol=0.03)


def test_fields_that_add_up_to_nothing_have_no_curves() -> None:
    with pytest.raises(ValueError, match="add up to zero"):
        deletion_curve(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.arange(2))


def test_shuffled_and_scaled_fields_are_matched_again() -> None:
    fields, volumes = GENERATOR.normal(size=(6, 50, 2)), GENERATOR.uniform(0.5, 2.0, 50)
    order = np.array([0, 1, 3, 2, 5, 4])
    other = 2.0 * fields[order]

    def energies(each: np.ndarray) -> np.ndarray:
        return np.diagonal(products(each, each, volumes))

    cross = products(fields, other, volumes)
    found = match(cross, energies(fields), energies(other))
    assert found.partners.tolist() == order.tolist()
    assert found.score == pytest.approx(1.0)
    own = energies(fields)[:2].sum() / energies(fields).sum()
    assert found.kept == pytest.approx(own)
    weaker = match(cross[:, :4], energies(fields), energies(other)[:4])
    assert (weaker.partners == -1).sum() == 2 and weaker.score < 1


def test_unrelated_fields_hardly_correlate() -> None:
    first, second = GENERATOR.normal(size=(2, 8, 4000, 1))
    ones = np.ones(4000)
    cross = products(first, second, ones)
    found = match(cross, (first**2).sum((1, 2)), (second**2).sum((1, 2)))
    assert abs(found.score) < 0.1


def test_contiguity_of_whole_and_of_torn_regions() -> None:
    points, _, labels = tiles(4)
    volumes, pairs = np.ones(len(points)), neighbour_pairs(points, 2)
    assert contiguity(labels, volumes, pairs) == 1.0
    # The outer columns of tiles are one anchor's: one half of its region is apart from the other.
    torn = np.where(labels // 4 == 3, labels % 4, labels)
    assert contiguity(torn, volumes, pairs) == pytest.approx(0.75)
    scattered = GENERATOR.integers(16, size=len(points))
    assert contiguity(scattered, volumes, pairs) < 0.15
    assert is_connected(volumes, pairs)
    layer = points * [1.0, 0.05, 1.0][: points.shape[1]]
    assert not is_connected(volumes, neighbour_pairs(layer, 2))


def test_the_dominant_anchor_is_the_one_of_largest_weight() -> None:
    weights = GENERATOR.dirichlet(np.ones(5), 20)
    assert dominant_anchors(weights).tolist() == weights.argmax(1).tolist()


def test_temporal_variance_of_standing_and_swinging_fields() -> None:
    time = np.arange(12) / 12
    swing = np.stack([np.ones(12), np.cos(2 * np.pi * time), 1 + np.cos(2 * np.pi * time)])
    fields = (swing.T[:, :, None] * GENERATOR.normal(size=30))[..., None]
    volumes = np.ones(30)
    moments = sum(
        temporal_moments(fields[:, :, cut], volumes[cut]) for cut in (slice(0, 11), slice(11, 30))
    )
    # 1 + cos has the mean square 3/2, of which 1/2 is its variance.
    np.testing.assert_allclose(temporal_variance(moments), [0, 1, 1 / 3], atol=1e-12)


def test_a_random_partition_is_at_chance_and_the_nearest_one_is_local() -> None:
    fields = tile_fields(4)
    chance = random_partition(fields)
    assert own_anchor_nearest(chance).mean() < 0.4
    assert np.nanmedian(gyration_radii(chance)) > 0.35
    assert cancellation(chance) == pytest.approx(1.0)
    assert chance.energies.sum() == pytest.approx(float(fields.gram.sum()))
    nearest = nearest_anchor_partition(fields)
    np.testing.assert_allclose(nearest.magnitudes, fields.magnitudes)
    np.testing.assert_allclose(nearest.gram, fields.gram)
    nowhere = dataclasses.replace(fields, anchors=None)
    assert nearest_anchor_partition(nowhere) is None


def test_projections_on_pod_modes_add_up_to_a_field_of_their_span() -> None:
    points, volumes = grid(8), GENERATOR.uniform(0.5, 2.0, 64)
    shapes, weights = GENERATOR.normal(size=(3, 64, 2)), GENERATOR.normal(size=(9, 3))
    snapshots = 2.0 + np.tensordot(weights, shapes, axes=1)
    fields = pod_fields(snapshots, snapshots[4], points, volumes, rank=16)
    assert fields.num_anchors == 3
    deviation = snapshots[4] - snapshots.mean(axis=0)
    np.testing.assert_allclose(fields.total, np.linalg.norm(deviation, axis=-1), rtol=1e-9)
    off_diagonal = fields.gram - np.diag(fields.energies)
    np.testing.assert_allclose(off_diagonal, 0, atol=1e-12)


def test_fields_are_scored_by_what_they_hold() -> None:
    labels = np.repeat([0, 1], 18)
    fields = AnchorFields.of(one_hot(labels, 2), grid(6), np.ones(36))
    np.testing.assert_allclose(fields.energies, [0.5, 0.5])
    np.testing.assert_allclose(fields.total, 1.0)
