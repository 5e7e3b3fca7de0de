"""Pure tones, chirps and planted oscillators give back their frequencies."""

from __future__ import annotations

import numpy as np
import pytest

from courant.analysis.frequencies import (
    Spectrum,
    change_frequency,
    drift,
    frequency_range,
    lock_in_errors,
    lost_at,
    peak_frequency,
    principal_components,
    reference_rhythm,
    scalogram,
    shown_anchors,
    spectrum,
    wake_probes,
)
from tests.analysis.planted import grid

RATE = 1.0


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


def test_segments_are_the_papers() -> None:
    assert len(spectrum(np.zeros(90), 10.0).frequencies) == 45 // 2 + 1
    assert len(spectrum(np.zeros(900), 1.0).frequencies) == 64 // 2 + 1
    with pytest.raises(ValueError, match="at least 8 samples, got 7"):
        spectrum(np.zeros(7), 1.0)


@pytest.mark.parametrize("planted", [0.011, 0.0173, 0.03])
def test_series_change_fastest_at_their_tone_under_a_strong_drift(planted: float) -> None:
    times = 10.0 * np.arange(40)
    tones = np.sin(2 * np.pi * planted * times[:, None] + np.array([0.0, 1.0, 2.0]))
    drift = 10 * np.exp(-times / 150)[:, None]
    assert change_frequency(tones, 10.0) == pytest.approx(planted, rel=0.02)
    assert change_frequency(tones + drift, 10.0) == pytest.approx(planted, rel=0.1)
    drifting = (tones + drift)[:, 0]
    assert peak_frequency(drifting - drifting.mean(), 10.0) < 0.5 * planted
    assert np.isnan(change_frequency(np.ones((40, 3)), 10.0))


def test_lock_in_errors_are_relative() -> None:
    errors = lock_in_errors(np.array([0.02, 0.03]), 0.02)
    np.testing.assert_allclose(errors, [0, 0.5])


def test_components_are_those_of_a_planted_oscillator() -> None:
    generator, times = np.random.default_rng(0), np.arange(40)
    directions = np.linalg.qr(generator.normal(size=(8, 2)))[0].T
    amplitudes = np.array([3.0, 2.0, 1.0, 0.0])
    swing = np.stack([np.cos(0.4 * times), np.sin(0.4 * times)], axis=1)
    latents = 2.0 + (amplitudes[:, None] * swing[:, None]) @ directions
    found = principal_components(latents, horizon=16)
    assert found.series.shape == (40, 4, 3)
    assert found.explained[:2].sum() == pytest.approx(1.0)
    # The plane is the planted one, and each anchor moves in it by its amplitude.
    np.testing.assert_allclose(
        found.directions[:2] @ directions.T @ directions @ found.directions[:2].T,
        np.eye(2),
        atol=1e-9,
    )
    radii = np.linalg.norm(found.series[..., :2] - found.series[:, 3:, :2], axis=-1)
    np.testing.assert_allclose(radii, np.tile(amplitudes, (40, 1)), atol=1e-9)
    spectra = spectrum(found.series[..., 0], 1.0)
    strongest, weakest = shown_anchors(spectra, 0.4 / (2 * np.pi))
    assert strongest.tolist() == [0, 1, 2, 3] and weakest.tolist() == []
    np.testing.assert_allclose(spectra.peaks[:3], 0.4 / (2 * np.pi), atol=spectra.bin_hz / 2)


def test_strongest_and_weakest_anchors_do_not_share_any() -> None:
    found = Spectrum(np.array([0.0, 1.0]), np.stack([np.zeros(9), np.arange(9.0)]))
    strongest, weakest = shown_anchors(found, 1.0)
    assert strongest.tolist() == [8, 7, 6, 5, 4, 3, 2] and weakest.tolist() == [1, 0]


@pytest.mark.parametrize("frequency", [0.01, 0.0222, 0.05])
def test_a_scalogram_follows_a_tone_with_its_amplitude(frequency: float) -> None:
    found = scalogram(1.0 + 2 * tone(frequency, 600), 1.0, reference=0.0222)
    assert len(found.frequencies) == 64
    middle = slice(200, 400)
    np.testing.assert_allclose(found.peaks[middle], frequency, rtol=0.01)
    np.testing.assert_allclose(found.magnitude.max(axis=0)[middle], 2.0, rtol=0.03)
    drifts = drift(found.peaks, frequency)
    assert lost_at(found.times, drifts, frequency) is None


def test_the_bounds_are_those_of_the_paper() -> None:
    assert frequency_range(40, 10.0, 0.0222) == pytest.approx((0.0222 / 8, 0.045))
    assert frequency_range(20, 10.0, 0.0222)[0] == pytest.approx(0.1 / 20)
    assert frequency_range(900, 1.0, 0.0222)[1] == pytest.approx(4 * 0.0222)
    with pytest.raises(ValueError, match=r"resolve no frequency around 0\.1 Hz"):
        frequency_range(40, 100.0, 0.1)


