"""A kind of data that the project did not know enters by one importer, and goes everywhere that
its own families go.
"""

from pathlib import Path

import meshio
import numpy as np
import pytest

import courant
import simgen
from courant.evaluation.evaluate import evaluate
from courant.problems import open_problem
from courant.recipes.fitted import fitted_recipe
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from flows.cli.prediction_files import predict_file
from flows.stages import MainJob, Training, open_training
from simgen.errors import InputError
from simgen.publish.card import write_card
from simgen.store.read import Dataset
from tests.imports import darcy, heat

SMALL = {"width": 24, "num_heads": 2, "num_anchors": 8, "num_levels": 1}
SHORT = {"epochs": 10, "samples_per_epoch": 48, "warmup_steps": 0, "learning_rate": 5e-3}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    url = str(tmp_path_factory.mktemp("store") / "darcy-flow")
    darcy.import_darcy(url)
    return simgen.open_dataset(url)


@pytest.fixture(scope="module")
def rod(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    url = str(tmp_path_factory.mktemp("store") / "heat-rod")
    heat.import_heat(url)
    return simgen.open_dataset(url)


def trained(dataset: Dataset, folder: Path) -> RunDirectory:
    run = RunDirectory(folder)
    fit(fitted_recipe(dataset).derive(model=SMALL, training=SHORT), dataset, run)
    return run


@pytest.fixture(scope="module")
def plane_run(plane: Dataset, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return trained(plane, tmp_path_factory.mktemp("runs") / "darcy")


@pytest.fixture(scope="module")
def rod_run(rod: Dataset, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return trained(rod, tmp_path_factory.mktemp("runs") / "heat")


def test_the_main_job_fits_a_recipe_to_imported_data(rod: Dataset) -> None:
    job = MainJob(dataset=rod.url).resolved
    assert job.dataset and job.version
    experiment, _ = open_training(Training(job.dataset, job.version, job.recipe))
    assert experiment == fitted_recipe(rod)


def test_the_model_learns_from_the_given_field(plane: Dataset, plane_run: RunDirectory) -> None:
    """It beats the mean, and another permeability gives another pressure."""
    evaluation = evaluate(plane_run.url)
    assert list(evaluation.cases) == plane.cases("test")
    assert evaluation.references == ("nearest design", "training mean")
    ours, mean = (evaluation.overall[name].nmae for name in ("model", "training mean"))
    assert ours < 0.7 * mean
    surrogate, case = courant.load(plane_run.url), plane[plane.cases("test")[0]]
    given = {"permeability": case["permeability"][:]}
    np.testing.assert_allclose(
        surrogate.predict(case.points[:, :2], given=given), surrogate.predict_case(case), atol=1e-6
    )
    other = surrogate.predict(case.points, given={"permeability": 15 - given["permeability"][:, 0]})
    assert np.abs(other - surrogate.predict_case(case)).max() > 1e-4


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"encoder": "boundary"}, 'set it to "mesh"'),
        ({"prescribed": {"pressure": ["wall"]}}, "leave it out"),
        ({"fields": ["permeability"]}, "solved field permeability is unknown"),
        ({"given": ["pressure"]}, "given field pressure is unknown"),
    ],
)
def test_an_experiment_that_asks_for_what_is_not_there_is_one_line(
    plane: Dataset, data, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        open_problem(fitted_recipe(plane).derive(data=data), plane)


def test_a_prediction_on_somebody_elses_mesh_reads_the_given_field_there(
    plane: Dataset, plane_run: RunDirectory, tmp_path: Path
) -> None:
    case = plane[0]
    vertices = [("vertex", np.arange(case.num_points)[:, None])]
    data = {"permeability": case["permeability"][:, 0]}
    meshio.Mesh(case.points, vertices, point_data=data).write(tmp_path / "mine.vtu")
    out = tmp_path / "out.vtu"
    predict_file(plane_run.url, tmp_path / "mine.vtu", None, None, None, out)
    expected = courant.load(plane_run.url).predict_case(case)[:, 0]
    np.testing.assert_allclose(meshio.read(out).point_data["pressure"], expected, atol=1e-6)
    with pytest.raises(InputError, match="leave out --boundary"):
        predict_file(plane_run.url, tmp_path / "mine.vtu", out, None, None, tmp_path / "second.vtu")


def test_a_rollout_of_short_times_is_stepped_by_its_snapshots(
    rod: Dataset, rod_run: RunDirectory, tmp_path: Path
) -> None:
    surrogate = courant.load(rod_run.url)
    assert surrogate.experiment.model.num_parameters == 1
    assert surrogate.step_s == pytest.approx(heat.INTERVAL_S)
    evaluation = evaluate(rod_run.url)
    assert evaluation.num_windows == len(rod.cases("test"))
    assert 0 < evaluation.overall["model"].nmae < 1
    page = Path(write_report(rod_run.url, str(tmp_path / "report"))).read_text()
    assert "one beginning every 0.025 s" in page
    assert "temperature" in page
    # Pictures of designs in one parameter.
    assert (tmp_path / "report/designs.png").exists()
    assert "from the smallest diffusivity" in write_card(rod, tmp_path / "card").read_text()
    assert not [word for word in ("velocity", "vort", "pressure", "boundary") if word in page]


def test_a_transient_model_reads_its_design_parameter(rod: Dataset, rod_run: RunDirectory) -> None:
    surrogate, case = courant.load(rod_run.url), rod[0]
    initial = case["temperature"][0]
    slow, fast = (
        surrogate.predict(case.points[:, :1], initial=initial, parameters={"diffusivity": value})
        for value in (0.1, 1.0)
    )
    assert slow.shape == (heat.SNAPSHOTS - 1, heat.SIZE, 1)
    assert np.abs(slow - fast).max() > 0.1
    with pytest.raises(InputError, match="design parameters diffusivity"):
        surrogate.predict(case.points, initial=initial)
