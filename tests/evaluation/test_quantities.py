"""Quantities of interest from predicted fields, beside the regression on parameters alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import simgen
from bench.synthetic_cases import publish_cases
from courant.data.normalisation import Normaliser
from courant.evaluation import quantities
from courant.evaluation.quantities import (
    fit_answers,
    left_out_scores,
    measure_quantities,
    scaled_designs,
    share_of_fields,
)
from courant.prediction.answers import BOTH, FIELDS, REGRESSION, Answers, RegressedQuantity
from courant.prediction.surrogate import NotFiniteError
from courant.problems import open_problem
from simgen import regression
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.cases.cylinder.family import CylinderFlow
from simgen.design_space import DesignPoint
from simgen.errors import InputError
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.quantities import CaseFields, Quantity
from simgen.store.read import Dataset, StoredCase
from simgen.store.schema import Schema
from tests.world import SCHEMA, SPACE, duct, publish_waves, tiny_experiment, tiny_steady


@pytest.fixture(scope="module")
def ducts(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """With two figures on record: of the loss every tenth is missing, the speed is noise."""
    schema = replace(SCHEMA, quantities=Schema.of(get_family("branched-pipe")).quantities)
    noise, cases = np.random.default_rng(0), []
    for number, parameters in enumerate(SPACE.sample(40, "sobol", 3)):
        loss = {"pressure_loss": parameters["speed"] ** 2} if number % 10 else {}
        figures = {"figures": {**loss, "peak_speed": float(noise.uniform(5, 10))}}
        point = DesignPoint("branched-pipe", 1, parameters, {"mesh_size": 0.1})
        result = CaseResult(point, "accepted", provenance=figures)
        cases.append((result, duct(90, parameters, seed=5)))
    url = str(tmp_path_factory.mktemp("store") / "branched-pipe")
    return simgen.open_dataset(publish_cases(url, schema, cases))


def surrogate_of(
    dataset: Dataset, experiment: Any, predict: Callable[..., np.ndarray]
) -> SimpleNamespace:
    """A trained model, of which only what it predicts matters."""
    problem = open_problem(experiment, dataset)
    normaliser: Normaliser = problem.normaliser
    return SimpleNamespace(
        problem=problem,
        normaliser=normaliser,
        weights="digest",
        dataset={"settings": dataset[0].settings},
        channels=tuple(each.name for each in normaliser.channels),
        times=lambda start, steps: problem.times(start, problem.steps(steps)),
        predict_case=lambda case, start_s, steps: predict(problem, case, start_s, steps),
    )


def steady(dataset: Dataset, factor: float, fields: tuple[str, ...]) -> Any:
    model = {"num_outputs": 4, "num_features": 4} if fields == ALL else {}
    experiment = tiny_steady().derive(model=model, data={"fields": fields})
    return surrogate_of(
        dataset, experiment, lambda problem, case, *_: factor * problem.solution(case, None)
    )


ALL = ("velocity", "kinematic_pressure")


def test_solved_fields_in_place_of_predicted_ones_make_no_error(ducts: Dataset) -> None:
    ids = ducts.cases("test")
    found = measure_quantities(steady(ducts, 1.0, ALL), ducts, ids, Answers())["quantities"]
    assert list(found) == ["pressure_loss", "branch1_share", "peak_speed"]
    assert all(score.fields_error == 0 for score in found.values())
    # Of two, the solver's own measure is on record, which is the truth.
    share = found["branch1_share"]
    assert share.error == 0 and share.rank_correlation == pytest.approx(1)
    assert share.predicted == share.truth and list(share.truth) == ids
    assert found["peak_speed"].truth[ids[0]] == ducts.design.loc[ids[0], "peak_speed"]
    speeds = np.linalg.norm(ducts[ids[0]]["velocity"][:], axis=1)
    assert found["peak_speed"].predicted[ids[0]] == pytest.approx(float(speeds.max()))
    other: Any = SimpleNamespace(computed=())
    assert measure_quantities(steady(ducts, 1.0, ALL), other, [], Answers()) == {}


def test_an_answer_is_the_regression_where_fields_add_nothing(ducts: Dataset) -> None:
    surrogate, ids = steady(ducts, 1.3, ALL), ducts.cases("test")
    answers = fit_answers(surrogate, ducts)
    fitted = [*ducts.cases("train"), *ducts.cases("validation")]
    np.testing.assert_array_equal(answers.designs, scaled_designs(ducts, fitted))
    found = measure_quantities(surrogate, ducts, ids, answers)["quantities"]
    loss, share, speed = (found[name] for name in found)
    assert loss.fields_error == pytest.approx(0.3, rel=1e-4)
    # What the formula is off by is beside what the fields are off by.
    off = {case: each and each * 1.1 for case, each in speed.truth.items()}
    assert speed.error_of(off) == pytest.approx(0.1) and speed.error_of({}) is None
    of_solved = speed.error_of(speed.of_solved_fields)
    assert of_solved is not None and of_solved > 0.05, "its record is noise"
    # Smooth in the parameters, unknown of some training cases.
    assert loss.null_error is not None and loss.null_error < 0.1
    assert loss.error is not None and loss.error <= loss.null_error
    assert (loss.source, share.source) == (REGRESSION, FIELDS)
    assert all(value is not None for value in loss.null.values())
    assert speed.null_error is not None and speed.null_error > 0.05, "its record is noise"
    # A factor leaves shares alone, and without a record there is no null.
    assert share.fields_error == pytest.approx(0, abs=1e-6)
    assert share.null == {} and share.null_error is None
    # What it was fitted to, an answer is scored without.
    seen = measure_quantities(surrogate, ducts, ducts.cases("train"), answers)["quantities"]
    assert seen["peak_speed"].error > 0.05 and seen["peak_speed"].null_error is None
    mixed = simgen.open_dataset(ducts.url)
    mixed.records[fitted[0]]["settings"] = {"mesh_size": 0.2}
    assert fit_answers(surrogate, mixed).designs == answers.designs[1:]
    mixed.members.clear()
    for row in mixed.records.values():
        row["status"] = "withdrawn"
    with pytest.raises(InputError, match="no case left with the solver settings of the run"):
        fit_answers(surrogate, mixed)


def test_the_cells_of_a_thin_plate_are_those_on_the_side_of_each_face() -> None:
    cells = np.array([[0.0, 0.1, 0], [0, -0.1, 0], [1, 0.1, 0], [1, -0.1, 0]])
    plate, up = np.repeat([[0.0, 0, 0], [1, 0, 0]], 2, axis=0), np.array([0.0, -1, 0])
    normals = np.array([up, -up, up, -up])  # out of the cells above and below
    boundary = BoundaryCloud(plate, normals, np.ones(4), np.zeros(4, int))
    cloud = PointCloud(cells, np.ones(4), None, None, ("wall",), None, {}, boundary)
    faces = CaseFields({}, {}, cloud).faces("wall")
    assert faces.cells.tolist() == [0, 1, 2, 3] and faces.depth == pytest.approx(0.1)


@pytest.mark.parametrize("decades", [0.2, 2.0])
def test_a_number_over_decades_is_regressed_by_its_logarithm(decades: float) -> None:
    generator = np.random.default_rng(5)
    designs = generator.uniform(-1, 1, (60, 2))
    noise = 0.02 * generator.normal(size=60)
    truth = 10 ** (decades * (designs[:, 0] + noise) / 2)
    known, fresh = np.arange(60) < 40, np.arange(60) >= 40
    process = regression.gaussian_process(designs[known], truth[known, None])
    assert process.by_logarithm == (decades > 1)
    answered, deviation = process(designs[fresh])[:, 0], process.deviation(designs[fresh])[:, 0]
    score = np.abs(answered - truth[fresh]) / deviation
    assert 0.4 < score.mean() < 1.4, "0.8 of a normal distribution"
    _, scatter, scores = left_out_scores(process, designs[:1], truth[:1, None])
    assert scatter == len(scores) == 0, "nothing is left where a single case is left out"
    if decades > 1:
        assert deviation[answered.argmax()] > 10 * deviation[answered.argmin()]
    far = process.deviation(np.array([[30.0, 0.0]]))[0, 0]
    at_far = process(np.array([[30.0, 0.0]]))[0, 0]
    spread = np.log(truth[known]).std() * at_far if decades > 1 else truth[known].std()
    assert far == pytest.approx(spread, rel=0.02), "that of all data, far from all of them"


def test_fields_have_a_share_where_they_correct_cases_that_were_left_out() -> None:
    generator = np.random.default_rng(4)
    designs = generator.uniform(-1, 1, (40, 2))
    hidden = generator.normal(size=40)  # of which the parameters know nothing
    truth = designs[:, 0] + hidden
    process = regression.gaussian_process(designs, truth[:, None])
    left_out = regression.left_out(designs, truth[:, None], 40)[0][:, 0]
    useful, noise = truth + 0.3 * generator.normal(size=40), generator.normal(size=40)
    share = share_of_fields(truth, left_out, useful)
    assert 0.8 < share <= 1
    assert share_of_fields(truth, left_out, designs[:, 0] + noise) < 0.3
    assert share_of_fields(truth[:4], left_out[:4], useful[:4]) == 0, "too few"
    unknown = np.where(np.arange(40) < 3, np.nan, useful)
    assert 0.8 < share_of_fields(truth, left_out, unknown) <= 1

    quantity = RegressedQuantity(
        values=truth.tolist(), logs=process.logs.tolist(), share=share, scatter=0, scores=()
    )
    answers = Answers(designs=designs.tolist(), quantities={"head": quantity})
    at = generator.uniform(-1, 1, (2, 2))
    of_fields, alone = np.array([2.0, np.nan]), process(at)[:, 0]
    found = answers.at(at, {"head": of_fields, "other": of_fields})
    assert found["head"][0] == pytest.approx(alone[0] + share * (2.0 - alone[0]))
    assert found["head"][1] == pytest.approx(alone[1]) and found["other"][0] == 2.0
    np.testing.assert_allclose(answers.at(at, {"head": of_fields}, False)["head"], alone)
    assert answers.source("head") == BOTH and answers.source("head", False) == REGRESSION
    rest = regression.GaussianProcess.of(designs[1:], truth[1:, None], process.logs)
    without = answers.left_out(designs[0] + 1e-5)["head"]
    assert without == pytest.approx(rest(designs[:1])[0, 0], abs=1e-3) != truth[0]
    assert answers.left_out(at[0]) == {}, "it was not fitted to it"
    noise = quantity.model_copy(update={"logs": [*np.full(len(process.logs) - 1, -9.0), 0.0]})
    both = {"quantities": {"a": noise, "b": quantity}}
    assert Answers(designs=answers.designs, **both).constant == ["a"]
    with pytest.raises(ValueError, match="not one value for each design"):
        Answers(designs=designs[:-1].tolist(), quantities={"head": quantity})


def test_values_that_differ_by_rounding_have_no_rank() -> None:
    truth = np.arange(1.0, 6.0)
    constant = 0.2 * (1 + 1e-4 * truth)
    assert quantities._error_and_rank(constant, truth)[1] is None
    assert quantities._error_and_rank(truth**2, truth)[1] == pytest.approx(1)


def test_what_is_not_modelled_cannot_be_had_from_the_fields(ducts: Dataset) -> None:
    plane = steady(ducts, 1.0, ("velocity.x", "velocity.z"))
    found = measure_quantities(plane, ducts, ducts.cases("test"), Answers())
    assert list(found["quantities"]) == ["branch1_share"]
    assert found["not_predicted"] == {
        "pressure_loss": "needs kinematic_pressure.p",
        "peak_speed": "needs velocity.y",
    }


def test_a_rollout_goes_to_the_cases_end_and_one_that_diverges_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = Quantity(
        "speed", "m/s", "mean", lambda case: case.cells("velocity").mean(), ("velocity.x",)
    )
    drag = Quantity("drag", "1", "", None, not_from_fields="the cloud has no gradient at walls")
    monkeypatch.setattr(CylinderFlow, "quantities", (speed, drag))
    dataset = simgen.open_dataset(publish_waves(str(tmp_path / "waves")))
    experiment = tiny_experiment().derive(data={"step_s": 1.0})
    asked = []

    def roll_out(problem: Any, case: StoredCase, start: float, steps: int) -> np.ndarray:
        asked.append((start, steps))
        if case.id == dataset.cases()[-1]:
            raise NotFiniteError("the prediction is not finite")
        times = problem.times(start, steps)
        return np.stack([problem.solution(case, time) for time in times])

    ids = dataset.cases()
    found = measure_quantities(surrogate_of(dataset, experiment, roll_out), dataset, ids, Answers())
    score = found["quantities"]["speed"]
    assert asked == [(1.0, 29)] * len(ids), "cases end at 30 s"
    # The second half of the run counts.
    assert score.truth[ids[0]] == pytest.approx(dataset[ids[0]]["velocity"][14:].mean())
    assert score.predicted[ids[0]] == pytest.approx(score.truth[ids[0]])
    assert score.predicted[ids[-1]] is None and score.truth[ids[-1]] is not None
    # The others are told exactly, but an error of these alone would hide the one that failed.
    assert score.error is None and score.rank_correlation is None
    assert found["not_predicted"] == {"drag": "the cloud has no gradient at walls"}
