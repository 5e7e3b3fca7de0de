"""POD and DMD recover planted modes, energies, frequencies and growth rates."""

from __future__ import annotations

import numpy as np
import pytest

from courant.analysis.modes import ModeComparison, dmd, pod
from tests.analysis.planted import grid


def travelling_vortices(times: np.ndarray, period_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Vortices of alternating sign carried along x at constant speed: points, and (T, M, 1)."""
    points = grid(24)
    phase = 2 * np.pi * (2 * points[:, 0] - times[:, None] / period_s)
    return points, (np.sin(phase) * np.sin(np.pi * points[:, 1]))[..., None]


def test_travelling_vortices_are_two_pod_modes_of_one_energy() -> None:
    times = np.arange(16) / 16 * 5.0
    points, snapshots = travelling_vortices(times, period_s=5.0)
    found = pod(snapshots, np.ones(len(points)))
    assert found.energies[0] == pytest.approx(found.energies[1], rel=1e-6)
    # sin^2 over whole periods has the mean 1/2, in x and t together and in y.
    assert found.energies[:2].sum() == pytest.approx(0.25, rel=1e-3)
    assert found.energies[2:].sum() < 1e-12
    rebuilt = found.mean + np.tensordot(found.coefficients, found.modes, axes=1)
    np.testing.assert_allclose(rebuilt, snapshots, atol=1e-9)


def test_pod_modes_are_orthonormal_in_the_volumes() -> None:
    generator = np.random.default_rng(1)
    volumes = generator.uniform(0.1, 3.0, 40)
    found = pod(generator.normal(size=(7, 40, 2)), volumes, rank=4)
    shares = volumes / volumes.sum()
    gram = np.einsum("rmc,smc,m->rs", found.modes, found.modes, shares)
    np.testing.assert_allclose(gram, np.eye(4), atol=1e-10)


def test_dmd_finds_the_frequency_of_travelling_vortices() -> None:
    interval_s, period_s = 0.7, 5.0
    points, snapshots = travelling_vortices(interval_s * np.arange(30), period_s)
    found = dmd(snapshots, np.ones(len(points)), interval_s, rank=10)
    assert len(found.eigenvalues) == 2
    assert found.leading_frequency() == pytest.approx(1 / period_s, rel=1e-8)
    np.testing.assert_allclose(found.growth_rates, 0, atol=1e-8)


def test_dmd_finds_frequency_growth_and_a_steady_part() -> None:
    generator, interval_s = np.random.default_rng(2), 0.25
    times = interval_s * np.arange(40)
    real, imaginary, steady = generator.normal(size=(3, 50, 2))
    swing = np.exp((-0.3 + 2j * np.pi * 0.4) * times)
    snapshots = (
        swing.real[:, None, None] * real + swing.imag[:, None, None] * imaginary + 3 * steady
    )
    found = dmd(snapshots, generator.uniform(0.5, 2.0, 50), interval_s, rank=8)
    assert len(found.eigenvalues) == 3
    assert found.eigenvalues[0] == pytest.approx(1.0, abs=1e-8)
    assert found.leading_frequency() == pytest.approx(0.4, rel=1e-8)
    np.testing.assert_allclose(found.growth_rates[1:], -0.3, atol=1e-8)


def test_dmd_of_steady_snapshots_has_no_frequency() -> None:
    snapshots = np.ones((5, 12, 1))
    found = dmd(snapshots, np.ones(12), 1.0, rank=3)
    assert np.isnan(found.leading_frequency())


def test_dmd_needs_three_snapshots() -> None:
    with pytest.raises(ValueError, match="at least 3 snapshots, got 2"):
        dmd(np.ones((2, 4, 1)), np.ones(4), 1.0, rank=2)


def turned(angle: float, growth: float, frequency: float) -> np.ndarray:
    """A wave of one frequency, whose second shape is turned into a third by an angle: (T, M, 1)."""
    shapes = np.eye(9)[:3] * 3  # orthonormal for nine cells of the same volume
    phase = 2 * np.pi * frequency * np.arange(60)
    size = np.exp(growth * np.arange(60))
    other = np.cos(angle) * shapes[1] + np.sin(angle) * shapes[2]
    return (size * np.cos(phase))[:, None, None] * shapes[0][:, None] + (size * np.sin(phase))[
        :, None, None
    ] * other[:, None]


def test_modes_of_two_flows_are_compared_by_energy_plane_growth_and_frequency() -> None:
    volumes, angle = np.ones(9), 0.8
    flows = (turned(0.0, 0.0, 0.05), 2 * turned(angle, -0.01, 0.06))
    pods = tuple(pod(each, volumes, 4) for each in flows)
    dmds = tuple(dmd(each, volumes, 1.0, 4) for each in flows)
    found = ModeComparison.of(pods, dmds, volumes)
    assert found.variances[0] == pytest.approx(1.0, rel=0.02)
    assert found.leading_shares == pytest.approx((1.0, 1.0))
    # One direction is shared, the other one is turned.
    assert found.pod_correlation == pytest.approx(np.sqrt((1 + np.cos(angle) ** 2) / 2), rel=1e-6)
    assert found.frequencies == pytest.approx((0.05, 0.06))
    assert found.growth_rates == pytest.approx((0.0, -0.01), abs=1e-9)
    assert found.dmd_correlation == pytest.approx((1 + np.cos(angle)) / 2, rel=1e-6)
    same = ModeComparison.of((pods[0], pods[0]), (dmds[0], dmds[0]), volumes)
    assert same.pod_correlation == pytest.approx(1.0)
    assert same.dmd_correlation == pytest.approx(1.0)
