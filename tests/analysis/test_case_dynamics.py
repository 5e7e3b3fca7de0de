"""A rollout's rhythm is found in flow, latents and processor where each was planted."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import simgen
from courant.analysis.dynamics.case_dynamics import follow_case, rhythm_scores
from courant.data.normalisation import Normaliser
from courant.field_model import FieldModel, Inputs, ModelConfig, Queries
from courant.prediction.surrogate import Surrogate
from courant.problems import problem_of
from courant.report.panels import frequencies
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.store.access.reader import Dataset
from simgen.store.access.writer import DatasetWriter
from simgen.store.format.layout import Schema
from tests.training.waves import design_point, tiny_experiment, travelling_wave

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
    dataset: Dataset,
) -> None:
    found = follow_case(surrogate_of(dataset), dataset[0])
    assert found is not None
    assert len(found.times) == NUM_FRAMES // 3 - 1 and found.horizon == 2
    assert found.reference_hz == pytest.approx(WAVE_HZ, rel=0.02)
    assert found.predicted_hz == pytest.approx(PLANTED_HZ, rel=0.02)
    np.testing.assert_allclose(found.lock_in, 0.1, atol=0.03)
    assert found.leading_anchor == 0
    middle = slice(10, 30)
    np.testing.assert_allclose(found.drift[middle], 0.1, atol=0.05)
    assert found.lost_s is None
    for _, each in found.jacobians:
        assert each.exact and each.frequencies[each.oscillatory] == pytest.approx(PLANTED_HZ)
        assert each.growth_rates[0] == pytest.approx(np.log(KEPT) / STEP_S)
    solved, predicted = found.modes
    assert solved.leading_frequency() == pytest.approx(WAVE_HZ, rel=1e-3)
    assert predicted.leading_frequency() == pytest.approx(PLANTED_HZ, rel=1e-3)
    scores = rhythm_scores(found)
    assert scores["frequency_error"] == pytest.approx(0.1, abs=0.03)
    assert (scores["locked_in"], scores["rhythm_kept"]) == (1.0, 1.0)
    frequencies.draw(found).canvas.draw()
    shown = {row[0].text: row[1].text for row in frequencies.table(found).rows}
    assert shown["DMD of the solution, strongest pair"] == f"{WAVE_HZ:.3g}"


def test_a_case_too_short_for_a_spectrum_is_not_followed(dataset: Dataset) -> None:
    late = surrogate_of(dataset, start_s=float(NUM_FRAMES - 7 * STEP_S))
    assert follow_case(late, dataset[0]) is None


def test_a_flow_that_stands_still_has_no_rhythm(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    from courant.analysis.dynamics import case_dynamics

    still = np.ones((NUM_FRAMES, dataset[0].num_points, 2))
    monkeypatch.setattr(case_dynamics, "read_states", lambda *_: still)
    assert follow_case(surrogate_of(dataset), dataset[0]) is None


def test_a_model_without_latents_is_not_followed(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(SwingModel, "derivative")
    assert follow_case(surrogate_of(dataset), dataset[0]) is None
