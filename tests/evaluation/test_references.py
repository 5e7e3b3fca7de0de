"""Regressions and reduced-order models find what is theirs to find."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import simgen
from bench.synthetic_cases import publish_cases
from courant.data.normalisation import Normaliser, select_channels
from courant.evaluation.evaluate import evaluate
from courant.evaluation.record import DMD, NEAREST_DESIGN, PERSISTENCE, POD_GP, POD_RBF
from courant.evaluation.references import MeanFlow, TrainingFields, of_designs, references
from courant.problems import open_problem
from courant.problems.problem import read_states
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.errors import InputError
from simgen.regression import Regression, gaussian_process, radial_basis
from simgen.store.read import Dataset
from simgen.store.schema import Schema
from tests.world import (
    SCHEMA,
    SPACE,
    World,
    design_point,
    duct,
    tiny_experiment,
    tiny_steady,
    travelling_wave,
)


def smooth(inputs: np.ndarray) -> np.ndarray:
    x, y = inputs.T
    return np.stack([np.sin(2 * x) + y**2, 100 * x * y, np.full_like(x, 3.0)], axis=-1)


@pytest.mark.parametrize(("regression", "at_most"), [(gaussian_process, 0.01), (radial_basis, 0.2)])
def test_regressions_predict_between_designs(regression: Regression, at_most: float) -> None:
    generator = np.random.default_rng(1)
    inputs, others = generator.uniform(-1, 1, (60, 2)), generator.uniform(-0.8, 0.8, (20, 2))
    predicted, truth = regression(inputs, smooth(inputs))(others), smooth(others)
    assert predicted.shape == truth.shape
    assert np.abs(predicted - truth)[:, :2].max(0) @ [1, 0.01] < 2 * at_most
    np.testing.assert_allclose(predicted[:, 2], 3.0, atol=1e-6)


@pytest.fixture(scope="module")
def ducts(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Ducts of one width on one mesh: fields of three components, smooth in the parameters."""
    cases = []
    for parameters in SPACE.sample(40, "sobol", 3):
        parameters["half_width"] = 0.75
        point = DesignPoint("branched-pipe", 1, parameters, {"mesh_size": 0.1})
        cases.append((CaseResult(point, "accepted"), duct(90, parameters, seed=5)))
    url = str(tmp_path_factory.mktemp("store") / "branched-pipe")
    return simgen.open_dataset(publish_cases(url, SCHEMA, cases))


def nmae(reference: Any, problem: Any, dataset: Dataset, split: str) -> float:
    wrong, size = 0.0, 0.0
    for case in map(dataset.__getitem__, dataset.cases(split)):
        for window in problem.windows(case):
            predicted = reference(case, window)
            assert predicted.shape == window.truth.shape
            wrong += float(np.abs(predicted - window.truth).sum())
            size += float(np.abs(window.truth).sum())
    return wrong / size


def test_pod_finds_the_components_of_ducts_and_a_training_case_not_itself(ducts: Dataset) -> None:
    problem = open_problem(tiny_steady(), ducts)
    found = references(problem, ducts)
    errors = {name: nmae(each, problem, ducts, "test") for name, each in found.items()}
    assert errors[POD_GP] < 0.05
    assert errors[POD_RBF] < 0.5 * errors[NEAREST_DESIGN]
    pod: Any = found[POD_RBF]
    case = ducts[ducts.cases("test")[0]]
    (window,) = problem.windows(case)
    surrogate: Any = SimpleNamespace(problem=problem, open_dataset=lambda _: ducts)
    name, by = of_designs(surrogate, None, POD_GP)
    assert by is not None and name == POD_GP and of_designs(surrogate, None, "none")[1] is None
    fields = by(case.points, case.parameters, None)
    np.testing.assert_allclose(fields, found[POD_GP](case, window), rtol=1e-6)
    with pytest.raises(InputError, match=r"POD \+ GP or POD \+ RBF"):
        of_designs(surrogate, None, "POD")
    first, second = ducts.cases("train")[:2]
    weights = pod.weights(ducts[first])
    assert weights[0] == 0 and weights[1:].all() and pod.weights(ducts[second])[1] == 0
    np.testing.assert_allclose(weights.sum(), 1)


def test_dmd_advances_a_wave_that_persistence_cannot(tmp_path: Path) -> None:
    wave = travelling_wave(60, 0.8, seed=1)
    cases = [(CaseResult(design_point(number), "accepted"), wave) for number in range(5)]
    schema = Schema.of(get_family("cylinder-flow"))
    dataset = simgen.open_dataset(publish_cases(str(tmp_path / "cylinder-flow"), schema, cases))
    problem = open_problem(tiny_experiment(), dataset)
    found = references(problem, dataset)
    errors = {name: nmae(each, problem, dataset, "test") for name, each in found.items()}
    assert errors[DMD] < 0.02 < 0.2 < errors[PERSISTENCE]


