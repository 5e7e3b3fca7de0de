"""Both families of docs/families go to a report; one with a mistake fails at its first case."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import courant
import simgen
from courant.evaluation.record import read_evaluation
from courant.recipes.fitted import fitted_recipe
from courant.runs.directory import RunDirectory
from simgen import cases
from simgen.store.read import Dataset
from tests.end_to_end.conftest import ROOT, run
from tests.shown import python_of
from tests.simgen.heated_plate import COLD, HeatedPlate

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam, pytest.mark.nightly]
torch.set_num_threads(1)

EXAMPLES = ROOT / "tests/simgen"


@pytest.fixture(scope="module")
def registered(environment, tmp_path_factory) -> dict[str, str]:
    """The environment of commands that know both families, and one with a mistake."""
    folder = tmp_path_factory.mktemp("families")
    for name, page in (("lid_cavity", "a-new-family"), ("heated_plate", "a-transient-family")):
        (folder / f"{name}.py").write_text(broken := python_of(f"families/{page}.md"))
        shutil.copytree(EXAMPLES / name, folder / name)
    for before, after in (
        ('name = "heated-plate"', 'name = "broken-plate"'),
        ("class HeatedPlate", "class BrokenPlate"),
        ('size, length = point.settings["mesh_size"]', 'size, length = point.settings["mesh"]'),
    ):
        assert broken.count(before) == 1
        broken = broken.replace(before, after)
    (folder / "broken_plate.py").write_text(broken)
    modules = "lid_cavity,heated_plate,broken_plate"
    path = os.pathsep.join(filter(None, [str(folder), environment.get("PYTHONPATH")]))
    return {**environment, "PYTHONPATH": path, "COURANT_FAMILIES": modules}


def generated(environment: dict[str, str], folder: Path, *asked: str) -> Dataset:
    """The dataset of `courant generate`."""
    command = ("courant", "generate", *asked, "--store", str(folder / "store"))
    # Ray's workers look into the command's folder first: the repository lacks these families.
    done = run(environment, *command, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return simgen.open_dataset(folder / "store" / asked[0])


def trained(environment: dict[str, str], folder: Path, dataset: Dataset) -> tuple[str, str]:
    """The run of an experiment that is fitted to the data, and its report's page."""
    experiment = fitted_recipe(dataset).derive(
        model={"width": 24, "num_heads": 2, "num_anchors": 8, "num_levels": 1},
        training={"epochs": 2, "samples_per_epoch": 8, "warmup_steps": 0},
    )
    (folder / "mine.json").write_text(experiment.model_dump_json())
    job = ("run", "--dataset", dataset.url, "--experiment", str(folder / "mine.json"))
    done = run(environment, "courant", *job, "--out", str(folder / "out"), folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (name,) = RunDirectory(str(folder / "out/runs")).names()
    return str(folder / "out/runs" / name), (folder / "out/report/index.html").read_text()


def test_the_steady_family_of_the_docs_goes_from_generate_to_its_report(
    registered: dict[str, str], tmp_path: Path
) -> None:
    dataset = generated(registered, tmp_path, "lid-cavity", "--cases", "5")
    case = dataset[dataset.cases()[0]]
    velocity, lid = case["velocity"][:], case.parameters["lid_velocity"]
    assert velocity.shape == (case.num_points, 2)
    # Dragged along below the lid, and back above the floor: what goes one way comes back.
    top = case.points[:, 1] > 0.9 * case.points[:, 1].max()
    assert 0.1 * lid < velocity[top, 0].mean() < lid
    assert velocity[:, 0].min() < 0
    assert abs(np.average(velocity[:, 0], weights=case.volumes)) < 0.02 * lid
    assert np.array_equal(
        np.unique(case.boundary["velocity"][:, 0][case.boundary.patch == 0]), [np.float32(lid)]
    )
    url, page = trained(registered, tmp_path, dataset)
    evaluation = read_evaluation(RunDirectory(url), "test")
    assert evaluation is not None
    assert set(evaluation.references) >= {"nearest design", "training mean"}
    assert "lid velocity" in page and "kinematic pressure" in page


def test_the_transient_family_of_the_docs_goes_from_generate_to_its_report(
    registered: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = generated(registered, tmp_path, "heated-plate", "--preset", "quick", "--cases", "5")
    case = dataset[dataset.cases()[0]]
    np.testing.assert_allclose(case.time, 0.3 * np.arange(1, 21), rtol=1e-6)
    temperature, hottest = case["temperature"][:], case.parameters["heater_temperature"]
    assert COLD - 1e-3 <= temperature.min() < temperature.max() <= hottest
    warmth = np.average(temperature[..., 0], axis=1, weights=case.volumes)
    assert (np.diff(warmth) > 0).all(), "the plate gets warmer all the time"

    monkeypatch.setitem(cases.FAMILIES, "heated-plate", HeatedPlate())
    # For the process that meshes the design.
    monkeypatch.setenv("COURANT_FAMILIES", "tests.simgen.heated_plate")
    for name in dataset.cases():
        last = dataset[name]["temperature"][-1]
        # To the files' ten digits and the store's single precision.
        assert dataset.design.loc[name, "mean_temperature"] == pytest.approx(last.mean(), rel=1e-5)

    url, page = trained(registered, tmp_path, dataset)
    evaluation = read_evaluation(RunDirectory(url), "test")
    assert evaluation is not None and "persistence" in evaluation.references
    assert evaluation.step_s == pytest.approx(0.3) and evaluation.num_steps == 10
    # 300 K make any error small; over the variation of the field it is not.
    model = evaluation.overall["model"]
    assert model["rae"] > 5 * model.nmae
    assert evaluation.quantities["mean_temperature"].predicted
    text = re.sub(r"base64,[\w+/=]+", "", page)  # pictures hold every short word
    assert "temperature" in text
    assert [word for word in ("velocity", "m/s", "vortex", "shedding") if word in text] == []
    check_unseen(url, evaluation.step_s or 0.0)


def check_unseen(run_url: str, step_s: float) -> None:
    """A plate that nobody has solved: the solver starts it, the model goes on, and is verified."""
    surrogate = courant.load(run_url, device="cpu")
    assert surrogate.experiment.model.num_parameters == 2, "a rollout that knows its design"
    plate = {"heater_temperature": 350.0, "heater_length": 0.5}
    with pytest.warns(UserWarning, match="of the nearest solved case"):
        of = surrogate.predict_design(plate).bands.quantities["mean_temperature"]
    assert of.kind == "left out" and of.level == pytest.approx(of.num_cases / (of.num_cases + 1))
    found = surrogate.predict_design(plate, from_solver_s=1.5, steps=2, verify=True)
    np.testing.assert_allclose(found.times, [1.5 + step_s, 1.5 + 2 * step_s])
    assert found.solved is not None and found.solved.shape == found.values.shape
    solved = found.solved_quantities["mean_temperature"]
    assert COLD < found.solved[0].mean() < solved == pytest.approx(found.solved[-1].mean())


def test_a_family_with_a_mistake_says_so_at_its_first_case(
    registered: dict[str, str], tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    environment = {**registered, "COURANT_SCRATCH": str(scratch)}
    asked = ("courant", "generate", "broken-plate", "--cases", "16", "--store", str(tmp_path / "s"))
    done = run(environment, *asked, folder=tmp_path)
    assert done.returncode == 1
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    assert re.fullmatch(
        r"error: case [0-9a-f]{12}: KeyError: 'mesh', in write_case \(\S*/broken_plate\.py, line"
        r" \d+\); the program is at fault, not the case: --verbose shows the traceback",
        line,
    )
    assert "Traceback" not in done.stderr
    assert "run again" not in done.stderr
    # Those that were on their way when the first one had ended, and no further ones.
    assert 1 <= len(list(scratch.glob("[0-9a-f]*"))) < 16
