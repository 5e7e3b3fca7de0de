"""Scores and maps of a trained run's cases are those of its own decomposition and weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from courant.analysis import case_scores, comparison
from courant.analysis.scores import SCORES, AnchorFields, field_scores, temporal_moments
from courant.evaluation.metrics import ratio
from courant.field_model import Inputs, Queries
from courant.model import Courant
from courant.model.config import AnchorKind
from courant.models import build
from courant.prediction.surrogate import Surrogate
from courant.problems import problem_of
from flows.cli.app import app
from flows.terminal import screen
from simgen.errors import InputError
from simgen.store.read import StoredCase
from tests.model.clouds import CHOICES, random_inputs, random_model
from tests.model.literal import explicit_attention, literal_forward


def test_scores_are_those_of_the_contributions_in_standard_deviations(
    surrogate: Surrogate, case: StoredCase
) -> None:
    start = surrogate.problem.shown_start(case)
    whole = surrogate.decompose_case(case, start_s=start)
    fields = whole.contributions / np.asarray(surrogate.normaliser.std, np.float32)
    direct = AnchorFields.of(fields[-1], case.points, case.volumes, whole.anchors)
    found = case_scores.score_case(surrogate, case)
    expected = field_scores(direct, found.spacing_m)
    assert {key: found.scores[key] for key in expected} == pytest.approx(expected, rel=1e-3)
    # The domain is the training cases' bounding box, which is wider than it is high.
    statistics = case.dataset.statistics["points"]
    domain = max(np.subtract(statistics["max"], statistics["min"]))
    assert found.spacing_m == pytest.approx(domain / np.sqrt(8))
    for name in (case_scores.RANDOM, case_scores.NEAREST):
        np.testing.assert_allclose(found.controls[name].total, found.fields.total)
        assert found.control_scores[name]["cancellation"] == pytest.approx(1.0, rel=1e-4)
    assert found.control_scores[case_scores.NEAREST]["own_anchor_nearest"] > 0.8
    assert "anchor_distance" not in found.control_scores[case_scores.POD]
    # Addresses sum to the error of the prediction.
    truth = surrogate.problem.solution(case, float(surrogate.times(start)[-1]))
    error = (surrogate.predict_case(case, start_s=start)[-1] - truth) / surrogate.normaliser.std
    whole_error = (case.volumes[:, None] * error**2).sum() / case.volumes.sum()
    assert found.addresses.total == pytest.approx(whole_error, rel=1e-5)
    moments = temporal_moments(fields, case.volumes)
    np.testing.assert_allclose(found.temporal_variance, ratio(*moments), rtol=1e-3)


def test_places_are_judged_where_the_last_window_is(surrogate: Surrogate, case: StoredCase) -> None:
    windowed = surrogate.experiment.derive(model={"gaussian_window": "both"})
    torch.manual_seed(0)
    model = build(windowed.model)
    for name, parameter in model.named_parameters():
        if "updates" in name:  # they start at zero, which moves nothing
            torch.nn.init.normal_(parameter, std=0.05)
    moving = Surrogate(
        surrogate.url, problem_of(windowed, surrogate.normaliser), surrogate.dataset, model
    )
    start = moving.problem.shown_start(case)
    parts = moving.decomposition(case, start_s=start)
    places = moving.places(parts.window_anchors[-1][:, -1])
    starts = moving.places(parts.anchors)
    found = case_scores.score_case(moving, case)
    np.testing.assert_allclose(found.fields.anchors, places)
    assert np.abs(places - starts).max() > 0.01 * found.spacing_m
    for prefix, anchors in (("", places), ("start_", starts)):
        away = np.linalg.norm(found.fields.centroids - anchors, axis=1)
        expected = float(np.median(away)) / found.spacing_m
        assert found.scores[f"{prefix}anchor_distance"] == pytest.approx(expected)
        assert f"{prefix}own_anchor_nearest" in found.scores
    assert "start_anchor_distance" not in case_scores.score_case(surrogate, case).scores


def test_pod_of_a_steady_case_is_of_the_training_cases_fields(
    surrogate: Surrogate, case: StoredCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = case_scores.score_case(surrogate, case).fields
    snapshots = np.random.default_rng(0).normal(size=(6, case.num_points, 2)).astype(np.float32)
    asked: list[str] = []

    def at(points: np.ndarray, without: str) -> np.ndarray:
        asked.append(without)
        return snapshots

    shift = np.asarray(surrogate.normaliser.mean) / np.asarray(surrogate.normaliser.std)
    known = 0.7 * snapshots[1] + 0.3 * snapshots[4] + shift
    monkeypatch.setattr(type(surrogate.problem), "start", lambda self, case, asked=None: None)
    training = SimpleNamespace(at=at)
    found = case_scores.case_controls(surrogate, case, fields, known, lambda: training)[
        case_scores.POD
    ]
    # A field that the training fields span is the sum of their modes, and their mean.
    expected = np.linalg.norm(known - shift - snapshots.mean(axis=0), axis=-1)
    np.testing.assert_allclose(found.total, expected, rtol=1e-3)
    assert asked == [case.id]
    assert case_scores.POD not in case_scores.case_controls(surrogate, case, fields, known, None)


def test_the_command_prints_a_table_and_writes_scores_and_arrays(
    surrogate: Surrogate, case: StoredCase, tmp_path: Path
) -> None:
    screen.width = 200
    done = CliRunner().invoke(
        app, ["analyse", surrogate.url, "--case", case.id, "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "scores.json").read_text())
    scores = written["cases"][case.id]["scores"]
    assert written["mean"] == scores
    # Thirty seconds of these waves are less than a period.
    absent = {"seed_correlation"} | {each.key for each in SCORES if each.subject == "rhythm"}
    # No window moves anchors.
    absent |= {"start_anchor_distance", "start_own_anchor_nearest"}
    assert set(scores) == {each.key for each in SCORES} - absent
    for each in SCORES:
        assert (each.name in done.stdout) == (each.key in scores)
    with np.load(tmp_path / f"{case.id}.npz", allow_pickle=False) as arrays:
        assert arrays["energies"].shape == (8,)
        assert arrays["dominant_anchor"].shape == (case.num_points,)
        np.testing.assert_allclose(np.diagonal(arrays["gram"]), arrays["energies"])


def test_the_strongest_fields_are_written_in_physical_units(
    surrogate: Surrogate, case: StoredCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case_scores, "MAX_VALUES", 7 * 2 * 8 * 2)
    asked = ["analyse", "fields", surrogate.url, "--case", case.id, "--top", "3"]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    start = surrogate.problem.shown_start(case)
    whole = surrogate.decompose_case(case, start_s=start)
    energies = case_scores.score_case(surrogate, case).fields.energies
    with np.load(tmp_path / f"{case.id}_fields.npz", allow_pickle=False) as found:
        np.testing.assert_allclose(found["energies"], energies, rtol=1e-4)
        np.testing.assert_array_equal(found["ranking"], np.argsort(-energies, kind="stable"))
        strongest = whole.contributions[-1][found["ranking"][:3]]
        np.testing.assert_allclose(found["contributions"], strongest, rtol=1e-4, atol=1e-6)
        predicted = surrogate.predict_case(case, start_s=start)[-1]
        np.testing.assert_allclose(found["total"], predicted, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["anchors"], whole.anchors)
    assert "of the energy" in done.stdout


def test_unknown_cases_and_models_that_do_not_decompose_are_errors_of_one_line(
    surrogate: Surrogate, plain: Surrogate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = ["analyse", surrogate.url, "--out", str(tmp_path / "out"), "--case", "nowhere"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1 and "nowhere" in done.stderr
    monkeypatch.setattr(comparison, "load", lambda url: plain)
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1 and not (tmp_path / "out").exists()
    assert done.stderr.count("\n") == 1 and "a model of kind fno" in done.stderr


SIZES = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.5])
"""Of the anchors' latents when they are encoded"""
STEPS = 3