def test_pod_regresses_whole_rollouts_of_the_same_times_on_the_design(tmp_path: Path) -> None:
    cases = [
        (CaseResult(design_point(at / 2), "accepted"), travelling_wave(60, 0.5 + at / 50, seed=1))
        for at in range(15)
    ]
    schema = Schema.of(get_family("cylinder-flow"))
    dataset = simgen.open_dataset(publish_cases(str(tmp_path / "cylinder-flow"), schema, cases))
    problem = open_problem(tiny_experiment(), dataset)
    tested = dataset.cases().index(dataset.cases("test")[0])
    cases[tested] = cases[tested][0], travelling_wave(60, 0.5, seed=1, num_frames=40)
    outlasting = publish_cases(str(tmp_path / "longer" / "cylinder-flow"), schema, cases)
    # Its later windows have no counterpart in the training's rollouts.
    assert POD_GP not in references(problem, simgen.open_dataset(outlasting))
    found = references(problem, dataset)
    errors = {n: nmae(found[n], problem, dataset, "test") for n in (POD_GP, NEAREST_DESIGN)}
    assert errors[POD_GP] < 0.02 and errors[POD_GP] < 0.5 * errors[NEAREST_DESIGN]
    surrogate: Any = SimpleNamespace(problem=problem, open_dataset=lambda _: dataset)
    case = dataset[dataset.cases("test")[0]]
    _, fields = of_designs(surrogate, None, POD_GP)
    (*_, window) = problem.windows(case)
    assert window.start_s is not None
    times = problem.times(window.start_s, len(window.truth))
    assert times is not None and fields is not None
    predicted = fields(case.points, case.parameters, times)
    np.testing.assert_allclose(predicted, found[POD_GP](case, window), rtol=1e-6)
    with pytest.raises(InputError, match="lower --steps"):
        fields(case.points, case.parameters, times + 100)


def test_the_nearest_rollout_is_another_cases_at_the_same_times(waves: Dataset) -> None:
    problem = open_problem(tiny_experiment(), waves)
    nearest = references(problem, waves)[NEAREST_DESIGN]
    case, *others = map(waves.__getitem__, waves.cases("train"))
    own = problem.normaliser.design(case.parameters)
    away = [np.abs(problem.normaliser.design(each.parameters) - own).sum() for each in others]
    expected = others[int(np.argmin(away))]
    window = list(problem.windows(case))[3]
    assert window.start_s is not None
    found = nearest(case, window)
    assert found.shape == window.truth.shape == (2, case.num_points, 2)
    point = np.linalg.norm(expected.points - case.points[7], axis=1).argmin()
    for state, moment in zip(found, problem.times(window.start_s, 2), strict=True):
        frame = int(np.flatnonzero(np.isclose(expected.time, moment))[0])
        np.testing.assert_allclose(state[7], expected["velocity"][frame][point])


def test_they_are_standardised_and_without_the_case_itself(world: World) -> None:
    dataset = simgen.open_dataset(world.ducts())
    normaliser = Normaliser.of(dataset, tiny_steady().data.fields)
    fields = TrainingFields(dataset, normaliser)
    train = dataset.cases("train")
    own, others = dataset[train[0]], [dataset[name] for name in train[1:]]
    found = fields.at(own.points, without=own.id)
    assert len(found) == len(others) >= 2
    for values, case in zip(found, others, strict=True):
        away = np.linalg.norm(case.points[:, None] - own.points, axis=-1)
        solved = read_states(case, normaliser.channels)[away.argmin(axis=0)]
        np.testing.assert_allclose(values, normaliser.standardise(solved), rtol=1e-5, atol=1e-5)
    stranger = dataset[dataset.cases("test")[0]]
    assert len(fields.at(stranger.points, without=stranger.id)) == len(train)
    assert len(fields.at(stranger.points, without=stranger.id, most=1)) == 1


@pytest.mark.parametrize("start_s", [0.0, 10.0])
def test_the_training_mean_is_that_of_all_snapshots(waves: Dataset, start_s: float) -> None:
    case = waves[waves.cases("train")[0]]
    late = case["velocity"][:][np.asarray(case.time) >= start_s]
    mean = MeanFlow(waves, select_channels(waves.schema, ["velocity"]), start_s)
    np.testing.assert_allclose(mean._cases[0][1], late.mean(axis=0), rtol=1e-5, atol=1e-6)


def test_a_dataset_that_begins_after_the_start_is_evaluated_from_its_first_snapshot(
    waves_run: str, waves: Dataset
) -> None:
    assert tiny_experiment().data.start_s == 0.0 and waves[0].time[0] == 1.0
    (case,) = evaluate(waves_run).cases.values()
    # From 1 to 30 s windows of 6 s begin every step of 3 s, from 1 to 22 s.
    assert case.windows == 8
