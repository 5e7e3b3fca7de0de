"""Designs of cases that were solved elsewhere: predicted on the mesh that all of them have."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import courant
import simgen
from courant.evaluation import record
from courant.evaluation.calibrate import calibrate
from courant.evaluation.quantities import ensure_answers
from courant.prediction.answers import REGRESSION
from courant.prediction.shared_mesh import SharedMesh
from courant.problems import open_problem
from courant.problems.problem import collected_warnings
from courant.recipes.fitted import fitted_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import ANSWERS, describe_run, predict_command
from courant.serving.explorer import Explored, SectionRequest
from courant.serving.predictions import Limits
from courant.training.train import fit
from flows.cli.prediction_files import predict_to_files, write_prediction
from simgen.cases.template import Varied
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.commands import called
from tests.imports.foam_cases import box, write_case

SPEED = "speed (m/s)=0/U:boundaryField/inlet/value[0]"


def imported(folder: Path, kind: str, *words: str) -> Dataset:
    place = ("--fields", "U", "--store", str(folder / "store"), kind)
    called("dataset", "import", "openfoam", folder / "tunnel", *place, *words)
    return simgen.open_dataset(folder / "store/tunnel")


def trained(dataset: Dataset, folder: Path) -> courant.Surrogate:
    sizes = {"width": 16, "num_heads": 2, "num_anchors": 4, "num_levels": 1}
    steps = {"training.epochs": 1, "training.samples_per_epoch": 8}
    run = RunDirectory(folder / "run")
    fit(fitted_recipe(dataset).derive(model=sizes).with_values(steps), dataset, run)
    return courant.load(run.url)


@pytest.mark.parametrize("kind", ["--steady", "--transient"])
def test_a_design_is_predicted_and_explored_on_the_mesh_of_all_cases(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 7):
        write_case(tmp_path / f"tunnel/run{number}", speed=number)
    dataset = imported(tmp_path, kind, "--parameter", SPEED)
    surrogate, case = trained(dataset, tmp_path), dataset["run3"]
    with collected_warnings() as warned:
        at_case = surrogate.predict_design({"speed": 3.0})
        between = surrogate.predict_design({"speed": 3.2})
    # Without an evaluation its quantities are those of the predicted fields.
    names = ["max_speed"]
    assert (
        [*between.quantities] == [each["name"] for each in surrogate.dataset["quantities"]] == names
    )
    if kind == "--steady":
        other = surrogate.predict_design(
            {"speed": 3.2},
            fields_by=lambda points, design, _: 0 * points[None, :, :2] + 2 * design["speed"],
        )
        assert other.quantities["max_speed"] == pytest.approx(6.4 * 2**0.5)
        assert (
            other.bands.no_field == "bands are of the network's fields alone"
            and not other.bands.quantities
        )
    speeds = np.linalg.norm(between.values, axis=-1)
    assert between.quantities["max_speed"] == pytest.approx(speeds.max())
    np.testing.assert_array_equal(between.cloud.points, case.points)
    # A stored design has the prediction of its case, another design one of its own.
    np.testing.assert_allclose(at_case.values, surrogate.predict_case(case), atol=1e-5)
    assert between.values.shape == at_case.values.shape
    assert np.abs(between.values - at_case.values).max() > 1e-4
    assert ("from another design's state" in between.bands.no_field) is (kind == "--transient")
    assert at_case.bands.no_field.startswith("the run is not calibrated")
    starts = [line for line in warned if "nearest solved case, run3" in line]
    assert len(starts) == (2 if kind == "--transient" else 0)
    shown = Explored(surrogate, Limits(), dataset.url).section(
        SectionRequest(parameters={"speed": 3.2})
    )
    assert shown.num_cells == len(case.points)
    wrong = ({"sped": 3.0}, "did you mean speed"), ({"speed": 3.0, "angle": 1.0}, "unknown angle")
    for asked, answer in (*wrong, ({"speed": 7.0}, "speed = 7 .* its range .1, 6.*a wider range")):
        with pytest.raises(InputError, match=answer):
            surrogate.predict_design(asked)
    # A case that joined since is predicted by its id too.
    write_case(tmp_path / "tunnel/run7", speed=5.5)
    imported(tmp_path, kind, "--parameter", SPEED)
    write_prediction(surrogate.url, "run7", None, None, tmp_path / "run7.npz", None)
    with pytest.raises(
        InputError, match=r"solved elsewhere.*generate tunnel-designs --template CASE --vary"
    ):
        surrogate.predict_design({"speed": 3.0}, verify=True)
    with pytest.raises(InputError, match=r"need 9, .* narrow: import more solved cases"):
        calibrate(surrogate.url)
    evaluation = SimpleNamespace(better_fields="POD + GP")
    monkeypatch.setattr(record, "read_evaluation", lambda *_: evaluation)
    explored = Explored(surrogate, Limits(), dataset.url)
    known = dataset.design.set_index("speed")["max_speed"]
    for window in (None, (1.0, 2.0, 1.0, 1.5)):
        cut = SectionRequest(parameters={"speed": 3.2}, beside="network", window=window)
        found = explored.section(cut)
        assert found.fields_by == "POD + GP" and found.other is not None
        assert np.shape(found.other) == np.shape(found.values) and found.other != found.values
        fastest = np.linalg.norm(found.values, axis=0).max()
        assert window or fastest == pytest.approx(np.interp(3.2, known.index, known), rel=0.1)
    for asked, better in ((None, True), ("none", False)):
        out = tmp_path / "design.vtu"
        predict_to_files(surrogate.url, {"speed": 3.2}, out, reference=asked)
        printed = capsys.readouterr().out
        assert ("fields of POD + GP, not of the" in printed) is better
        assert ("greatest over 0.5 to 1 s" in printed) is (kind == "--transient")
    assert not RunDirectory(surrogate.url).exists(ANSWERS), "they are fitted by an evaluation alone"
    # Six cases have no calibration: the band is that of the regression on the other five.
    ensure_answers(surrogate, dataset)
    with collected_warnings() as near:
        answered = surrogate.predict_design({"speed": 3.2})
    monkeypatch.setattr("courant.prediction.bands.is_remote", lambda *_: True)
    with collected_warnings() as far:
        surrogate.predict_design({"speed": 3.2})
    assert [each in near for each in far if "may be too narrow" in each] == [False]
    assert answered.quantities["max_speed"] == pytest.approx(
        np.interp(3.2, known.index, known), rel=0.1
    )
    band = answered.bands.quantities["max_speed"]
    assert (answered.sources["max_speed"], band.num_cases) == (REGRESSION, 5)
    assert 0 < band.half_width < 0.5 * answered.quantities["max_speed"]


def test_cases_on_several_meshes_have_no_mesh_for_a_design(tmp_path: Path) -> None:
    mesh = box()
    wider = replace(mesh, points=mesh.points * (1, 1.1, 1))
    for n in range(1, 5):
        write_case(tmp_path / f"tunnel/run{n}", speed=n, mesh=wider if n == 4 else mesh)
    dataset = imported(tmp_path, "--steady", "--parameter", SPEED)
    with pytest.raises(InputError, match=r"several meshes.*run4 differ.*MESH\.vtu") as raised:
        SharedMesh.of(dataset)
    (speed,) = dataset.schema.parameters
    _, _, vary = str(raised.value).partition("--vary ")
    assert Varied.parse(vary.strip("'")).place == speed.description == SPEED.partition("=")[2]
    run = RunDirectory(tmp_path / "run")
    recipe = fitted_recipe(dataset)
    describe_run(run, recipe, dataset, open_problem(recipe, dataset).normaliser)
    assert predict_command(run, "a", dataset).endswith("--design speed=2.5 --out a.vtu")
    write_case(tmp_path / "tunnel/run5", speed=1.5, mesh=box(merged=True))
    dataset = imported(tmp_path, "--steady", "--parameter", SPEED)
    assert not predict_command(run, "a", dataset), "it would lead to the error above"