class Planted:
    """Each anchor has its own third of a line, times its latent, which a step multiplies."""

    def __init__(self, factors: Tensor) -> None:
        self.factors = factors
        self.inner_step, self.inner_solver = 1.0, "euler"

    def encode(self, inputs: Inputs) -> Tensor:
        return SIZES[None, :, None].clone()

    def derivative(self, Z: Tensor) -> Tensor:
        return Z * (self.factors[:, None] - 1)

    def rollout(self, Z: Tensor, num_steps: int) -> Tensor:
        return torch.stack([Z * self.factors[:, None] ** n for n in range(1, num_steps + 1)], dim=1)

    def place_anchors(self, points: Tensor, mask: Tensor | None = None) -> None:
        return None

    def decode(
        self,
        Z: Tensor,
        queries: Queries,
        *,
        anchors: Tensor | None = None,
        chunk: int | None = None,
    ) -> Tensor:
        own = queries.points[..., :1].long() == torch.arange(len(SIZES))
        return own.float() @ Z


def planted(factors: Tensor, step_s: float | None) -> Any:
    points = torch.arange(len(SIZES) * 600)[None, :, None] % len(SIZES)
    inputs = Inputs(points.float(), points.float())
    return SimpleNamespace(
        model=Planted(factors),
        step_s=step_s,
        problem=SimpleNamespace(num_steps=STEPS),
        model_inputs=lambda case, start: (inputs, Queries(points.float())),
    )


