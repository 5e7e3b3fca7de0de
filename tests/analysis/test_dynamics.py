"""Tones, chirps, oscillators and linear systems give back their frequencies and modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from courant.analysis import dynamics
from courant.analysis.dynamics import dmd, lost_at, peak_frequency, pod, spectrum, spectrum_at
from tests.analysis.conftest import grid


def tone(frequency: float, num: int, interval_s: float = 1.0, phase: float = 0.3) -> np.ndarray:
    return np.sin(2 * np.pi * frequency * interval_s * np.arange(num) + phase)


def test_a_tone_is_found_to_half_a_bin_with_the_power_that_it_has() -> None:
    series = 5.0 + np.stack([tone(0.0222, 900, 1.0), 2 * tone(0.16, 900, 1.0)], axis=1)
    found = spectrum(series, 1.0)
    assert found.bin_hz == pytest.approx(1 / 64)
    np.testing.assert_allclose(found.peaks, [0.0222, 0.16], atol=found.bin_hz / 2)
    # A sine of amplitude a has the power a^2 / 2.
    assert found.density[:, 1].sum() * found.bin_hz == pytest.approx(2.0, rel=0.02)
    np.testing.assert_allclose(found.premultiplied[3], found.frequencies[3] * found.density[3])
    sharper = peak_frequency(tone(0.0222, 900), 1.0)
    assert sharper == pytest.approx(0.0222, rel=5e-3)


@pytest.mark.parametrize("planted", [0.011, 0.0173, 0.03])
def test_series_change_fastest_at_their_tone_under_a_strong_drift(planted: float) -> None:
    times = 10.0 * np.arange(40)
    tones = np.sin(2 * np.pi * planted * times[:, None] + np.array([0.0, 1.0, 2.0]))
    drift = 10 * np.exp(-times / 150)[:, None]
    assert dynamics.change_frequency(tones, 10.0) == pytest.approx(planted, rel=0.02)
    assert dynamics.change_frequency(tones + drift, 10.0) == pytest.approx(planted, rel=0.1)
    drifting = (tones + drift)[:, 0]
    assert peak_frequency(drifting - drifting.mean(), 10.0) < 0.5 * planted
    assert np.isnan(dynamics.change_frequency(np.ones((40, 3)), 10.0))


def test_components_are_those_of_a_planted_oscillator() -> None:
    generator, times = np.random.default_rng(0), np.arange(40)
    directions = np.linalg.qr(generator.normal(size=(8, 2)))[0].T
    amplitudes = np.array([3.0, 2.0, 1.0, 0.0])
    swing = np.stack([np.cos(0.4 * times), np.sin(0.4 * times)], axis=1)
    latents = 2.0 + (amplitudes[:, None] * swing[:, None]) @ directions
    found = dynamics.principal_components(latents, horizon=16)
    assert found.explained[:2].sum() == pytest.approx(1.0)
    # Each anchor moves in the planted plane by its amplitude.
    radii = np.linalg.norm(found.series[..., :2] - found.series[:, 3:, :2], axis=-1)
    np.testing.assert_allclose(radii, np.tile(amplitudes, (40, 1)), atol=1e-9)
    spectra = spectrum(found.series[..., 0], 1.0)
    np.testing.assert_allclose(spectra.peaks[:3], 0.4 / (2 * np.pi), atol=spectra.bin_hz / 2)


@pytest.mark.parametrize("frequency", [0.01, 0.0222, 0.05])
def test_a_scalogram_follows_a_tone_with_its_amplitude(frequency: float) -> None:
    found = dynamics.scalogram(1.0 + 2 * tone(frequency, 600), 1.0, reference=0.0222)
    assert len(found.frequencies) == 64
    middle = slice(200, 400)
    np.testing.assert_allclose(found.peaks[middle], frequency, rtol=0.01)
    np.testing.assert_allclose(found.magnitude.max(axis=0)[middle], 2.0, rtol=0.03)
    drifts = (found.peaks - frequency) / frequency
    assert lost_at(found.times, drifts, frequency) is None


def test_segments_and_bounds_are_those_of_the_paper() -> None:
    assert len(spectrum(np.zeros(90), 10.0).frequencies) == 45 // 2 + 1
    assert len(spectrum(np.zeros(900), 1.0).frequencies) == 64 // 2 + 1
    with pytest.raises(ValueError, match="at least 8 samples, got 7"):
        spectrum(np.zeros(7), 1.0)
    assert dynamics.frequency_range(40, 10.0, 0.0222) == pytest.approx((0.0222 / 8, 0.045))
    assert dynamics.frequency_range(20, 10.0, 0.0222)[0] == pytest.approx(0.1 / 20)
    assert dynamics.frequency_range(900, 1.0, 0.0222)[1] == pytest.approx(4 * 0.0222)


def test_a_scalogram_follows_a_chirp() -> None:
    times = np.arange(1000.0)
    instantaneous = 0.02 + 0.03 * times / 1000
    series = np.cos(2 * np.pi * (0.02 * times + 0.015 * times**2 / 1000))
    found = dynamics.scalogram(series, 1.0, reference=0.03)
    middle = slice(150, 850)
    np.testing.assert_allclose(found.peaks[middle], instantaneous[middle], rtol=0.03)
    assert found.trusted[:, 500].all() and not found.trusted[:, 3].any()


def test_the_loss_of_lock_in_is_timed_to_a_period_and_a_short_excursion_is_none() -> None:
    times, reference = np.arange(800.0), 0.025
    rate = np.where(times < 400, reference, 0.5 * reference)
    found = dynamics.scalogram(np.sin(2 * np.pi * np.cumsum(rate)), 1.0, reference)
    lost = lost_at(found.times, (found.peaks - reference) / reference, reference)
    assert lost == pytest.approx(400, abs=1 / reference)
    drifts = np.zeros(100)
    drifts[20:25] = 0.5
    assert lost_at(times[:100], drifts, reference=0.1) is None
    drifts[-3:] = 0.5
    assert lost_at(times[:100], drifts, reference=0.1) == 97.0
    drifts[40:55] = -0.5
    assert lost_at(times[:100], drifts, reference=0.1) == 40.0


def test_probes_are_behind_the_cylinder_and_inside_the_channel() -> None:
    points = grid(40, length=20.0)
    cells = dynamics.wake_probes({"radius": 1.0, "center_x": 5.0, "center_y": 10.0}, points)
    places = np.array([[7.0, 12.0], [7.0, 8.0], [11.0, 10.0]])
    assert np.abs(points[cells, :2] - places).max() <= 0.25 + 1e-9
    high = dynamics.wake_probes({"radius": 1.0, "center_x": 5.0, "center_y": 19.5}, points)
    assert len(high) == 2
    assert len(dynamics.wake_probes({"speed": 3.0}, points)) == 0


WAKE = {"radius": 1.0, "center_x": 5.0, "center_y": 10.0}


def swinging(points: np.ndarray, phase: float = 0.0) -> np.ndarray:
    """A wave that travels downstream, (200, N, 2): its POD modes are a pair of equal energy."""
    times = np.arange(200)[:, None]
    along = np.cos(points[:, 0] - 0.3 * times + phase)
    return np.stack([np.ones_like(along), 0.3 * along], axis=-1)


def test_the_rhythm_is_read_at_the_probes_or_from_the_leading_mode_of_the_solution() -> None:
    points, std = grid(20, length=20.0), np.array([0.5, 0.2, 400.0])
    # An absolute pressure in Pa beside a velocity in m/s hides no rhythm.
    noise = 101_325 + 30 * np.random.default_rng(0).normal(size=(200, 400, 1))
    states = np.concatenate([swinging(points), noise], axis=-1).astype(np.float32)
    for parameters, name, number in ((WAKE, "wake probes", 3), ({}, "leading POD mode", 1)):
        names = ("velocity.x", "velocity.y", "p")
        rhythm = dynamics.reference_rhythm(states, names, std, points, np.ones(400), parameters)
        series = rhythm.read(states)
        assert (rhythm.name, series.shape) == (name, (200, number))
        peak = peak_frequency(series[:, 0] - series[:, 0].mean(), 1.0)
        assert peak == pytest.approx(0.3 / (2 * np.pi), rel=5e-3)
        assert rhythm.strength(series) > 0.3
        assert rhythm.strength(rhythm.read(0 * states + 1)) < 1e-9
    # The prediction's own leading mode would be turned within the pair, whatever the error.
    np.testing.assert_allclose(rhythm.read(states[:80]), series[:80])
    behind = np.concatenate([swinging(points, 0.5), noise], axis=-1)
    assert np.corrcoef(series[:80, 0], rhythm.read(behind)[:80, 0])[0, 1] < 0.95


def test_travelling_vortices_are_two_pod_modes_of_one_energy() -> None:
    points, times = grid(24), np.arange(16)[:, None] / 16
    phase = 2 * np.pi * (2 * points[:, 0] - times)
    snapshots = (np.sin(phase) * np.sin(np.pi * points[:, 1]))[..., None]
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
    gram = np.einsum("rmc,smc,m->rs", found.modes, found.modes, volumes / volumes.sum())
    np.testing.assert_allclose(gram, np.eye(4), atol=1e-10)


def test_dmd_finds_frequency_growth_and_a_steady_part() -> None:
    generator, interval_s = np.random.default_rng(2), 0.25
    times = interval_s * np.arange(40)
    real, imaginary, steady = generator.normal(size=(3, 50, 2))
    swing = np.exp((-0.3 + 2j * np.pi * 0.4) * times)[:, None, None]
    snapshots = swing.real * real + swing.imag * imaginary + 3 * steady
    found = dmd(snapshots, generator.uniform(0.5, 2.0, 50), interval_s, rank=8)
    assert len(found.eigenvalues) == 3
    assert found.eigenvalues[0] == pytest.approx(1.0, abs=1e-8)
    assert found.leading_frequency() == pytest.approx(0.4, rel=1e-8)
    np.testing.assert_allclose(found.growth_rates[1:], -0.3, atol=1e-8)


def test_dmd_of_steady_snapshots_has_no_frequency_and_two_are_too_few() -> None:
    steady = dmd(np.ones((5, 12, 1)), np.ones(12), 1.0, rank=3)
    assert steady.leading is None and np.isnan(steady.leading_frequency())
    with pytest.raises(ValueError, match="at least 3 snapshots, got 2"):
        dmd(np.ones((2, 4, 1)), np.ones(4), 1.0, rank=2)


def turned(angle: float, growth: float, frequency: float) -> np.ndarray:
    """A wave of one frequency, whose second shape is turned into a third by an angle: (T, M, 1)."""
    shapes, steps = np.eye(9)[:3] * 3, np.arange(60)  # orthonormal for nine equal cells
    swing = np.exp((growth + 2j * np.pi * frequency) * steps)[:, None]
    other = np.cos(angle) * shapes[1] + np.sin(angle) * shapes[2]
    return (swing.real * shapes[0] + swing.imag * other)[..., None]


def test_modes_of_two_flows_are_compared_by_energy_plane_growth_and_frequency() -> None:
    volumes, angle = np.ones(9), 0.8
    flows = (turned(0.0, 0.0, 0.05), 2 * turned(angle, -0.01, 0.06))
    pods = tuple(pod(each, volumes, 4) for each in flows)
    dmds = tuple(dmd(each, volumes, 1.0, 4) for each in flows)
    found = dynamics.compare_modes(pods, dmds, volumes)
    assert found["variances"][0] == pytest.approx(1.0, rel=0.02)
    assert found["leading_shares"] == pytest.approx([1.0, 1.0])
    # One direction is shared, the other one is turned.
    plane = np.sqrt((1 + np.cos(angle) ** 2) / 2)
    assert found["pod_correlation"] == pytest.approx(plane, rel=1e-6)
    assert found["frequencies"] == pytest.approx([0.05, 0.06])
    assert found["growth_rates"] == pytest.approx([0.0, -0.01], abs=1e-9)
    assert found["dmd_correlation"] == pytest.approx((1 + np.cos(angle)) / 2, rel=1e-6)
    same = dynamics.compare_modes((pods[0], pods[0]), (dmds[0], dmds[0]), volumes)
    assert same["pod_correlation"] == pytest.approx(1.0) == same["dmd_correlation"]


UNIT_S = 10.0


def system(pairs: list[complex], real: list[float], seed: int = 0) -> tuple[np.ndarray, Tensor]:
    """A matrix of given eigenvalues in a random basis, and a state of its size."""
    size = 2 * len(pairs) + len(real)
    matrix = np.diag(np.concatenate([np.zeros(2 * len(pairs)), real]))
    for number, value in enumerate(pairs):
        at = 2 * number
        matrix[at : at + 2, at : at + 2] = [[value.real, -value.imag], [value.imag, value.real]]
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    state = torch.zeros(2, size // 2, dtype=torch.float64)
    return basis @ matrix @ basis.T, state


def linear(matrix: np.ndarray):  # type: ignore[no-untyped-def]
    weights = torch.as_tensor(matrix)
    return lambda Z: (weights @ Z.reshape(-1)).view_as(Z)


def test_the_jacobian_is_the_matrix_of_a_linear_system_and_taken_at_the_state() -> None:
    matrix, state = system([0.3 + 1j], [-0.5, -2.0])
    np.testing.assert_allclose(dynamics.exact_jacobian(linear(matrix), state), matrix, atol=1e-12)
    state = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    found = dynamics.exact_jacobian(lambda Z: Z**2, state)
    np.testing.assert_allclose(found, np.diag([2.0, 4.0, 6.0, 8.0]))
    matrix, state = system([], [-0.1, -0.2, -0.3, -0.4])
    decaying = spectrum_at(linear(matrix), state, 1.0, UNIT_S)
    assert decaying.longest is None and decaying.nearest(0.01) is None


@pytest.mark.parametrize("exact_up_to", [100, 0], ids=["exact", "Arnoldi"])
def test_frequency_and_growth_of_a_step_are_the_planted_ones(exact_up_to: int) -> None:
    # In one step of h = 1 the state turns by 2 pi f dt and shrinks by a hundredth.
    frequency, kept = 0.0222, 0.99
    step = kept * np.exp(2j * np.pi * frequency * UNIT_S)
    matrix, state = system([step - 1, 0.2 + 0.1j - 1], list(np.linspace(-0.9, -0.2, 16)))
    found = spectrum_at(linear(matrix), state, 1.0, UNIT_S, exact_up_to=exact_up_to, number=6)
    assert found.exact == (exact_up_to > 0)
    assert len(found.step) == (20 if found.exact else 6)
    leading = found.longest
    assert leading == 0 == found.nearest(0.9 * frequency)
    other = np.angle(0.2 + 0.1j) / (2 * np.pi * UNIT_S)
    if found.exact:
        assert found.frequencies[found.nearest(0.007)] == pytest.approx(other)
    np.testing.assert_allclose(found.step[:2], [step, step.conjugate()], atol=1e-8)
    np.testing.assert_allclose(found.derivative[0], step - 1, atol=1e-8)
    assert found.frequencies[0] == pytest.approx(frequency, rel=1e-6)
    assert found.growth_rates[0] == pytest.approx(np.log(kept) / UNIT_S, rel=1e-6)


@pytest.mark.parametrize(
    ("solver", "multiplier"),
    [
        ("euler", lambda z: 1 + z),
        ("midpoint", lambda z: 1 + z + z**2 / 2),
        ("heun3", lambda z: 1 + z + z**2 / 2 + z**3 / 6),
        ("rk4", lambda z: 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24),
        ("dopri5", np.exp),
    ],
)
@pytest.mark.parametrize("size", [1.0, 0.5])
def test_the_step_is_that_of_the_models_solver(solver: str, multiplier: Any, size: float) -> None:
    matrix, state = system([0.65j], [-1.0, -1.5])
    found = spectrum_at(linear(matrix), state, size, UNIT_S, solver=solver)
    expected = multiplier(0.65j * size)
    np.testing.assert_allclose(found.step[found.longest], expected, rtol=1e-6)
    np.testing.assert_allclose(found.derivative[found.longest], 0.65j, atol=1e-9)
    turned = np.angle(expected) / (2 * np.pi * size * UNIT_S)
    assert found.frequencies[found.longest] == pytest.approx(turned)
    if solver == "dopri5":  # The exact flow neither grows, nor turns it by less.
        assert found.growth_rates[0] == pytest.approx(0, abs=1e-7)
        assert turned == pytest.approx(0.65 / (2 * np.pi * UNIT_S), rel=1e-6)
