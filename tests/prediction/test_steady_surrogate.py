"""A trained steady run as an engineer uses it, from the prediction to the report."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import courant
from courant.evaluation.evaluate import evaluate
from courant.prediction.surrogate import Surrogate
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase
from tests.world import tiny_steady


@pytest.fixture(scope="module", params=["boundary", "mesh"])
def surrogate(ducts: Dataset, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Any:
    torch.set_num_threads(1)
    run = RunDirectory(tmp_path_factory.mktemp("runs")) / "tiny-steady"
    experiment = tiny_steady(epochs=10)
    if request.param == "mesh":
        experiment = experiment.derive(model={"num_features": 14}, data={"encoder": "mesh"})
    fit(experiment, ducts, run)
    return courant.load(run.url, device="cpu")


@pytest.fixture
def case(ducts: Dataset) -> StoredCase:
    return ducts[ducts.cases("train")[1]]


def inputs(case: StoredCase) -> dict[str, Any]:
    return {
        "points": case.points,
        "parameters": case.parameters,
        "boundary": case.boundary,
        "distance": (case.distance, case.direction),
    }


def test_predict_on_a_stored_cloud_is_predict_case(surrogate: Surrogate, case: StoredCase) -> None:
    predicted = surrogate.predict_case(case)
    assert predicted.shape == (case.num_points, 2)
    np.testing.assert_allclose(surrogate.predict(**inputs(case)), predicted, atol=1e-5)
    # A boundary of one's own needs values where they are prescribed alone.
    patch, velocity = case.boundary.patch, np.asarray(case.boundary["velocity"][:])
    velocity[patch != 0] = np.nan
    names = np.array(case.patch_kinds)[patch]
    boundary = {"points": case.boundary.points, "patch": names, "velocity": velocity}
    given = {**inputs(case), "boundary": boundary}
    np.testing.assert_allclose(surrogate.predict(**given), predicted, atol=1e-5)


FACES = {"points": np.ones((1, 3)), "patch": [0], "velocity": np.ones((1, 3))}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": None}, "design parameters speed, half_width, bend"),
        ({"parameters": {"speed": 4.0}}, "missing half_width, bend, swirl, roughness"),
        ({"distance": None}, "to inlet, outlet, wall"),
        ({"boundary": None}, "a mapping with points, patch, velocity"),
        ({"boundary": {**FACES, "patch": [7]}}, "its number from 0 to 2"),
        ({"boundary": {**FACES, "patch": [2]}}, "no face of kind inlet"),
        ({"boundary": {**FACES, "velocity": np.full((1, 3), np.nan)}}, "not finite on faces"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_what_is_missing_or_wrong_is_said_in_one_line(
    surrogate: Surrogate, case: StoredCase, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        surrogate.predict(**{**inputs(case), **change})
    assert "\n" not in str(caught.value)


def test_extrapolation_is_warned_of_and_nothing_else(
    surrogate: Surrogate, case: StoredCase
) -> None:
    given = inputs(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        surrogate.predict(**given)
    with pytest.warns(UserWarning, match="speed = 20 m/s is outside the design space"):
        surrogate.predict(**{**given, "parameters": {**case.parameters, "speed": 20.0}})
    patch, velocity = case.boundary.patch, case.boundary["velocity"]
    faces = {"points": case.boundary.points + 100, "patch": patch, "velocity": velocity}
    with pytest.warns(UserWarning, match="80 of 80 boundary points lie outside"):
        surrogate.predict(**{**given, "boundary": faces})
    with pytest.warns() as issued:
        surrogate.predict(**{**given, "points": case.points + 100})
    assert {each.filename for each in issued} == {__file__}, "each points at the line that asked"


def test_evaluation_of_a_steady_run(ducts: Dataset, surrogate: Surrogate) -> None:
    record = evaluate(surrogate.url)
    assert record.task == "steady"
    references = {"nearest design", "training mean", "POD + GP", "POD + RBF"}
    assert set(record.overall) == {"model", *references}
    cases = ducts.cases("test")
    assert list(record.cases) == cases
    errors, sizes = [], []
    for name in cases:
        truth = np.asarray(ducts[name]["velocity"][:])[:, [0, 2]].astype(float)
        errors.append(np.abs(surrogate.predict_case(ducts[name]) - truth).sum())
        sizes.append(np.abs(truth).sum())
    assert record.overall["model"].nmae == pytest.approx(sum(errors) / sum(sizes), rel=1e-4)