def test_effects_before_and_after_the_processor_are_those_planted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(case_scores, "TOGETHER", 2)
    # What is encoded strongest decays fastest.
    factors = torch.tensor([0.1, 0.5, 1.0, 1.5, 4.0])
    found = case_scores.ablation_effects(planted(factors, 10.0), cast(Any, None), 0.0)
    last = (SIZES * factors**STEPS).numpy()
    np.testing.assert_allclose(found["after"], last**2 / len(SIZES), rtol=1e-2)
    np.testing.assert_allclose(found["before"], found["after"], rtol=1e-5)
    scores = case_scores.ablation_scores(found, last**2)
    assert scores == pytest.approx({"ablation_after": 1.0, "ablation_before": 1.0})
    assert case_scores.ablation_scores(found, SIZES.numpy())["ablation_after"] == pytest.approx(
        -1.0
    )
    steady = case_scores.ablation_effects(planted(torch.ones(5), None), cast(Any, None), None)
    assert list(steady) == ["after"]


@pytest.mark.parametrize(
    "choice", ["window in both", "window, learned anchors", "abstract queries"]
)
def test_reading_is_the_attention_of_the_equations(choice: str) -> None:
    config, num = CHOICES[choice], 23
    model = random_model(config, torch.float64)
    mask = torch.ones(2, num, dtype=torch.bool)
    mask[1, -5:] = False
    given = replace(random_inputs(config, points=num, dtype=torch.float64), mask=mask)
    expected: list[Tensor] = []

    def record(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        if k.shape[-2] == num:
            one_hot = torch.eye(num, dtype=q.dtype).expand(*k.shape[:-1], -1)
            expected.append(explicit_attention(q, k, one_hot, bias).mean(dim=1))
        return explicit_attention(q, k, v, bias)

    literal_forward(model, **given.tensors(), attention=record)
    found = model.reading(given.cloud, [4, 1])
    assert found.weights.shape == (2, len(expected), 2, num) == (2, 3, 2, 23)
    for level, weights in enumerate(expected):
        np.testing.assert_allclose(found.weights[:, level], weights[:, [4, 1]].detach(), atol=1e-6)
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-6)
    assert not found.weights[1, ..., -5:].any()
    assert len(found.anchors) == (0 if choice == "abstract queries" else 3)


def test_the_command_writes_the_decoder_weights_of_a_rollout(
    surrogate: Surrogate, case: StoredCase, tmp_path: Path
) -> None:
    asked = ["analyse", "maps", surrogate.url, "--anchor", "5", "--anchor", "2"]
    done = CliRunner().invoke(app, [*asked, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    start = surrogate.problem.shown_start(case)
    whole = surrogate.decomposition(case, start_s=start).whole()
    weights = whole.weights[0].mean(dim=1).numpy()  # (T, M, L)
    with np.load(tmp_path / f"{case.id}_maps.npz") as found:
        assert found["chosen"].tolist() == [5, 2] and len(found["times"]) == 2
        expected = weights[..., [5, 2]].swapaxes(1, 2)
        np.testing.assert_allclose(found["weights"], expected, rtol=1e-5)
        assert (found["dominant"] == weights.argmax(-1)).mean() > 0.99
        assert found["reading"].shape == (2, 2, case.num_points)
        np.testing.assert_allclose(found["read_points"], case.points, atol=1e-4)
        assert "moved" not in found and "displacements" not in found
    with pytest.raises(InputError, match="anchor 8: this model has anchors 0 to 7"):
        case_scores.map_anchors(surrogate, case, [8], start)


@pytest.mark.parametrize("kind", ["sampled", "learned"])
def test_how_far_levels_move_anchors_is_in_metres(
    surrogate: Surrogate, case: StoredCase, kind: AnchorKind
) -> None:
    windows = {"gaussian_window": "encoder", "anchor_kind": kind}
    config = surrogate.problem.experiment.derive(model=windows).model
    model = Courant(config)
    assert model.windows is not None
    with torch.no_grad():  # Its weights are zero at the start: only the bias is left.
        model.windows.updates["1"].displacement.bias[:2] = torch.tensor([0.3, 0.4])
    windowed = Surrogate(surrogate.url, surrogate.problem, surrogate.dataset, model)
    found = case_scores.map_anchors(windowed, case, [0], surrogate.problem.shown_start(case))
    assert found.displacements is not None
    np.testing.assert_allclose(found.displacements[0], 0, atol=1e-4)
    half = 0.5 * surrogate.normaliser.length_scale
    np.testing.assert_allclose(found.displacements[1], half, rtol=1e-4)


def test_representative_anchors_are_strong_and_differ_in_how_they_swing() -> None:
    energies = np.array([9.0, 8.0, 7.0, 6.0, 0.1, 0.1, 0.1, 0.1])
    variance = np.array([0.1, 0.9, 0.5, np.nan, 1.0, 1.0, 1.0, 1.0])
    assert case_scores.representative_anchors(energies, variance) == [1, 2, 3]
    assert case_scores.representative_anchors(energies[::-1], None) == [7, 6, 5]
    assert case_scores.representative_anchors(np.ones(1), np.ones(1)) == [0]
