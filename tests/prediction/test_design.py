"""A steady model as an engineer uses it, and a design that nobody has solved: meshed for real,
predicted by a model of synthetic ducts."""

import warnings
from pathlib import Path
from typing import Any

import meshio
import numpy as np
import pytest
import torch

import courant
from courant.prediction.surrogate import Surrogate, counted_from_s
from courant.runs.directory import RunDirectory
from courant.serving.explorer import DesignRequest, Explored
from courant.serving.predictions import Limits, RequestError
from courant.training.train import fit
from flows.cli.prediction_files import predict_to_files
from simgen.cases import get_family
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase
from tests.world import DESIGN, SETTINGS, tiny_steady


@pytest.fixture(scope="module", params=["boundary", "mesh"])
def surrogate(ducts: Dataset, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Any:
    torch.set_num_threads(1)
    run = RunDirectory(tmp_path_factory.mktemp("runs")) / "tiny-steady"
    experiment = tiny_steady(epochs=1)
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
    again = surrogate.predict(**{**inputs(case), "boundary": boundary})
    np.testing.assert_allclose(again, predicted, atol=1e-5)


FACES = {"points": np.ones((1, 3)), "patch": [0], "velocity": np.ones((1, 3))}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": None}, "design parameters speed, half_width, bend"),
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
    with pytest.warns() as issued:
        surrogate.predict(**{**given, "points": case.points + 100})
    assert {each.filename for each in issued} == {__file__}, "each points at the line that asked"


@pytest.fixture
def of_pipes(pipes_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surrogate:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return courant.load(pipes_run, device="cpu")


@pytest.mark.openfoam
@pytest.mark.filterwarnings("ignore:.*outside the training domain")
def test_an_unseen_design_is_meshed_once_and_predicted_with_its_quantities(
    of_pipes: Surrogate, pipes_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = of_pipes.predict_design(DESIGN)
    assert of_pipes.dataset["settings"] == found.point.settings == SETTINGS
    assert found.values.shape == (found.cloud.num_points, 2) and np.isfinite(found.values).all()
    assert not found.known_geometry and found.seconds.meshing > found.seconds.solving == 0
    assert list(found.quantities) == ["branch1_share"]
    missing = {"pressure_loss": "kinematic_pressure.p", "peak_speed": "velocity.y"}
    assert found.not_predicted == {name: f"needs {lacks}" for name, lacks in missing.items()}
    # The inlet's condition is that of the design: twice the velocity is another prediction.
    faster = of_pipes.predict_design({**DESIGN, "inlet_velocity": 9.0})
    assert not np.allclose(faster.values, found.values)
    assert faster.known_geometry, "and has the same mesh"

    predict_to_files(pipes_run, DESIGN, tmp_path / "pipe.vtu")
    written = meshio.read(tmp_path / "pipe.vtu")
    assert {block.type for block in written.cells} != {"vertex"}
    shown = np.concatenate(written.cell_data["velocity.x"])
    np.testing.assert_allclose(np.sort(shown), np.sort(found.values[:, 0]), rtol=1e-4, atol=1e-5)
    assert (tmp_path / "pipe.png").read_bytes()[:4] == b"\x89PNG"
    assert f"{found.quantities['branch1_share']:.4g}" in capsys.readouterr().out

    revision = of_pipes.dataset["family_revision"]
    of_pipes.dataset["family_revision"] = revision - 1
    answer = Explored(of_pipes, Limits()).design(DesignRequest(parameters=DESIGN))
    assert any(f"revision {revision - 1} of branched-pipe" in each for each in answer.warnings)
    assert answer.known_geometry
    np.testing.assert_allclose(answer.values, found.values, rtol=1e-4, atol=1e-5)
    assert answer.quantities["branch1_share"] == pytest.approx(found.quantities["branch1_share"])
    with pytest.raises(RequestError, match="cells, 100 are allowed"):
        Explored(of_pipes, Limits(max_points=100)).design(DesignRequest(parameters=DESIGN))


@pytest.mark.parametrize(
    ("design", "options", "message"),
    [({"aperture": 50.0}, {}, "aperture = 50"), ({}, {"from_solver_s": 10.0}, "steady")],
)
def test_what_cannot_be_predicted_is_refused_before_anything_is_meshed(
    of_pipes: Surrogate, design: dict[str, float], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        of_pipes.predict_design({**DESIGN, **design}, **options)


@pytest.mark.parametrize(
    ("start", "steps", "since"),
    [(100.0, 40, 250.0), (300.0, 20, 250.0), (100.0, 10, 0.0), (100.0, 39, 0.0)],
)
def test_a_rollout_to_the_end_is_measured_like_the_datasets_cases(
    start: float, steps: int, since: float
) -> None:
    """Bands of quantities are of such rollouts: of the settled half of a run of 500 s."""
    cylinder = get_family("cylinder-flow")
    settings, times = cylinder.settings("trial"), start + 10.0 * np.arange(1, steps + 1)
    assert counted_from_s(cylinder, settings, 10.0, times) == since
