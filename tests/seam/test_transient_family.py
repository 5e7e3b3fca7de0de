"""docs/families/a-transient-family.md: the family there goes from its solver to a report, with a
scalar, patches of its own kinds, a mesh from blockMesh and times of its own.
"""

import re
from pathlib import Path

import meshio
import numpy as np
import pytest
import torch

import courant
import simgen
from courant.evaluation.evaluate import evaluate
from courant.recipes.fitted import fitted_recipe
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from courant.training.loop import fit
from flows.cli.predicting.design import predict_to_files
from simgen import cases
from simgen.case import SolvedCase
from simgen.errors import InputError
from simgen.publish.card import write_card
from simgen.solving.convert import convert
from simgen.solving.solve_case import solve_case
from simgen.store.access.reader import Dataset
from simgen.store.access.writer import DatasetWriter
from simgen.store.format.layout import Schema
from tests.simgen.heated_plate import COLD, HeatedPlate

ROOT = Path(__file__).parents[2]
FAMILY = HeatedPlate()
torch.set_num_threads(1)


def test_the_page_shows_the_code_that_is_tested() -> None:
    page = (ROOT / "docs/families/a-transient-family.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert (ROOT / "tests/simgen/heated_plate.py").read_text().endswith(code)


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setitem(cases.FAMILIES, FAMILY.name, FAMILY)
    writer = DatasetWriter.open(str(tmp_path / "store/heated-plate"), Schema.of(FAMILY))
    for parameters in FAMILY.design_space.sample(5, "sobol", 42):
        point = FAMILY.point(parameters, FAMILY.settings("quick"))
        result = solve_case(point, tmp_path / "scratch")
        assert result.status == "accepted", result.reason
        fork = writer.fork()
        fork.write(result, convert(SolvedCase(point, tmp_path / "scratch" / point.id)))
        writer.commit([fork])
    writer.publish("five plates")
    return simgen.open_dataset(str(tmp_path / "store/heated-plate"))


def check_unseen(run: str, step_s: float, folder: Path) -> None:
    """A plate that nobody has solved: the solver starts it, the model goes on, and is verified."""
    surrogate = courant.load(run, device="cpu")
    plate = {"heater_temperature": 350.0, "heater_length": 0.5}
    with pytest.raises(InputError, match="--from-solver"):
        surrogate.predict_design(plate)
    alone = surrogate.predict_design(plate, from_solver_s=1.5, steps=2)
    np.testing.assert_allclose(alone.times, [1.5 + step_s, 1.5 + 2 * step_s])
    assert alone.solved is None and alone.seconds.solving > 0
    assert alone.quantities["mean_temperature"] == pytest.approx(alone.values[-1].mean())

    found = surrogate.predict_design(plate, from_solver_s=1.5, steps=2, verify=True)
    np.testing.assert_allclose(found.values, alone.values, rtol=1e-4)
    assert found.solved is not None and found.solved.shape == found.values.shape
    solved = found.solved_quantities["mean_temperature"]
    assert COLD < found.solved[0].mean() < solved == pytest.approx(found.solved[-1].mean())

    predict_to_files(run, plate, folder / "plate.pvd", steps=2, from_solver_s=1.5, verify=True)
    states = sorted((folder / "plate").glob("*.vtu"))
    assert len(states) == 2 and (folder / "plate.png").exists()
    written = np.concatenate(meshio.read(states[-1]).cell_data["temperature_solver"])
    np.testing.assert_allclose(np.sort(written), np.sort(found.solved[-1, :, 0]), rtol=1e-5)


@pytest.mark.openfoam
def test_a_scalar_goes_from_the_solver_to_the_report(dataset: Dataset, tmp_path: Path) -> None:
    case = dataset[dataset.cases()[0]]
    np.testing.assert_allclose(case.time, 0.3 * np.arange(1, 21), rtol=1e-6)
    temperature, hottest = case["temperature"][:], case.parameters["heater_temperature"]
    assert COLD - 1e-3 <= temperature.min() < temperature.max() <= hottest
    warmth = np.average(temperature[..., 0], axis=1, weights=case.volumes)
    assert (np.diff(warmth) > 0).all(), "the plate gets warmer all the time"

    card = write_card(dataset, tmp_path / "card").read_text()
    assert "temperature" in card and "## Quantities of interest" in card
    for name in dataset.cases():
        last = dataset[name]["temperature"][-1]
        # To the files' ten digits and the store's single precision.
        assert dataset.design.loc[name, "mean_temperature"] == pytest.approx(last.mean(), rel=1e-5)
    experiment = fitted_recipe(dataset).derive(
        model={"width": 24, "num_heads": 2, "num_anchors": 8, "num_levels": 1},
        training={"epochs": 2, "samples_per_epoch": 8, "warmup_steps": 0},
    )
    run = RunDirectory(tmp_path / "run")
    fit(experiment, dataset, run)
    evaluation = evaluate(run.url)
    assert "persistence" in evaluation.references
    check_unseen(run.url, experiment.data.step_s, tmp_path)
    assert evaluation.quantities["mean_temperature"].predicted
    page = Path(write_report(run.url, str(tmp_path / "report"))).read_text()
    assert "temperature" in page
    for word in ("velocity", "m/s", "vortex", "vortices", "shedding"):
        assert word not in page, word
