"""Frequencies, modes and eigenvalues are those that were planted, and departures are flagged."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import courant
import simgen
from bench.synthetic_cases import publish_cases
from courant.analysis import dynamics
from courant.analysis.dynamics import (
    dmd,
    follow_case,
    lost_at,
    peak_frequency,
    pod,
    spectrum,
    spectrum_at,
)
from courant.analysis.monitoring import MonitorJudgement, WatchedRollout, detect
from courant.data.normalisation import Normaliser
from courant.field_model import FieldModel, Inputs, ModelConfig, Queries
from courant.prediction import monitor as monitoring
from courant.prediction.surrogate import Surrogate
from courant.problems import problem_of
from courant.report.dynamics import latents_panel
from courant.report.page import Lead, write_page
from courant.runs.directory import RunDirectory
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.errors import InputError, StoreError
from simgen.store.read import Dataset, StoredCase
from simgen.store.schema import Schema
from tests.analysis.conftest import grid
from tests.commands import called, refused
from tests.world import design_point, tiny_experiment, travelling_wave


def tone(frequency: float, num: int, interval_s: float = 1.0, phase: float = 0.3) -> np.ndarray:
    return np.sin(2 * np.pi * frequency * interval_s * np.arange(num) + phase)


def test_a_tone_is_found_to_half_a_bin_with_the_power_that_it_has() -> None:
    series = 5.0 + np.stack([tone(0.0222, 900, 1.0), 2 * tone(0.16, 900, 1.0)], axis=1)
    found, bin_hz = spectrum(series, 1.0), 1 / 64
    assert found.frequencies[1] == pytest.approx(bin_hz)
    peaks = found.frequencies[np.argmax(found.density, axis=0)]
    np.testing.assert_allclose(peaks, [0.0222, 0.16], atol=bin_hz / 2)
    # A sine of amplitude a has the power a^2 / 2.
    assert found.density[:, 1].sum() * bin_hz == pytest.approx(2.0, rel=0.02)
    sharper = peak_frequency(tone(0.0222, 900), 1.0)
    assert sharper == pytest.approx(0.0222, rel=5e-3)


@pytest.mark.parametrize("planted", [0.011, 0.0173, 0.03])
def test_series_change_fastest_at_their_tone_under_a_strong_drift(planted: float) -> None:
    times = 10.0 * np.arange(40)
    tones = np.sin(2 * np.pi * planted * times[:, None] + np.array([0.0, 1.0, 2.0]))
    drift = 10 * np.exp(-times / 150)[:, None]
    assert dynamics.change_frequency(tones, 10.0) == pytest.approx(planted, rel=0.02)
    assert dynamics.change_frequency(tones + drift, 10.0) == pytest.approx(planted, rel=0.1)
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


@pytest.mark.parametrize("frequency", [0.01, 0.0222, 0.05])
def test_a_scalogram_follows_a_tone_with_its_amplitude(frequency: float) -> None:
    found = dynamics.scalogram(1.0 + 2 * tone(frequency, 600), 1.0, reference=0.0222)
    assert len(found.frequencies) == 64
    middle = slice(200, 400)
    np.testing.assert_allclose(found.peaks[middle], frequency, rtol=0.01)
    np.testing.assert_allclose(found.magnitude.max(axis=0)[middle], 2.0, rtol=0.03)
    assert found.trusted[:, 300].any() and not found.trusted[:, 3].any()
    drifts = (found.peaks - frequency) / frequency
    assert lost_at(found.times, drifts, frequency) is None


def test_segments_and_bounds_are_those_of_the_paper() -> None:
    assert len(spectrum(np.zeros(90), 10.0).frequencies) == 45 // 2 + 1
    assert len(spectrum(np.zeros(900), 1.0).frequencies) == 64 // 2 + 1
    with pytest.raises(ValueError, match="at least 8 samples, got 7"):
        spectrum(np.zeros(7), 1.0)
    assert dynamics.frequency_range(40, 10.0, 0.0222) == pytest.approx((0.0222 / 8, 0.045))
    assert dynamics.frequency_range(20, 10.0, 0.0222)[0] == pytest.approx(0.1 / 20)


def test_the_loss_of_lock_in_is_timed_and_a_short_excursion_is_none() -> None:
    times, drifts = np.arange(100.0), np.zeros(100)
    drifts[20:25] = 0.5
    assert lost_at(times, drifts, reference=0.1) is None
    drifts[-3:] = 0.5
    assert lost_at(times, drifts, reference=0.1) == 97.0
    drifts[40:55] = -0.5
    assert lost_at(times, drifts, reference=0.1) == 40.0


WAKE = {"radius": 1.0, "center_x": 5.0, "center_y": 10.0}


def test_the_rhythm_is_read_at_the_probes_or_from_the_leading_mode_of_the_solution() -> None:
    points, std = grid(20, length=20.0), np.array([0.5, 0.2, 400.0])
    # An absolute pressure in Pa beside a velocity in m/s hides no rhythm.
    noise = 101_325 + 30 * np.random.default_rng(0).normal(size=(200, 400))
    wave = 0.3 * np.cos(points[:, 0] - 0.3 * np.arange(200)[:, None])
    states = np.stack([np.ones_like(wave), wave, noise], axis=-1).astype(np.float32)
    for parameters, name, number in ((WAKE, "wake probes", 3), ({}, "leading POD mode", 1)):
        names = ("velocity.x", "velocity.y", "p")
        rhythm = dynamics.reference_rhythm(states, names, std, points, np.ones(400), parameters)
        series = rhythm.read(states)
        assert (rhythm.name, series.shape) == (name, (200, number))
        peak = peak_frequency(series[:, 0] - series[:, 0].mean(), 1.0)
        assert peak == pytest.approx(0.3 / (2 * np.pi), rel=5e-3)
        assert rhythm.strength(series) > 0.3
        assert rhythm.strength(rhythm.read(0 * states + 1)) < 1e-9


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
    assert np.isnan(dmd(np.ones((5, 12, 1)), np.ones(12), 1.0, rank=3).leading_frequency())


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


def test_the_jacobian_is_taken_at_the_state_and_a_decay_has_no_frequency() -> None:
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


NUM_FRAMES, STEP_S, SPEED = 120, 3.0, 0.7
WAVE_HZ = 0.3 * SPEED / (2 * np.pi)
"""The frequency at a fixed point of a wave of wave number 0.3 / m"""
PLANTED_HZ = 1.1 * WAVE_HZ
"""The latents' frequency: ten percent too high"""
KEPT = 0.995
"""The latents' amplitude after a step"""


