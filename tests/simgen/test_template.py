"""A case becomes a family: `tests/simgen/cavity_case` with a macro, an include and an Allrun."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simgen
from flows.stages import Generation, execute
from simgen.case import SolvedCase
from simgen.cases import FAMILIES, TEMPLATES, get_family
from simgen.cases.template import (
    TemplateFamily,
    TemplateRecord,
    Varied,
    commands_of,
    find,
    keep,
    make_template,
)
from simgen.errors import InputError, StoreError
from simgen.foam.dictionaries import DictionaryPlace, read_number
from simgen.foam.field import read_field
from simgen.solving.convert import convert
from simgen.solving.gates import rejection
from simgen.solving.solve_case import solve_case

CASE = Path(__file__).with_name("cavity_case")
SPEED = "speed=0/U:lidSpeed=0.5:2:m/s"
WIDTH = "system/blockMeshDict:W=0.5:2"
NU = "nu=constant/transportProperties:nu=0.005:0.02:m2/s"
VARIED = [Varied.parse(text) for text in (SPEED, WIDTH, NU)]


def test_a_varied_entry_has_a_name_a_place_a_range_and_a_unit() -> None:
    speed, width, _ = VARIED
    assert (speed.name, speed.place, speed.low, speed.high, speed.unit) == (
        *("speed", "0/U:lidSpeed", 0.5, 2.0, "m/s"),
    )
    assert (width.name, width.unit) == ("W", "1")
    inlet = Varied.parse("0/U:boundaryField/inlet/value[0]=1:10:m/s")
    assert inlet.name == "inlet_value_0"
    for wrong, why in {
        "speed": "no place",
        "speed=0/U:x": "no place",
        "speed=0/U:x=2:1": "low 2 is not below high 1",
        "speed=0/U:x=0.5-1.5": "'0.5-1.5' is no range",
        "a b=0/U:x=1:2": "'a b' is no word",
    }.items():
        with pytest.raises(InputError, match=f"{why}.*: write NAME=FILE:ENTRY"):
            Varied.parse(wrong)


def test_the_mesh_is_made_as_the_case_makes_it(tmp_path: Path) -> None:
    assert commands_of(CASE, "icoFoam") == ("blockMesh",)
    case = shutil.copytree(CASE, tmp_path / "case")
    (case / "Allrun").write_text(
        "runApplication -s one blockMesh -dict system/first\n"
        "runApplication decomposePar\nrunParallel snappyHexMesh -overwrite\n"
        "runApplication icoFoam\nrunApplication foamToVTK\n"
    )
    first = "blockMesh -dict system/first"
    assert commands_of(case, "icoFoam") == (first, "snappyHexMesh -overwrite")
    (case / "Allrun").unlink()
    (case / "system/setFieldsDict").write_text("")
    assert commands_of(case, "icoFoam") == ("blockMesh", "setFields")
    (case / "constant/polyMesh").mkdir()
    (case / "constant/polyMesh/points").write_text("")
    assert commands_of(case, "icoFoam") == ("setFields",)


@pytest.mark.openfoam
def test_designs_of_a_template_are_solved_with_their_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = shutil.copytree(CASE, tmp_path / "case")
    (case / "0.05").mkdir()
    (case / "log.icoFoam").write_text("of an earlier run")
    made = make_template(case, "cavity", VARIED, None, tmp_path / "cavity")
    assert (made.dimension, made.transient, made.application) == (2, True, "icoFoam")
    assert made.patches == {"lid": "wall", "walls": "wall"}
    assert [field.name for field in made.fields] == ["velocity", "kinematic_pressure"]
    assert made.presets["template"] == {"end_time": 0.1, "write_interval": 0.05, "time_step": 0.005}
    assert made.flow_parameters == ("speed", "nu")
    assert not list(made.folder.glob("0.05")) and not list(made.folder.glob("log*"))
    # Other processes find it beside the dataset.
    store = str(tmp_path / "store")
    keep(made, store, is_used=False)
    keep(made, store, is_used=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(TEMPLATES, "")
    monkeypatch.setattr(FAMILIES, "_known", {**FAMILIES})
    family = get_family("cavity", f"{store}/cavity")
    design = {"speed": 1.5, "W": 0.75, "nu": 0.015}
    point = family.point(design, family.settings("template", {"end_time": 0.15}))
    result = solve_case(point, tmp_path)
    assert (result.status, result.reason) == ("accepted", "")
    directory = tmp_path / point.id
    nu = read_number(directory, DictionaryPlace.parse(VARIED[2].place))
    assert nu == 0.015
    lid = read_field(directory / "0.15/U").boundary["lid"]
    np.testing.assert_allclose(np.atleast_2d(lid)[:, 0], 1.5)
    cloud = convert(SolvedCase(point, directory))
    assert cloud.time is not None and cloud.time.tolist() == [0.05, 0.1, 0.15]
    assert np.ptp(cloud.points[:, 0]) == pytest.approx(0.9 * 0.075, rel=1e-6)
    assert np.ptp(cloud.points[:, 1]) == pytest.approx(0.9 * 0.1, rel=1e-6)
    other = make_template(case, "cavity", VARIED[:1], ["U"], tmp_path / "other")
    with pytest.raises(InputError, match="another template of that name"):
        keep(other, store, is_used=True)
    assert find("nothing", store) is None
    (tmp_path / "store/templates/broken.tar.gz").mkdir()
    with pytest.raises(StoreError, match=r"broken\.tar\.gz cannot be read"):
        find("broken", store)


@pytest.mark.openfoam
def test_of_the_folder_0_what_the_solver_writes_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = shutil.copytree(CASE, tmp_path / "case")
    for name in ("T.orig", "f"):  # as the tutorials hotRoom and pitzDaily have
        shutil.copy(case / "0.orig/p", case / "0.orig" / name)
    made = make_template(case, "cavity", VARIED[:1], None, tmp_path / "cavity")
    assert [field.openfoam for field in made.fields] == ["T", "U", "p"]
    monkeypatch.setitem(FAMILIES, "cavity", made)
    result = solve_case(made.point({"speed": 1.0}, made.settings("template")), tmp_path)
    assert result.status == "failed"
    assert result.reason.endswith(
        "T: the solver writes no T; a template stores others by --fields U,p"
    )


@pytest.mark.openfoam
def test_a_first_try_without_an_accepted_case_leaves_the_name_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = shutil.copytree(CASE, tmp_path / "case")
    shutil.copy(case / "0.orig/p", case / "0.orig/T")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COURANT_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv(TEMPLATES, "")
    monkeypatch.setattr(FAMILIES, "_known", {**FAMILIES})
    tried = Generation(
        "cavity", template=str(case), vary=[SPEED], cases=1, store=str(tmp_path / "store")
    )
    with pytest.raises(InputError, match="none of 1 cases was accepted"):
        tried.execute()
    (case / "0.orig/T").unlink()
    shutil.copy(case / "0.orig/p", case / "0.orig/k")
    execute(again := replace(tried, fields=["U", "p"]))
    assert execute(again).version == "v1" and len(simgen.open_dataset(again.url)) == 1
    with pytest.raises(InputError, match="another template of that name, which has cases"):
        execute(replace(tried, fields=["U"]))
    (case / "0.orig/k").unlink()  # other files with the same parameters
    with pytest.raises(InputError, match="another template of that name"):
        execute(replace(again))


def test_the_residual_that_a_steady_case_may_end_with_is_a_setting(tmp_path: Path) -> None:
    record = TemplateRecord(
        name="room",
        varied=(VARIED[0],),
        application="simpleFoam",
        dimension=2,
        transient=False,
        fields=(),
        patches={"walls": "wall"},
        settings={"max_iterations": 100.0},
        commands=(),
    )
    family = TemplateFamily(record, tmp_path)
    for settings, passed in (({}, False), ({"max_residual": 0.05}, True)):
        point = family.point({"speed": 1.0}, family.settings("template", settings))
        (gate,) = family.gates(SolvedCase(point, tmp_path), {"max_residual": 0.0136})
        assert gate.passed is passed and "--set max_residual" in rejection([gate]) + gate.limit


@pytest.mark.openfoam
@pytest.mark.parametrize(
    ("varied", "fields", "break_it", "answer"),
    [
        ("x=0/U:nothing=1:2", None, None, "0/U has no entry nothing; the file has "),
        ("x=0/U:boundaryField/top/value=1:2", None, None, "boundaryField has lid, walls"),
        ("x=0/U:boundaryField/lid/type=1:2", None, None, "holds 0 numbers"),
        (SPEED, ["T"], None, "has no field T; it has U, "),
        (SPEED, None, "system/blockMeshDict", "cannot be meshed"),
        (SPEED, None, "system/controlDict", "no system/controlDict"),
        (SPEED, None, "0.orig", "no folder 0 or 0.orig"),
    ],
)
def test_a_case_that_is_no_template_has_one_line(
    tmp_path: Path, varied: str, fields: list[str] | None, break_it: str | None, answer: str
) -> None:
    case = shutil.copytree(CASE, tmp_path / "case")
    if break_it:
        target = case / break_it
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    with pytest.raises(InputError) as raised:
        make_template(case, "cavity", [Varied.parse(varied)], fields, tmp_path / "made")
    assert answer in str(raised.value) and "\n" not in str(raised.value)
