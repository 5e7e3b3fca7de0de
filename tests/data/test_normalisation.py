"""Normalisation: training statistics, one length scale, an exact way back, and fields scaled by
powers of design parameters: what is learned, predicted and compared.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import courant
import simgen
from bench.synthetic_cases import publish_cases
from courant.data.batch import BatchOrder
from courant.data.normalisation import Normaliser, select_channels
from courant.evaluation.record import TRAINING_MEAN
from courant.evaluation.references import references
from courant.experiment import Experiment
from courant.prediction.surrogate import Surrogate
from courant.problems import open_problem
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.train import fit
from simgen.case import CaseResult
from simgen.design_space import DesignPoint
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.world import SCHEMA, SPACE, duct, tiny_steady

SCALED_BY = {"velocity": {"speed": 1.0}, "kinematic_pressure": {"speed": 2.0}}


@pytest.fixture(scope="module")
def ducts(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Ducts of one shape on one mesh, which differ in nothing but speed."""
    cases: list[Any] = []
    for parameters in SPACE.sample(16, "sobol", 2):
        parameters |= {"half_width": 0.75, "bend": 0.5, "swirl": 0.5, "roughness": 0.5}
        point = DesignPoint("branched-pipe", 1, parameters, {"mesh_size": 0.1})
        cases.append((CaseResult(point, "accepted"), duct(70, parameters, seed=5)))
    url = str(tmp_path_factory.mktemp("store") / "branched-pipe")
    return simgen.open_dataset(publish_cases(url, SCHEMA, cases))


def scaled(scaled_by: Mapping[str, Mapping[str, float]] = SCALED_BY, **training: Any) -> Experiment:
    return tiny_steady(**training).derive(
        model={"num_outputs": 4, "num_features": 4},
        data={"fields": ("velocity", "kinematic_pressure"), "scaled_by": scaled_by},
    )


def test_what_scales_exactly_is_one_field_to_learn(ducts: Dataset) -> None:
    targets = []
    for scaled_by in (SCALED_BY, {}):
        experiment = scaled(scaled_by).derive(data={"queries_per_sample": None})
        problem = open_problem(experiment, ducts)
        batches = problem.training(ducts, BatchOrder(4, None, seed=1), torch.device("cpu"))
        targets.append(next(batches.epoch(0))[1].targets)
    apart = [float((each - each[:1]).abs().max()) for each in targets]
    assert apart[0] < 1e-5 < 0.5 < apart[1]