@dataclasses.dataclass(frozen=True)
class SwingConfig(ModelConfig):
    kind: ClassVar[str] = "swing"


class SwingModel(FieldModel):
    """Latents of four anchors that turn in a plane, an Euler step of one unit of tau at a time."""

    integrator = "euler", 1.0

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.weight = config, torch.nn.Parameter(torch.zeros(1))
        turn = 2 * np.pi * PLANTED_HZ * STEP_S
        rotation = KEPT * np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        self.step = torch.zeros(3, 3, dtype=torch.float64)
        self.step[:2, :2] = torch.as_tensor(rotation)

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        """A wave that is carried by the latents' turning."""
        turning = self.rollout(self.encode(inputs), num_steps)[:, :, 0, :2].float()
        x = 3 * queries.points[..., 0]
        shapes = torch.stack([torch.cos(x), torch.sin(x)], dim=1)  # (1, 2, M)
        return (turning @ shapes)[..., None].expand(-1, -1, -1, 2)

    def encode(self, inputs: Inputs) -> Tensor:
        Z = torch.zeros(1, 4, 3, dtype=torch.float64)
        Z[0, :, 0] = torch.tensor([4.0, 3.0, 2.0, 1.0])
        return Z

    def derivative(self, Z: Tensor) -> Tensor:
        return Z @ self.step - Z

    def rollout(self, Z: Tensor, num_steps: int) -> Tensor:
        states = [Z]
        for _ in range(num_steps):
            states.append(states[-1] + self.derivative(states[-1]))
        return torch.stack(states[1:], dim=1)


