"""Anchors that lie closer together where a model errs: chosen, learned, derived and compared."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree
from typer.testing import CliRunner

import courant
from courant.analysis.error_indicators.anchor_state import anchor_state
from courant.analysis.error_indicators.refinement import CLOSEST, gathered, refined
from courant.analysis.error_indicators.study import JudgedState, compare, study_errors
from courant.data.anchor_choice import AnchorChoice
from courant.experiment import parse_experiment
from courant.prediction.surrogate import Surrogate
from courant.runs.directory import RunDirectory
from courant.training.loop import fit
from flows.cli.app import app
from simgen.errors import InputError
from simgen.store.access.reader import Dataset
from tests.analysis.planted import grid
from tests.training.waves import tiny_experiment

LEFT = ((0.0, 0.25, 0.0, 2.0), (0.0, 0.75, 0.0, 2.0), (1.0, 0.25, 0.0, 1.0), (1.0, 0.75, 0.0, 1.0))


def cloud(num: int = 4000) -> torch.Tensor:
    points = np.random.default_rng(1).uniform(size=(1, num, 3)).astype(np.float32)
    points[..., 2] = 0
    return torch.from_numpy(points)


def test_anchors_lie_closer_where_that_is_asked() -> None:
    chosen = AnchorChoice(80, LEFT).among(cloud())[0].numpy()
    assert len(np.unique(chosen, axis=0)) == 80
    apart = cKDTree(chosen).query(chosen, k=2)[0][:, 1]
    at_left, at_right = (apart[side] for side in (chosen[:, 0] < 0.2, chosen[:, 0] > 0.8))
    assert 1.6 < np.median(at_right) / np.median(at_left) < 2.4
    even = AnchorChoice(80).among(cloud())[0].numpy()
    assert 0.4 < np.mean(even[:, 0] < 0.5) < 0.6 < np.mean(chosen[:, 0] < 0.5)
    same = AnchorChoice(80, tuple((x, y, z, 2.0) for x, y, z, _ in LEFT)).among(cloud())[0].numpy()
    np.testing.assert_array_equal(same, even)


def test_padding_is_never_an_anchor_and_a_cloud_alone_has_the_same() -> None:
    points = cloud(400)
    padded = torch.cat([points, torch.zeros(1, 50, 3)], dim=1)
    mask = torch.arange(padded.shape[1])[None] < points.shape[1]
    choice = AnchorChoice(30, LEFT)
    torch.testing.assert_close(choice.among(padded, mask), choice.among(points))
    assert AnchorChoice(0, LEFT).among(points).shape == (1, 0, 3)


def test_errors_become_closeness_within_bounds() -> None:
    places = grid(20)
    densities = np.where(places[:, 0] < 0.25, 1e6, np.where(places[:, 0] < 0.5, 16.0, 1.0))
    found = np.array(gathered(places, densities))
    assert len(found) <= 128
    far = found[found[:, 0] > 0.6, 3]
    assert (found[found[:, 0] < 0.15, 3] == CLOSEST).all()
    np.testing.assert_allclose(far, far[0])
    assert gathered(places, densities) == gathered(places, densities)
    with pytest.raises(InputError, match="no error on half of its validation cases"):
        gathered(places, np.zeros(len(places)))


def test_a_refined_model_trains_and_predicts_at_its_own_anchors(
    surrogate: Surrogate, dataset: Dataset, tmp_path: Path
) -> None:
    before = surrogate.experiment.model.num_sampled_anchors
    told: list[tuple[int, int]] = []
    made = refined(surrogate, dataset, before + 3, lambda *each: told.append(each))
    assert told
    assert made.model.num_sampled_anchors == before + 3
    assert made.name == f"{surrogate.experiment.name}-refined"
    run = RunDirectory(tmp_path / "refined")
    fit(made.derive(training={"epochs": 1}), dataset, run)
    loaded = courant.load(run.url, device="cpu")
    case = dataset[dataset.cases("test")[0]]
    start = loaded.problem.shown_start(case)
    anchors = loaded.decompose_case(case, start_s=start, cells=np.array([0])).anchors
    points = loaded.normaliser.points(case.points)
    expected = loaded.problem.anchors.among(torch.from_numpy(points)[None])[0].numpy()
    assert anchors is not None
    np.testing.assert_allclose(loaded.normaliser.points(anchors), expected, atol=1e-5)


def test_refining_again_keeps_what_was_refined(
    surrogate: Surrogate, dataset: Dataset, tmp_path: Path
) -> None:
    once = surrogate.experiment.derive(
        name="once", data={"closer_anchors": [(0.0, 0.0, 0.0, 2.0)]}, training={"epochs": 1}
    )
    run = RunDirectory(tmp_path / "once")
    fit(once, dataset, run)
    again = refined(courant.load(run.url, device="cpu"), dataset, 9).data.closer_anchors
    plain = refined(surrogate, dataset, 9).data.closer_anchors
    assert np.median([each[3] for each in again]) > 1.5 > np.median([each[3] for each in plain])


def test_images_of_training_cases_have_anchors_where_theirs_are(
    surrogate: Surrogate, dataset: Dataset, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "mirrored")
    fit(tiny_experiment(epochs=1).derive(data={"mirror_y": True}), dataset, run)
    loaded = courant.load(run.url, device="cpu")
    found = np.array(refined(loaded, dataset, 9).data.closer_anchors)
    places = loaded.normaliser.restore_points(found[:, :3])
    half = len(found) // 2
    np.testing.assert_allclose(places[half:, 1], -places[:half, 1], atol=1e-2)
    np.testing.assert_array_equal(found[half:, [0, 2, 3]], found[:half, [0, 2, 3]])


@pytest.mark.parametrize("closer", [0.0, -1.0, 1e25, float("nan")])
def test_closeness_has_bounds(surrogate: Surrogate, closer: float) -> None:
    with pytest.raises(InputError, match="closer_anchors"):
        surrogate.experiment.derive(data={"closer_anchors": [(0.0, 0.0, 0.0, closer)]})


def test_only_sampled_anchors_can_be_refined(dataset: Dataset, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "learned")
    fit(tiny_experiment(epochs=1).derive(model={"anchor_kind": "learned"}), dataset, run)
    with pytest.raises(InputError, match="only a model that samples its anchors"):
        refined(courant.load(run.url, device="cpu"), dataset, 8)


def test_another_model_is_compared_where_errors_are_expected(
    surrogate: Surrogate, dataset: Dataset
) -> None:
    case = dataset[dataset.cases("test")[0]]
    start = surrogate.problem.shown_start(case)
    state = anchor_state(surrogate, case, start, surrogate)
    assert state.errors is not None
    assert state.other_errors is not None
    np.testing.assert_allclose(state.other_errors, state.errors)
    first = np.argsort(-state.errors)[:1]
    halved = state.errors.copy()
    halved[first] *= 0.5
    planted = dataclasses.replace(state, other_errors=halved)
    found = compare("other", [JudgedState(planted, state.errors, {})] * 2)
    assert (found.at_first, found.elsewhere) == (pytest.approx(0.5), pytest.approx(1.0))
    alone = dataclasses.replace(state, errors=state.errors[:1], other_errors=state.other_errors[:1])
    assert compare("other", [JudgedState(alone, alone.errors, {})]).elsewhere is None


def test_models_that_predict_something_else_are_not_compared(
    surrogate: Surrogate, dataset: Dataset, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "one")
    one = tiny_experiment(epochs=1).derive(
        model={"num_outputs": 1, "num_features": 17}, data={"fields": ("velocity.x",)}
    )
    fit(one, dataset, run)
    other = courant.load(run.url, device="cpu")
    with pytest.raises(InputError, match=r"predicts velocity\.x of .*: compare like with like"):
        study_errors(surrogate, dataset, other=other)


def test_cases_that_the_indicator_is_fitted_to_are_not_judged(
    surrogate: Surrogate, dataset: Dataset
) -> None:
    fitted = dataset.cases("validation")[:1]
    with pytest.raises(InputError, match=f"case {fitted[0]} is of the validation split, to which"):
        study_errors(surrogate, dataset, fitted)


def test_the_command_writes_an_experiment(
    surrogate: Surrogate, dataset: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "refined.json"
    ran = CliRunner(env={"COLUMNS": "200"}).invoke(
        app, ["analyse", "refine", surrogate.url, "--anchors", "9", "--out", str(out)]
    )
    assert ran.exit_code == 0, ran.output
    expected = f"courant train {dataset.url} --version {dataset.version} --experiment {out}"
    assert expected in ran.output
    made = parse_experiment(json.loads(out.read_text()))
    assert made.model.num_sampled_anchors == 9
    assert made.data.closer_anchors
    missing = str(tmp_path / "nowhere/refined.json")
    ran = CliRunner().invoke(app, ["analyse", "refine", surrogate.url, "--out", missing])
    assert ran.exit_code == 1
    assert "cannot be written" in " ".join(ran.output.split())