def test_a_scalogram_follows_a_chirp() -> None:
    times = np.arange(1000.0)
    instantaneous = 0.02 + 0.03 * times / 1000
    series = np.cos(2 * np.pi * (0.02 * times + 0.015 * times**2 / 1000))
    found = scalogram(series, 1.0, reference=0.03)
    middle = slice(150, 850)
    np.testing.assert_allclose(found.peaks[middle], instantaneous[middle], rtol=0.03)
    assert found.trusted[:, 500].all() and not found.trusted[:, 3].any()


def test_the_loss_of_lock_in_is_timed_to_a_period() -> None:
    times, reference = np.arange(800.0), 0.025
    rate = np.where(times < 400, reference, 0.5 * reference)
    series = np.sin(2 * np.pi * np.cumsum(rate))
    found = scalogram(series, 1.0, reference)
    lost = lost_at(found.times, drift(found.peaks, reference), reference)
    assert lost == pytest.approx(400, abs=1 / reference)


def test_a_short_excursion_is_no_loss() -> None:
    times, drifts = np.arange(100.0), np.zeros(100)
    drifts[20:25] = 0.5
    assert lost_at(times, drifts, reference=0.1) is None
    drifts[40:55] = -0.5
    assert lost_at(times, drifts, reference=0.1) == 40.0
    short = np.zeros(100)
    short[-3:] = 0.5
    assert lost_at(times, short, reference=0.1) == 97.0


def test_probes_are_behind_the_cylinder_and_inside_the_channel() -> None:
    points = grid(40, length=20.0)
    cells = wake_probes({"radius": 1.0, "center_x": 5.0, "center_y": 10.0}, points)
    places = np.array([[7.0, 12.0], [7.0, 8.0], [11.0, 10.0]])
    assert np.abs(points[cells, :2] - places).max() <= 0.25 + 1e-9
    high = wake_probes({"radius": 1.0, "center_x": 5.0, "center_y": 19.5}, points)
    assert len(high) == 2
    assert len(wake_probes({"speed": 3.0}, points)) == 0


WAKE = {"radius": 1.0, "center_x": 5.0, "center_y": 10.0}


def swinging(points: np.ndarray, phase: float = 0.0) -> np.ndarray:
    """A wave that travels downstream, (200, N, 2): its POD modes are a pair of equal energy."""
    times = np.arange(200)[:, None]
    along = np.cos(points[:, 0] - 0.3 * times + phase)
    return np.stack([np.ones_like(along), 0.3 * along], axis=-1)


def test_the_rhythm_is_read_at_the_probes_or_from_the_leading_mode() -> None:
    points, names, volumes = grid(20, length=20.0), ("velocity.x", "velocity.y"), np.ones(400)
    states, std = swinging(points), np.array([0.5, 0.2])
    for parameters, name, number in ((WAKE, "wake probes", 3), ({}, "leading POD mode", 1)):
        rhythm = reference_rhythm(states, names, std, points, volumes, parameters)
        series = rhythm.read(states)
        assert (rhythm.name, series.shape) == (name, (200, number))
        peak = peak_frequency(series[:, 0] - series[:, 0].mean(), 1.0)
        assert peak == pytest.approx(0.3 / (2 * np.pi), rel=5e-3)
        assert rhythm.strength(series) > 0.3
        assert rhythm.strength(rhythm.read(0 * states + 1)) < 1e-9


def test_solution_and_prediction_are_read_in_the_same_mode() -> None:
    """Each one's own leading mode would be turned within the pair, whatever the error."""
    points, std = grid(20, length=20.0), np.array([0.5, 0.2])
    states = swinging(points)
    rhythm = reference_rhythm(states, ("u", "v"), std, points, np.ones(400), {})
    true = rhythm.read(states)[:80, 0]
    np.testing.assert_allclose(rhythm.read(states[:80])[:, 0], true)
    behind = rhythm.read(swinging(points, 0.5)[:80])[:, 0]
    assert np.corrcoef(true, behind)[0, 1] < 0.95


def test_a_field_of_large_numbers_hides_no_rhythm(monkeypatch: pytest.MonkeyPatch) -> None:
    """An absolute pressure in Pa beside a velocity in m/s."""
    points = grid(20, length=20.0)
    velocity = swinging(points)
    noise = np.random.default_rng(0).normal(size=(200, 400, 1))
    states = np.concatenate([velocity, 101_325 + 30 * noise], axis=-1)
    std, names = np.array([0.5, 0.2, 400.0]), ("velocity.x", "velocity.y", "p")
    whole = reference_rhythm(states, names, std, points, np.ones(400), {})
    assert whole.strength(whole.read(states)) > 0.3
    monkeypatch.setattr("courant.analysis.frequencies.PART", 200 * 3 * 7)
    parts = reference_rhythm(states, names, std, points, np.ones(400), {})
    one, other = (np.abs(each.read(states)) for each in (whole, parts))
    np.testing.assert_allclose(one, other, atol=1e-9)
    peak = peak_frequency(whole.read(states)[:, 0], 1.0)
    assert peak == pytest.approx(0.3 / (2 * np.pi), rel=5e-3)