@pytest.fixture(scope="module")
def surrogate(ducts: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Surrogate:
    torch.set_num_threads(1)
    run = RunDirectory(tmp_path_factory.mktemp("runs")) / "scaled"
    fit(scaled(epochs=12), ducts, run)
    return courant.load(run.url, device="cpu")


def test_a_prediction_has_the_units_of_its_design(surrogate: Surrogate, ducts: Dataset) -> None:
    case = ducts[ducts.cases("test")[0]]
    inputs, queries = surrogate.model_inputs(case)
    with torch.no_grad():
        learned = surrogate.model.predict(inputs, queries, 1)[0, 0].numpy()
    normaliser, ratio = surrogate.normaliser, case.parameters["speed"] / 6.5
    units = np.array([ratio, ratio, ratio, ratio**2])
    expected = (learned * np.array(normaliser.std) + np.array(normaliser.mean)) * units
    predicted = surrogate.predict_case(case)
    np.testing.assert_allclose(predicted, expected, rtol=1e-4, atol=1e-5)
    parts = surrogate.decompose_case(case)
    total = parts.offset + parts.contributions.sum(axis=0)
    np.testing.assert_allclose(total, predicted, rtol=1e-4, atol=1e-4)


def test_validation_measures_in_physical_units_as_the_evaluation_does(
    surrogate: Surrogate, ducts: Dataset
) -> None:
    cases = [ducts[case] for case in ducts.cases("validation")]
    names = ("velocity", "kinematic_pressure")
    truth = np.concatenate([np.hstack([case[name][:] for name in names]) for case in cases])
    predicted = np.concatenate([surrogate.predict_case(case) for case in cases])
    wrong, size = np.abs(predicted - truth), np.abs(truth)
    fields = [wrong[:, part].sum() / size[:, part].sum() for part in (slice(3), slice(3, 4))]
    last = read_records(RunDirectory(surrogate.url))[-1]
    assert last.validation_nmae == pytest.approx(np.mean(fields), rel=1e-3)


def test_references_know_the_scale_too(ducts: Dataset) -> None:
    problem = open_problem(scaled(), ducts)
    case = ducts[ducts.cases("test")[0]]
    window = next(problem.windows(case))
    for name, reference in references(problem, ducts).items():
        expected, ratio = window.truth, case.parameters["speed"] / 6.5
        if name == TRAINING_MEAN:
            units = np.array([ratio, ratio, ratio, ratio**2])
            expected = np.broadcast_to(units * problem.normaliser.mean, window.truth.shape)
        np.testing.assert_allclose(reference(case, window), expected, atol=2e-3)


def test_a_run_whose_numbers_are_of_another_scale_is_damaged(
    surrogate: Surrogate, ducts: Dataset, tmp_path: Path
) -> None:
    run = RunDirectory(shutil.copytree(surrogate.url, tmp_path / "run"))
    run.write_json("normaliser.json", {**run.read_object("normaliser.json"), "powers": []})
    with pytest.raises(InputError, match=r"data\.scaled_by does not fit powers"):
        courant.load(run.url)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"fields": ("speed",)}, r"field speed is unknown; choose of velocity, .*velocity\.x"),
        ({"prescribed": {"heat": ("wall",)}}, "field heat is unknown; choose of velocity, kin"),
        ({"prescribed": {"velocity": ("blade",)}}, "patch kind blade is unknown; choose of inlet"),
        ({"distance_kinds": ("wall+blade",)}, "patch kind blade is unknown; choose of inlet"),
        ({"scaled_by": {"heat": {"speed": 1.0}}}, "field heat is unknown; choose of velocity"),
        ({"scaled_by": {"velocity": {"height": 1.0}}}, "height is unknown; choose of speed, half"),
        ({"scaled_by": {"velocity": {"bend": 1.0}}}, "bend to the power of 1; it has to be posit"),
        ({"scaled_by": {"velocity": {"speed": -2e3}}}, r"speed to the power of -2000; .* 10 at"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_known_ones(
    ducts: Dataset, data: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        open_problem(scaled().derive(data=data), ducts)


@pytest.mark.parametrize("powers", [[1.0], [float("nan")] * 5, [0.0, 0.0, 1.0, 0.0, 0.0]])
def test_a_normaliser_keeps_its_powers_and_checks_them(ducts: Dataset, powers: Any) -> None:
    normaliser = open_problem(scaled(), ducts).normaliser
    assert Normaliser.from_json(normaliser.to_json()) == normaliser
    with pytest.raises(InputError, match="power"):
        Normaliser.from_json({**normaliser.to_json(), "powers": [powers] * 4})
    with pytest.raises(InputError, match="speed = -2: the fields scale with it"):
        normaliser.at({**dict.fromkeys(SPACE.names, 1.0), "speed": -2.0})


@pytest.fixture
def normaliser(dataset: Dataset) -> Normaliser:
    return Normaliser.of(dataset, ("velocity",))


def test_training_fields_have_mean_zero_and_unit_variance_in_each_component(
    dataset: Dataset, normaliser: Normaliser
) -> None:
    cases = [dataset[each] for each in dataset.cases("train")]
    settled = [case["velocity"][:][case.time > dataset.schema.startup_s] for case in cases]
    values = np.concatenate([each.reshape(-1, 2) for each in settled])
    standardised = normaliser.standardise(values)
    np.testing.assert_allclose(standardised.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(standardised.std(0), 1, atol=1e-4)


def test_fields_and_points_come_back(dataset: Dataset, normaliser: Normaliser) -> None:
    case = dataset[dataset.cases("test")[0]]
    velocity, points = np.asarray(case["velocity"][:]), np.asarray(case.points)
    again = normaliser.restore(normaliser.standardise(velocity))
    np.testing.assert_allclose(again, velocity, atol=1e-6)
    again = normaliser.restore_points(normaliser.points(points))
    np.testing.assert_allclose(again, points, atol=1e-5)
    # A learned anchor of a 2D family lies in its plane.
    restored = normaliser.restore_points(np.array([[0.2, 0.1, 0.9], [0.2, 0.1, -0.4]]))
    assert (restored[:, 2] == normaliser.centre[2]).all()


def test_lengths_share_one_scale_and_a_2d_case_lies_at_zero(
    dataset: Dataset, normaliser: Normaliser
) -> None:
    points = np.concatenate([np.asarray(dataset[i].points) for i in dataset.cases("train")])
    scaled = normaliser.points(points)
    assert np.abs(scaled).max() == pytest.approx(1.0)
    assert (scaled[:, 2] == 0).all()
    ratio = np.ptp(scaled[:, :2], axis=0) / np.ptp(points[:, :2], axis=0)
    assert ratio[0] == pytest.approx(ratio[1], rel=1e-4)


def test_the_distance_field_has_distance_and_direction_of_each_kind_in_turn(
    normaliser: Normaliser,
) -> None:
    distance = np.array([[1.0, 2.0, 3.0, 4.0]])
    direction = np.arange(12.0).reshape(1, 4, 3)
    channels = normaliser.distance_channels((distance, direction), 1)
    assert channels.shape == (1, 16)
    assert normaliser.distance_channels(None, 5).shape == (5, 0)
    np.testing.assert_allclose(channels[0, ::4] * normaliser.length_scale, [1, 2, 3, 4], rtol=1e-6)
    np.testing.assert_array_equal(channels[0, 5:8], [3, 4, 5])


def test_single_components_can_be_modelled_unless_they_never_change(dataset: Dataset) -> None:
    channels = select_channels(dataset.schema, ("kinematic_pressure", "velocity.y"))
    named = [(channel.name, channel.column) for channel in channels]
    assert named == [("kinematic_pressure.p", 0), ("velocity.y", 1)]
    with pytest.raises(InputError, match=r"kinematic_pressure\.p is constant over the training"):
        Normaliser.of(dataset, ("kinematic_pressure",))