@pytest.fixture(scope="module")
def long_waves(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    url = str(tmp_path_factory.mktemp("store") / "waves")
    results = [CaseResult(design_point(number, NUM_FRAMES), "accepted") for number in range(3)]
    waves = [travelling_wave(400, SPEED, number, NUM_FRAMES) for number in range(3)]
    schema, cases = Schema.of(get_family("cylinder-flow")), zip(results, waves, strict=True)
    return simgen.open_dataset(publish_cases(url, schema, cases))


def surrogate_of(long_waves: Dataset, **data: float) -> Surrogate:
    experiment = tiny_experiment().derive(data={"step_s": STEP_S, **data})
    problem = problem_of(experiment, Normaliser.of(long_waves, experiment.data.fields))
    parameters = [{"name": each.name} for each in long_waves.schema.parameters]
    record = {"family": "cylinder-flow", "parameters": parameters}
    model = SwingModel(SwingConfig(num_features=2, num_outputs=2))
    return Surrogate("memory", problem, record, model)


def test_flow_latents_and_processor_have_the_frequencies_that_were_planted(
    long_waves: Dataset, tmp_path: Path
) -> None:
    found = follow_case(surrogate_of(long_waves), long_waves[0])
    assert len(found.times) == NUM_FRAMES // 3 - 1 and found.horizon == 2
    later = follow_case(surrogate_of(long_waves), long_waves[0], start_s=5 * STEP_S)
    assert len(later.times) == len(found.times) - 4
    np.testing.assert_allclose(found.lock_in, 0.1, atol=0.03)
    assert found.leading_anchor == 0
    np.testing.assert_allclose(found.drift[10:30], 0.1, atol=0.05)
    for _, each in found.jacobians:
        assert each.exact and each.frequencies[each.longest] == pytest.approx(PLANTED_HZ)
        assert each.growth_rates[0] == pytest.approx(np.log(KEPT) / STEP_S)
    scores = found.scores()
    assert scores["frequency_error"] == pytest.approx(0.1, abs=0.03)
    assert (scores["locked_in"], scores["rhythm_kept"]) == (1.0, 1.0)
    context: Any = SimpleNamespace(shown=[SimpleNamespace(case=long_waves[0])], dynamics=found)
    panel = latents_panel(context)
    drawn = write_page(RunDirectory(tmp_path), "", [], Lead("", ""), {"": [panel]})
    assert len(drawn) == len(panel.pictures) == 3
    times = re.findall(r"at ([\d.]+) s", panel.pictures[-1].caption)
    assert list(map(float, times)) == [time for time, _ in found.jacobians]
    shown = {row[""]: row["frequency (Hz)"] for row in panel.tables[0].rows}
    assert shown["DMD of the solution, strongest pair"] == f"{WAVE_HZ:.3g}"


def test_short_cases_still_flows_and_models_without_latents_have_no_rhythm(
    long_waves: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = surrogate_of(long_waves, start_s=float(NUM_FRAMES - 7 * STEP_S))
    assert follow_case(late, long_waves[0]) is None
    monkeypatch.setattr(dynamics, "STEADY", 1e9)
    assert follow_case(surrogate_of(long_waves), long_waves[0]) is None
    monkeypatch.undo()
    monkeypatch.delattr(SwingModel, "derivative")
    assert follow_case(surrogate_of(long_waves), long_waves[0]) is None


@pytest.fixture
def planted(long_waves: Dataset, monkeypatch: pytest.MonkeyPatch) -> Surrogate:
    """The run that every command of these tests loads."""
    surrogate = surrogate_of(long_waves)
    monkeypatch.setattr("courant.prediction.surrogate.load", lambda url: surrogate)
    monkeypatch.setattr(Surrogate, "open_dataset", lambda self, url=None: long_waves)
    return surrogate


def test_the_frequencies_of_test_cases_are_one_table_with_medians(
    planted: Surrogate, long_waves: Dataset, tmp_path: Path
) -> None:
    named = [part for case in long_waves.cases()[:2] for part in ("--case", case)]
    asked = ["analyse", "frequencies", "RUN", *named, "--steps", "30", "--out", str(tmp_path)]
    called(*asked)
    written = json.loads((tmp_path / "frequencies.json").read_text())
    for each in written["cases"]:
        assert each["steps"] == 30 and each["series_name"] == "wake probes"
        assert each["reference_hz"] == pytest.approx(WAVE_HZ, rel=0.02)
        assert each["true_dmd_hz"] == pytest.approx(WAVE_HZ, rel=1e-3)
        for name in ("predicted_hz", "dmd_hz", "latent_hz"):
            assert each[name] == pytest.approx(PLANTED_HZ, rel=0.02)
            assert each[f"{name}_error"] == pytest.approx(0.1, abs=0.03)
        assert each["locked_in"] == 1.0 and each["lost_s"] is None
        assert each["drift"] == pytest.approx(0.1, abs=0.05)
        modes = each["modes"]
        assert modes["frequencies"] == [each["true_dmd_hz"], each["dmd_hz"]]
        assert modes["growth_rates"][0] == pytest.approx(0, abs=1e-5)
        assert modes["growth_rates"][1] == pytest.approx(np.log(KEPT) / STEP_S, rel=1e-2)
        assert modes["leading_shares"] == pytest.approx([1.0, 1.0], abs=0.02)
        assert 0 < modes["pod_correlation"] < 1 and 0 < modes["dmd_correlation"] < 1
    assert written["never_lost"] == 2 and written["medians"]["kept"] == 1.0
    assert written["medians"]["dmd_hz_error"] == pytest.approx(0.1, abs=0.03)
    with np.load(tmp_path / f"{long_waves.cases()[0]}_frequencies.npz") as arrays:
        assert arrays["components"].shape == (30, 4, 3) and arrays["time"][-1] == 30 * STEP_S


def test_the_spectrum_command_finds_the_planted_pair_at_the_steps_that_are_named(
    planted: Surrogate, long_waves: Dataset, tmp_path: Path
) -> None:
    case = long_waves.cases()[0]
    asked = ["analyse", "spectrum", "RUN", "--case", case, "--at", "0", "--at", "20"]
    done = called(*asked, "--exact-up-to", "11", "--out", tmp_path)
    (written,) = json.loads((tmp_path / "spectrum.json").read_text())["cases"]
    assert [(each["step"], each["time_s"]) for each in written["states"]] == [(0, 0), (20, 60)]
    assert written["reference_hz"] == pytest.approx(WAVE_HZ, rel=0.02)
    for each in written["states"]:
        assert not each["exact"]
        for pair in (each["longest"], each["nearest"]):
            turn = 2 * np.pi * PLANTED_HZ * STEP_S
            assert pair["step"] == pytest.approx([KEPT * np.cos(turn), KEPT * np.sin(turn)])
            assert pair["derivative"][0] == pytest.approx(pair["step"][0] - 1)
            assert pair["frequency_hz"] == pytest.approx(PLANTED_HZ)
            assert pair["over_reference"] == pytest.approx(1.1, rel=0.02)
    assert "of the leading 10 eigenvalues" in done.stdout
    with np.load(tmp_path / f"{case}_spectrum.npz") as arrays:
        assert len(arrays["step_eigenvalues_20"]) == 10


STEPS, NUM_ANCHORS = 40, 6


class Swing:
    """Linear latent dynamics: each anchor turns in three planes, at the same three frequencies."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.mixing = np.linalg.qr(generator.normal(size=(8, 8)))[0][:, :6]
        self.start = generator.normal(size=(NUM_ANCHORS, 6))
        self.step = np.zeros((6, 6))
        for plane, angle in enumerate((0.3, 0.5, 0.9)):
            turn = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
            self.step[2 * plane : 2 * plane + 2, 2 * plane : 2 * plane + 2] = turn

    def rollout(
        self, seed: int, kick_at: int | None = None, damped_from: int = STEPS
    ) -> np.ndarray:
        """(T + 1, L, d), from a start along the orbit, of an amplitude of its own."""
        generator = np.random.default_rng(seed)
        state = self.start * generator.uniform(0.8, 1.2)
        state = state @ np.linalg.matrix_power(self.step, int(generator.integers(200)))
        states = [state]
        for number in range(1, STEPS + 1):
            state = state @ self.step * (0.8 if number >= damped_from else 1.0)
            if number == kick_at:
                state = state + 4.0
            states.append(state)
        return np.stack(states) @ self.mixing.T


@pytest.fixture(scope="module")
def swing() -> Swing:
    return Swing()


@pytest.fixture(scope="module")
def monitor(swing: Swing) -> monitoring.Monitor:
    training = [swing.rollout(seed) for seed in range(60)]
    return monitoring.fit_monitor(training, [swing.rollout(1000 + seed) for seed in range(100)])


def flagged_at(monitor: monitoring.Monitor, latents: np.ndarray) -> int | None:
    raised = np.flatnonzero(monitor.quality(latents) >= 1)
    return int(raised[0]) + 1 if len(raised) else None


def test_kicks_and_rest_are_flagged_and_healthy_rollouts_as_seldom_as_promised(
    swing: Swing, monitor: monitoring.Monitor
) -> None:
    """States of a rollout that comes to rest are ever nearer to the mean: slowness shows it."""
    for seed in range(2000, 2020):
        if flagged_at(monitor, swing.rollout(seed)) is None:
            assert flagged_at(monitor, swing.rollout(seed, kick_at=17)) == 17
            at = flagged_at(monitor, swing.rollout(seed, damped_from=10))
            assert at is not None and 10 <= at <= 20
    flagged = [flagged_at(monitor, swing.rollout(seed)) for seed in range(3000, 3400)]
    share = np.mean([each is not None for each in flagged])
    # Some are: a limit that none reaches would mean nothing.
    assert share > 0 and share == pytest.approx(monitoring.FALSE_ALARMS, abs=0.05)


def test_latents_that_are_not_finite_raise_the_flag_and_too_few_calibrate_nothing(
    swing: Swing, monitor: monitoring.Monitor
) -> None:
    latents = swing.rollout(2000)
    latents[7:] = np.nan
    assert monitoring.RolloutQuality(monitor.quality(latents), monitor.horizon).flagged_at == 7
    rollouts = [swing.rollout(seed) for seed in range(30)]
    with pytest.raises(InputError, match="needs 19 validation rollouts, there are 18"):
        monitoring.fit_monitor(rollouts, rollouts[:18])
    for each in rollouts[:3]:
        each[5:] = np.inf
    with pytest.raises(InputError, match="3 of 30 validation rollouts have latents that are not"):
        monitoring.fit_monitor(rollouts[3:], rollouts)


def errors_that_double(at: int | None) -> np.ndarray:
    """Errors that swing about one, within the horizon of ten steps up to 1.9, and double once."""
    errors = 1 + 0.4 * np.sin(np.arange(STEPS))
    errors[3] = 1.9
    if at is not None:
        errors[at - 1 :] = 2.5
    return errors


@pytest.mark.parametrize("at", [11, 25, STEPS, None])
def test_the_step_at_which_an_error_doubles_is_the_planted_one(at: int | None) -> None:
    errors = errors_that_double(at)
    found = detect(errors, 10, 20)
    assert found.doubled_at == at
    assert found.level == pytest.approx(np.sqrt(np.mean(errors[:10] ** 2)))
    assert found.lead == (None if at is None else at - 20)
    errors[29:] = np.nan
    assert detect(errors, 10, None).doubled_at == min(at or 30, 30)


def test_detection_counts_flags_that_come_a_step_before_the_error_doubles(
    monitor: monitoring.Monitor,
) -> None:
    """Sixteen rollouts are flagged at step 17; their errors double when it is planted."""
    departure = np.where(np.arange(STEPS) < 16, 0.5, 2.0)
    doubled = [18] * 4 + [22] * 4 + [17] * 2 + [14] * 2 + [None] * 4
    times, quality = np.arange(1.0, STEPS + 1), monitoring.RolloutQuality(departure, 10)
    watched = [WatchedRollout("a", 0.0, times, quality, errors_that_double(at)) for at in doubled]
    written = MonitorJudgement(monitor, 0.05, 400, tuple(watched)).to_json()
    counts = {"rollouts": 16, "doubled": 12, "detected": 8, "flagged_in_vain": 4}
    expected = {**counts, "median_lead": 3.0, "rate": 8 / 12, "least_lead": 1, "factor": 2.0}
    assert written["detection"] == pytest.approx(expected)
    assert [each["lead_steps"] for each in written["long_rollouts"]][::4] == [1, 5, 0, None]
    assert written["long_rollouts"][11]["error_doubled_at_step"] == 14


@pytest.fixture
def own(surrogate: Surrogate, tmp_path: Path) -> Surrogate:
    """The model in a run directory of its own."""
    shutil.copytree(surrogate.url, tmp_path / "own")
    return courant.load(tmp_path / "own", device="cpu")


def test_a_prediction_is_monitored_once_the_command_has_calibrated_the_run(
    own: Surrogate, dataset: Dataset, tmp_path: Path
) -> None:
    case = dataset[dataset.cases("test")[0]]
    asked = {"initial": case["velocity"][0], "distance": (case.distance, case.direction)}
    with pytest.raises(InputError, match=r"no calibrated monitor.*courant analyse monitor"):
        own.rollout_quality(own.prepare(case.points, **asked))
    command = ["analyse", "monitor", own.url, "--out", str(tmp_path / "analysis")]
    done = called(*command)
    judged = json.loads((tmp_path / "analysis/monitor_judgement.json").read_text())
    assert judged["horizon"] == 2 and judged["rollouts"] == 24
    (long,) = judged["long_rollouts"]
    assert case.id in done.stdout and len(long["departure"]) == long["steps"] == 9
    start = long["start_s"]
    truth = own.problem.solution(case, start + 9.0)
    deviation = (own.predict_case(case, start_s=start, steps=3)[2] - truth) / own.normaliser.std
    assert long["error"][2] == pytest.approx(np.sqrt(np.square(deviation).mean()), rel=1e-5)
    assert "is of the validation split" in refused(
        *command, "--case", dataset.cases("validation")[0]
    )
    loaded = courant.load(own.url, device="cpu")
    quality = loaded.rollout_quality(loaded.prepare(case.points, steps=9, **asked))
    assert quality.horizon == 2 and quality.flagged_at == long["flagged_at_step"]
    np.testing.assert_allclose(quality.departure, long["departure"], rtol=1e-5)


def test_a_monitor_of_other_weights_or_of_a_model_without_latents_is_none(
    own: Surrogate, plain: Surrogate, case: StoredCase, monitor: monitoring.Monitor
) -> None:
    path = Path(own.url) / "monitor.json"
    path.write_text(monitor.model_copy(update={"weights": "of another"}).model_dump_json())
    assert own.monitor is None
    path.write_text("{}")
    with pytest.raises(StoreError, match="is not what this project writes"):
        courant.load(own.url).monitor  # noqa: B018
    plain.__dict__["monitor"] = monitor
    with pytest.raises(InputError, match="this is a transient model of kind fno"):
        plain.rollout_quality(plain.prepare_case(case))
