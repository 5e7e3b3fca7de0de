"""A rollout's rhythm is found in flow, latents and processor where each was planted."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import simgen
from courant.analysis import case_dynamics
from courant.analysis.case_dynamics import follow_case
from courant.data.normalisation import Normaliser
from courant.field_model import FieldModel, Inputs, ModelConfig, Queries
from courant.prediction.surrogate import Surrogate
from courant.problems import problem_of
from courant.report.dynamics import frequencies_panel
from courant.report.page import write_page
from courant.runs.directory import RunDirectory
from flows.cli.app import app
from flows.terminal import screen
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.store.read import Dataset
from simgen.store.schema import Schema
from simgen.store.write import DatasetWriter
from tests.world import design_point, tiny_experiment, travelling_wave

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

    inner_step = 1.0
    inner_solver = "euler"

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
        states = []
        for _ in range(num_steps):
            Z = Z + self.derivative(Z)
            states.append(Z)
        return torch.stack(states, dim=1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    url = str(tmp_path_factory.mktemp("store") / "waves")
    writer = DatasetWriter.open(url, Schema.of(get_family("cylinder-flow")))
    fork = writer.fork()
    for number in range(3):
        cloud = travelling_wave(400, SPEED, seed=number, num_frames=NUM_FRAMES)
        fork.write(CaseResult(design_point(number, NUM_FRAMES), "accepted"), cloud)
    writer.commit([fork])
    writer.publish("waves")
    return simgen.open_dataset(url)


def surrogate_of(dataset: Dataset, **data: float) -> Surrogate:
    experiment = tiny_experiment().derive(data={"step_s": STEP_S, **data})
    problem = problem_of(experiment, Normaliser.of(dataset, experiment.data.fields))
    parameters = [{"name": each.name} for each in dataset.schema.parameters]
    record = {"family": "cylinder-flow", "parameters": parameters}
    model = SwingModel(SwingConfig(num_features=2, num_outputs=2))
    return Surrogate("memory", problem, record, model)


def test_flow_latents_and_processor_have_the_frequencies_that_were_planted(
    dataset: Dataset, tmp_path: Path
) -> None:
    found = follow_case(surrogate_of(dataset), dataset[0])
    assert found is not None
    assert len(found.times) == NUM_FRAMES // 3 - 1 and found.horizon == 2
    later = follow_case(surrogate_of(dataset), dataset[0], start_s=5 * STEP_S)
    assert later is not None and len(later.times) == len(found.times) - 4
    assert found.reference_hz == pytest.approx(WAVE_HZ, rel=0.02)
    assert found.predicted_hz == pytest.approx(PLANTED_HZ, rel=0.02)
    np.testing.assert_allclose(found.lock_in, 0.1, atol=0.03)
    assert found.leading_anchor == 0
    middle = slice(10, 30)
    np.testing.assert_allclose(found.drift[middle], 0.1, atol=0.05)
    assert found.lost_s is None
    for _, each in found.jacobians:
        assert each.exact and each.frequencies[each.longest] == pytest.approx(PLANTED_HZ)
        assert each.growth_rates[0] == pytest.approx(np.log(KEPT) / STEP_S)
    solved, predicted = found.modes
    assert solved.leading_frequency() == pytest.approx(WAVE_HZ, rel=1e-3)
    assert predicted.leading_frequency() == pytest.approx(PLANTED_HZ, rel=1e-3)
    scores = found.scores()
    assert scores["frequency_error"] == pytest.approx(0.1, abs=0.03)
    assert (scores["locked_in"], scores["rhythm_kept"]) == (1.0, 1.0)
    context: Any = SimpleNamespace(shown=[SimpleNamespace(case=dataset[0])], dynamics=found)
    panel = frequencies_panel(context)
    assert panel is not None
    files, _ = write_page(RunDirectory(tmp_path), "", [], "", [panel])
    assert len(files) == len(panel.pictures) + 1 == 5
    times = re.findall(r"at ([\d.]+) s", panel.pictures[3].caption)
    assert list(map(float, times)) == [time for time, _ in found.jacobians]
    shown = {row[""]: row["frequency (Hz)"] for row in panel.tables[0].rows}
    assert shown["DMD of the solution, strongest pair"] == f"{WAVE_HZ:.3g}"


def test_short_cases_still_flows_and_models_without_latents_have_no_rhythm(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = surrogate_of(dataset, start_s=float(NUM_FRAMES - 7 * STEP_S))
    assert follow_case(late, dataset[0]) is None
    with monkeypatch.context() as patched:
        still = np.ones((NUM_FRAMES, dataset[0].num_points, 2))
        patched.setattr(case_dynamics, "read_states", lambda *_: still)
        assert follow_case(surrogate_of(dataset), dataset[0]) is None
    monkeypatch.delattr(SwingModel, "derivative")
    assert follow_case(surrogate_of(dataset), dataset[0]) is None


@pytest.fixture
def planted(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> Surrogate:
    """The run that every command of these tests loads."""
    surrogate = surrogate_of(dataset)
    monkeypatch.setattr("courant.prediction.surrogate.load", lambda url: surrogate)
    monkeypatch.setattr(Surrogate, "open_dataset", lambda self, url=None: dataset)
    monkeypatch.setattr(screen, "_width", 200)
    return surrogate


def test_the_frequencies_of_test_cases_are_one_table_with_medians(
    planted: Surrogate, dataset: Dataset, tmp_path: Path
) -> None:
    named = [part for case in dataset.cases()[:2] for part in ("--case", case)]
    asked = ["analyse", "frequencies", "RUN", *named, "--steps", "30", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "median error of 2" in done.stdout
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
        # The wave is two POD modes and one DMD pair; the latents' wave shrinks from step to step.
        modes = each["modes"]
        assert modes["frequencies"] == [each["true_dmd_hz"], each["dmd_hz"]]
        assert modes["growth_rates"][0] == pytest.approx(0, abs=1e-5)
        assert modes["growth_rates"][1] == pytest.approx(np.log(KEPT) / STEP_S, rel=1e-2)
        assert modes["leading_shares"] == pytest.approx([1.0, 1.0], abs=0.02)
        assert 0 < modes["pod_correlation"] < 1 and 0 < modes["dmd_correlation"] < 1
    assert written["never_lost"] == 2 and written["medians"]["kept"] == 1.0
    assert written["medians"]["dmd_hz_error"] == pytest.approx(0.1, abs=0.03)
    with np.load(tmp_path / f"{dataset.cases()[0]}_frequencies.npz") as arrays:
        assert arrays["components"].shape == (30, 4, 3) and arrays["time"][-1] == 30 * STEP_S
        assert arrays["drift"].shape == (30,)


@pytest.mark.parametrize("exact_up_to", [None, "11"], ids=["exact", "Arnoldi"])
def test_the_spectrum_command_finds_the_planted_pair_at_the_steps_that_are_named(
    planted: Surrogate, dataset: Dataset, tmp_path: Path, exact_up_to: str | None
) -> None:
    case = dataset.cases()[0]
    limit = [] if exact_up_to is None else ["--exact-up-to", exact_up_to]
    asked = ["analyse", "spectrum", "RUN", "--case", case, "--at", "0", "--at", "20"]
    done = CliRunner().invoke(app, [*asked, *limit, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    (written,) = json.loads((tmp_path / "spectrum.json").read_text())["cases"]
    assert [(each["step"], each["time_s"]) for each in written["states"]] == [(0, 0), (20, 60)]
    assert written["reference_hz"] == pytest.approx(WAVE_HZ, rel=0.02)
    for each in written["states"]:
        assert each["exact"] == (exact_up_to is None)
        for pair in (each["longest"], each["nearest"]):
            turn = 2 * np.pi * PLANTED_HZ * STEP_S
            assert pair["step"] == pytest.approx([KEPT * np.cos(turn), KEPT * np.sin(turn)])
            assert pair["derivative"][0] == pytest.approx(pair["step"][0] - 1)
            assert pair["frequency_hz"] == pytest.approx(PLANTED_HZ)
            assert pair["over_reference"] == pytest.approx(1.1, rel=0.02)
    counted = "all 12" if exact_up_to is None else "the leading 10"
    assert f"of {counted} eigenvalues" in done.stdout
    with np.load(tmp_path / f"{case}_spectrum.npz") as arrays:
        assert len(arrays["step_eigenvalues_20"]) == (12 if exact_up_to is None else 10)
