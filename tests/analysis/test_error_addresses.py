"""Errors divide among anchors without a rest, and a planted bad anchor is found."""

from __future__ import annotations

import numpy as np
import pytest

from courant.analysis.error_addresses import ErrorAddresses, address_sums
from tests.analysis.planted import tiles


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def test_addresses_sum_to_the_error_exactly_and_add_up_over_parts() -> None:
    generator = np.random.default_rng(0)
    points, volumes = generator.normal(size=(300, 3)), generator.uniform(0.1, 5.0, 300)
    weights = softmax(3 * generator.normal(size=(300, 20))).astype(np.float32)
    errors = generator.normal(size=(300, 2))
    cuts = (slice(0, 120), slice(120, 300))
    parts = [address_sums(weights[c], errors[c], points[c], volumes[c]) for c in cuts]
    found = ErrorAddresses.joined(parts)
    total = (volumes[:, None] * errors**2).sum() / volumes.sum()
    assert found.total == pytest.approx(total, rel=1e-13)
    assert found.governed.sum() == pytest.approx(1.0, rel=1e-13)
    np.testing.assert_allclose(found.squared, (errors**2).sum(axis=1))
    seventh = (volumes * weights[:, 7] * (errors**2).sum(axis=1)).sum() / volumes.sum()
    assert found.errors[7] == pytest.approx(seventh, rel=1e-6)
    whole = ErrorAddresses.joined([address_sums(weights, errors, points, volumes)])
    np.testing.assert_allclose(found.centres, whole.centres)


def test_a_planted_bad_anchor_is_found_with_its_place() -> None:
    points, centres, _ = tiles(4)
    # Each anchor is listened to around its place; number 9 contributes a wrong field.
    distances = np.square(points[:, None] - centres).sum(axis=-1)
    weights, bad = softmax(-distances / 0.1**2), 9
    errors = 0.01 + 3.0 * weights[:, [bad]]
    found = ErrorAddresses.joined([address_sums(weights, errors, points, np.ones(len(points)))])
    assert found.worst[0] == bad == found.densities.argmax()
    np.testing.assert_allclose(found.centres[bad], centres[bad], atol=1e-2)
    assert found.carried(1 / 16) == pytest.approx(found.errors[bad] / found.total)
    assert found.carried(1 / 16) > 0.7
    assert found.carried(1.0) == pytest.approx(1.0)


def test_an_error_everywhere_is_carried_by_volume() -> None:
    points, _, labels = tiles(4)
    weights = np.eye(16)[labels]
    found = ErrorAddresses.joined(
        [address_sums(weights, np.full((len(points), 1), 0.5), points, np.ones(len(points)))]
    )
    np.testing.assert_allclose(found.errors, 0.25 / 16)
    np.testing.assert_allclose(found.densities, 0.25)
    assert found.carried(0.25) == pytest.approx(0.25)


def test_no_error_has_no_address() -> None:
    points, _, labels = tiles(2)
    found = ErrorAddresses.joined(
        [address_sums(np.eye(4)[labels], np.zeros((1600, 2)), points, np.ones(1600))]
    )
    assert found.total == 0 and found.carried() == 0 and np.isnan(found.centres).all()
