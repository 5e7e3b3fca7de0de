"""A case becomes a family: `tests/simgen/cavity_case` with a macro, an include and an Allrun."""

import gzip
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import simgen
from flows.stages import Generation, execute
from simgen.case import Field, SolvedCase
from simgen.case_description import check_unit
from simgen.cases import FAMILIES, TEMPLATES, find_family, get_family
from simgen.cases.expressions import Expression, SolvedFields, usual_quantities
from simgen.cases.template import (
    RECORD,
    AskedQuantity,
    TemplateFamily,
    TemplateRecord,
    Varied,
    commands_of,
    copy_case,
    find,
    keep,
    make_template,
)
from simgen.errors import CaseError, InputError, StoreError
from simgen.foam.dictionaries import DictionaryPlace, read_number
from simgen.foam.field import COMPONENT_NAMES, read_field
from simgen.point_cloud import BoundaryCloud, PointCloud
from simgen.quantities import CaseFields, compute, obtainable
from simgen.solving import unsolved
from simgen.solving.convert import convert
from simgen.solving.gates import rejection
from simgen.solving.solve_case import solve_case
from simgen.store.versions import read_on_record

CASE = Path(__file__).with_name("cavity_case")
SPEED = "speed=0/U:lidSpeed=0.5:2:m/s"
WIDTH = "system/blockMeshDict:W=0.5:2"
NU = "nu=constant/transportProperties:nu=0.005:0.02:m2/s"
VARIED = [Varied.parse(text) for text in (SPEED, WIDTH, NU)]


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return shutil.copytree(CASE, tmp_path / "case")


@pytest.fixture
def no_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(TEMPLATES, "")
    monkeypatch.setattr(FAMILIES, "data", {**FAMILIES})


def test_a_varied_entry_has_a_name_a_place_a_range_and_a_unit() -> None:
    speed, width, _ = VARIED
    assert (speed.name, speed.place, speed.low, speed.high, speed.unit) == (
        *("speed", "0/U:lidSpeed", 0.5, 2.0, "m/s"),
    )
    assert (width.name, width.unit) == ("W", "1")
    inlet = Varied.parse("0/U:boundaryField/inlet/value[0]=1:10:m/s")
    assert inlet.name == "inlet_value_0"
    places = [Varied.parse(f"x={of}:lidSpeed=1:2").place for of in ("0.orig/U", "0/U.orig")]
    assert places == ["0/U:lidSpeed"] * 2
    check_unit("V/(T m)", CASE, DictionaryPlace.parse("0.orig/U:boundaryField/lid/value[0]"))  # m/s
    for wrong, why in {
        "speed": "no place",
        "speed=0/U:x": "no place",
        "speed=0/U:x=2:1": "low 2 is not below high 1",
        "speed=0/U:x=0.5-1.5": "'0.5-1.5' is no range",
        "a b=0/U:x=1:2": "'a b' is no word",
        "n=system/blockMeshDict:nCells=5:20.5": "a count has whole numbers as limits",
    }.items():
        with pytest.raises(InputError, match=f"{why}.*: write NAME=FILE:ENTRY"):
            Varied.parse(wrong)


def test_the_mesh_is_made_as_the_case_makes_it(case: Path) -> None:
    assert commands_of(CASE, "icoFoam") == ("blockMesh",)
    (case / "Allrun").write_text(
        "runApplication -s one blockMesh -dict system/first\n"
        "runApplication decomposePar\nrunParallel snappyHexMesh -overwrite || exit 1  # cut\n"
        "runApplication topoSet && runApplication setFields\n"
        'runApplication "$(getApplication)"\nrunApplication foamToVTK\n'
    )
    first = "blockMesh -dict system/first"
    then = ("snappyHexMesh -overwrite", "topoSet", "setFields")
    assert commands_of(case, "icoFoam") == (first, *then)
    (case / "Allrun").unlink()
    (case / "system/setFieldsDict").write_text("")
    assert commands_of(case, "icoFoam") == ("blockMesh", "setFields")
    (case / "constant/polyMesh").mkdir()
    (case / "constant/polyMesh/points").write_text("")
    assert commands_of(case, "icoFoam") == ("setFields",)


def test_a_copy_is_without_results_and_has_all_else(case: Path, tmp_path: Path) -> None:
    samples = [f"constant/boundaryData/inlet/{time}/U" for time in (0, 1, 2)]
    for name in (*samples, "1/U", "2/U", "log.icoFoam", "system/a", "postProcessing/p/0/p.dat"):
        (case / name).parent.mkdir(parents=True, exist_ok=True)
        (case / name).write_text("as it is")
    for packed in ("system/a.gz", "system/b.gz"):
        (case / packed).write_bytes(gzip.compress(b"packed before"))
    (case / "case.stl").symlink_to(case / "nowhere")
    copy_case(case, tmp_path / "copy")
    found = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert {*samples, "system/a", "system/b"} <= found
    assert not found & {"case.stl", "1", "2", "log.icoFoam", "postProcessing", "system/a.gz"}
    assert (tmp_path / "copy/system/a").read_text() == "as it is", "OpenFOAM reads it first"
    families = [TemplateFamily(room().model_copy(update={"digest": d}), case) for d in "ab"]
    point = families[0].point({"speed": 1.0}, families[0].settings("template"))
    assert point.id == families[1].point(point.parameters, point.settings).id
    meshes = set()
    for family in families:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(unsolved, "get_family", lambda _, family=family: family)
            meshes.add(unsolved.geometry_id(point))
    assert len(meshes) == 2, "another case of the same name has another mesh"


@pytest.mark.openfoam
@pytest.mark.usefixtures("no_templates")
def test_designs_of_a_template_are_solved_with_their_parameters(tmp_path: Path, case: Path) -> None:
    (case / "0.05").mkdir()
    (case / "log.icoFoam").write_text("of an earlier run")
    (control := case / "system/controlDict").write_text(f"{control.read_text()}maxCo 4;\n")
    packed = gzip.compress((dictionary := case / "system/blockMeshDict").read_bytes())
    dictionary.with_name("blockMeshDict.gz").write_bytes(packed)
    dictionary.unlink()
    made = make_template(case, "cavity", VARIED, None, tmp_path / "cavity")
    assert (made.dimension, made.transient, made.application) == (2, True, "icoFoam")
    assert made.patches == {"lid": "wall", "walls": "wall"}
    assert [field.name for field in made.fields] == ["velocity", "kinematic_pressure"]
    times = {"end_time": 0.1, "write_interval": 0.05, "time_step": 0.005}
    assert made.presets["template"] == {**times, "max_courant": 8.0}
    assert [each.unit for each in made.settings_space.parameters] == ["s", "s", "s", "1"]
    assert made.flow_parameters == ("speed", "nu")
    assert not list(made.folder.glob("0.05")) and not list(made.folder.glob("log*"))
    # Other processes find it beside the dataset.
    store = str(tmp_path / "store")
    keep(made, store, is_used=False)
    keep(made, store, is_used=True)
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
    with pytest.raises(InputError, match=r"cases with --vary 'W=system.* 'nu=.*, not fewer:"):
        keep(other, store, is_used=True)
    assert find("nothing", store) is None
    (tmp_path / "store/templates/broken.tar.gz").mkdir()
    with pytest.raises(StoreError, match=r"broken\.tar\.gz cannot be read"):
        find("broken", store)


ASKED = {
    "lid": "average(U.x, lid)",
    "middle": "average(U.x)",
    "share": "end(max(U, wall)) / speed:1",
    "work": "integral(p) - 2 * integral(p)",
    "leak": "flow(wall)",
    "last": "end(average(U.y))",
    "own": "average(p, lid)",
    "late": "monitor(lidPressure, 'areaAverage(p)'):m2/s2",
    "final": "end(monitor(lidPressure, 1)) - end(average(p, lid))",
}
MONITOR = """functions { lidPressure { type surfaceFieldValue; libs (fieldFunctionObjects);
    writeControl writeTime; fields (p); operation areaAverage; regionType patch; name lid;
    writeFields false; log false; } }
"""


def test_a_tensor_alone_is_its_magnitude_with_both_halves() -> None:
    whole = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    pairs = dict(zip(map("".join, product("xyz", repeat=2)), whole.ravel(), strict=True))
    size, in_plane = np.linalg.norm(whole), 1 + 2 * 2**2 + 4**2 + 6**2
    for names, expected in (
        (COMPONENT_NAMES[9], size),
        (COMPONENT_NAMES[6], size),
        (("xx", "xy", "yy", "zz"), in_plane**0.5),
    ):
        values = np.array([[pairs[name] for name in names]] * 2)
        cloud = PointCloud(
            points=np.eye(2, 3),
            volumes=np.ones(2),
            distance=None,
            direction=None,
            patch_kinds=(),
            time=None,
            fields={"stress": values},
            boundary=None,
        )
        made = Expression(
            AskedQuantity.parse("most=max(stress)"),
            fields=[Field("stress", "Pa", names, "sigma", "solved")],
            patches={},
            parameters=[],
            transient=False,
        )
        assert made(SolvedFields({}, cloud, None)) == pytest.approx(expected)
        assert made.quantity.needs == tuple(f"stress.{name}" for name in names)


@pytest.mark.openfoam
def test_quantities_are_measured_on_the_solved_case_and_on_its_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [AskedQuantity.parse(f"{name}={text}") for name, text in ASKED.items()]
    case_folder = shutil.copytree(CASE, tmp_path / "case")
    with (case_folder / "system/controlDict").open("a") as control:
        control.write(MONITOR)
    made = make_template(case_folder, "cavity", VARIED[:1], None, tmp_path / "cavity", asked)
    monkeypatch.setitem(FAMILIES, "cavity", made)
    units = {each.name: each.unit for each in made.quantities}
    assert [*units.values()][:7] == ["m/s", "m/s", "1", "", "m3/s", "m/s", "m2/s2"]
    case = SolvedCase(made.point({"speed": 1.5}, made.settings("template")), tmp_path / "none")
    result = solve_case(case.point, tmp_path)
    assert result.status == "accepted", result.reason
    solved = {name: result.provenance["figures"][name] for name in ASKED}
    cloud = convert(SolvedCase(case.point, tmp_path / case.point.id))
    velocity, volumes = np.float64(cloud.fields["velocity"]), np.float64(cloud.volumes)
    pressure = np.float64(cloud.fields["kinematic_pressure"][..., 0])
    share = volumes / volumes.sum()
    assert (solved["lid"], solved["share"]) == pytest.approx((1.5, 1.0))
    assert solved["middle"] == pytest.approx((velocity[..., 0] @ share).mean(), rel=1e-5)
    assert solved["last"] == pytest.approx(velocity[-1, :, 1] @ share, rel=1e-4)
    assert solved["work"] == pytest.approx(-(pressure @ volumes).mean(), rel=1e-5)
    # Both of the stored times lie in the last half.
    assert solved["late"] == pytest.approx(solved["own"], rel=1e-4)
    assert solved["final"] == pytest.approx(0, abs=1e-6)
    assert solved["leak"] == pytest.approx(0, abs=1e-12)
    forces = tmp_path / case.point.id / "postProcessing/forces/0"
    forces.mkdir(parents=True)
    (forces / "CdBin.dat").write_text("# x0 x1\n# Time total total\n1 7 8\n")
    (forces / "coefficient.dat").write_text("# Time Cd\n0 9\n4 3\n5 3\n5.5 1\n6 1\n8 4\n")
    directory = SolvedCase(case.point, tmp_path / case.point.id)
    of_monitors = SolvedFields.read(directory, made)
    common = {"fields": made.fields, "patches": made.patches, "parameters": ["speed"]}
    # The second half, by steps of 1, 0.75, 0.5, 1.25 and 2; the first file's column.
    for text, mean in (("Cd", 15 / 5.5), ("1", 7.0)):
        asked_for = AskedQuantity.parse(f"cd=monitor(forces, {text})")
        assert Expression(asked_for, **common, transient=True)(of_monitors) == pytest.approx(mean)
    folder = forces.parents[1] / "outlet/0"
    folder.mkdir(parents=True)
    (folder / "values.dat").write_text("# Time areaAverage(U) areaAverage(p)\n1 (1 2 3) 50\n")
    by_number = AskedQuantity.parse("p=monitor(outlet, 4)")
    assert Expression(by_number, **common, transient=True)(of_monitors) == 50
    for column in ("'areaAverage(p)'", "5"):
        asked_for = AskedQuantity.parse(f"p=monitor(outlet, {column})")
        with pytest.raises(CaseError, match=r"5 numbers in a row for 3 names .* 0 to 4"):
            Expression(asked_for, **common, transient=True)(of_monitors)
    asked_for = AskedQuantity.parse("cd=monitor(forces, Cl)")
    with pytest.raises(InputError, match=r"--quantity cd: .*/system has no 'forces'"):
        make_template(CASE, "cavity", VARIED[:1], None, tmp_path / "monitored", [asked_for])
    with pytest.raises(CaseError, match="has no column Cl; Time, total, Cd"):
        Expression(asked_for, **common, transient=True)(of_monitors)
    # On the cloud patches are known by their kinds, and have the values of the cells behind.
    fields = CaseFields(case.point.parameters, case.point.settings, cloud)
    known, why = obtainable(made.quantities, ["velocity.x", "velocity.y", "kinematic_pressure.p"])
    apart = "lid is one of several patches of the kind wall"
    assert (why.pop("lid"), why.pop("own")) == (apart, apart)
    assert {*why} == {"late", "final"} and "object lidPressure" in why["late"]
    found = compute(known, fields)
    for name in ("middle", "work", "last"):
        assert found[name] == pytest.approx(solved[name], rel=1e-4)
    assert 0.3 < found["share"] < 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "has no name or no expression"),
        ("x=average(T)", "no field or component 'T' is among velocity, "),
        ("x=average(U.z)", "no field or component 'U.z'"),
        ("x=average(p, top)", r"no patch or kind 'top'; there are in-1 \(inlet\), out"),
        ("x=average(p", "it cannot be read"),
        ("x=length(U)", r"'length\(U\)' is no number, no term \(average, "),
        ("x=flow()", r"flow\(\) has 0 arguments"),
        ("x=speed.real", "'speed.real' is no number"),
    ],
)
def test_a_quantity_that_cannot_be_measured_has_one_line(
    text: str, why: str, tmp_path: Path
) -> None:
    fields = (Field("velocity", "m/s", ("x", "y"), "U"), Field("pressure", "Pa", ("p",), "p"))
    patches = {"in-1": "inlet", "out": "outlet"}
    usual = *usual_quantities(fields, patches), AskedQuantity.parse("x=integral(U.x, out):m3/s")
    record = room().model_copy(update={"fields": fields, "patches": patches, "quantities": usual})
    drop, speed, flux = (of.checked().quantity for of in TemplateFamily(record, tmp_path).measures)
    assert flux.unit == "m3/s"
    assert (drop.name, drop.unit, drop.needs) == ("pressure_drop", "Pa", ("pressure.p",))
    assert (speed.name, speed.needs) == ("max_speed", ("velocity.x", "velocity.y"))
    with pytest.raises(InputError, match=why):
        asked = (AskedQuantity.parse(text),)
        TemplateFamily(record.model_copy(update={"quantities": asked}), tmp_path)


@pytest.mark.openfoam
def test_a_fixed_value_counts_on_its_patch_and_not_the_cells_behind(
    tmp_path: Path, case: Path
) -> None:
    text = (case / "0.orig/p").read_text()
    fixed = (
        'boundaryField { lid { type fixedValue; value uniform 2; } ".*" { type zeroGradient; } }'
    )
    (case / "0.orig/p").write_text(f"{text.partition('boundaryField')[0]}{fixed}\n")
    blocks = (case / "system/blockMeshDict").read_text()
    kind = re.sub(r"(lid\s*\{\s*type\s+)wall", r"\1patch", blocks)
    (case / "system/blockMeshDict").write_text(kind)
    asked = [AskedQuantity.parse(f"{n}=average({n}, lid)") for n in ("p", "U")]
    made = make_template(case, "cavity", VARIED[2:], None, tmp_path / "cavity", asked)
    assert made.record.given["kinematic_pressure"] == {"lid": (2.0,)}
    cloud = PointCloud(
        points=np.array([[0.0, 0, 0], [1, 0, 0]]),
        volumes=np.ones(2),
        distance=None,
        direction=None,
        patch_kinds=made.patch_kinds,
        time=None,
        fields={"velocity": np.ones((2, 2)), "kinematic_pressure": np.ones((2, 1))},
        boundary=BoundaryCloud(np.zeros((2, 3)), np.zeros((2, 3)), np.ones(2), np.array([0, 1])),
    )
    assert compute(made.quantities, CaseFields({}, {}, cloud))["p"] == 2


@pytest.mark.openfoam
def test_a_parameter_may_have_several_places_and_be_a_whole_number(
    tmp_path: Path, case: Path
) -> None:
    for file, old, new in (
        ("0.orig/U", "internalField uniform (0 0 0)", "at (1 0 0); internalField uniform $at"),
        ("system/blockMeshDict", "scale 0.1;", "scale 0.1; nCells 10; N 10;"),
        ("system/blockMeshDict", "(10 10 1)", "($nCells $N 1)"),
    ):
        (case / file).write_text((case / file).read_text().replace(old, new))
    lid, cells = "0/U:boundaryField/lid/value[0]", "cells=system/blockMeshDict:nCells=5:20"
    varied = [Varied.parse(f"speed={lid}=0.5:2"), Varied.parse(cells)]
    (note,) = make_template(case, "one", varied, None, tmp_path / "one").notes()
    assert f"start from 1 in the cells; both by --vary 'speed={lid},internalField[0]=" in note
    varied[0] = Varied.parse(f"speed={lid},internalField[0]=0.5:2")
    varied.append(Varied.parse("at=0/U:at[0]=0.5:2"))  # a macro, which the cells may follow
    made = make_template(case, "both", varied, None, tmp_path / "both")
    point = made.point({"speed": 1.5, "cells": 7.4, "at": 1.0}, made.settings("template"))
    made.write_case(point, tmp_path / "solved")
    numbers = [[read_number(tmp_path / "solved", at) for at in each.places] for each in varied]
    assert numbers == [[1.5, 1.5], [7.0], [1.0]] and not [*made.notes()]
    varied = [Varied.parse("N=system/blockMeshDict:N=5:20")]
    option = r"has the unit count: --vary 'N=system/blockMeshDict:N=5:20:count'"
    with pytest.raises(InputError, match=option):
        make_template(case, "real", varied, None, tmp_path / "real")


@pytest.mark.openfoam
def test_of_the_folder_0_what_the_solver_writes_is_stored(tmp_path: Path, case: Path) -> None:
    with (case / "system/controlDict").open("a") as control:  # as the tutorial hartmann has
        control.write("functions\n{\n#includeFunc components(U)\n}\n")
    for name in ("T.orig", "f", "Ux"):  # as the tutorials hotRoom and pitzDaily have
        shutil.copy(case / "0.orig/p", case / "0.orig" / name)
    (case / "0.orig/U.orig").write_text((case / "0.orig/U").read_text() + "// clean\n")
    (case / "Allrun").write_text(
        "cp 0/U.orig 0/U\ncp -f 0/none 0/p\n\\cp ../x 0/p\ncp 0/U.orig none/U\n"
        f"cp 0/U.orig {tmp_path}/outside\ncp {case}/Allrun 0/p\nrunApplication blockMesh\n"
    )
    made = make_template(case, "cavity", VARIED[:1], None, tmp_path / "cavity")
    assert [field.openfoam for field in made.fields] == ["U", "p"]
    assert (made.folder / "0/U").read_text().endswith("// clean\n")
    assert not (tmp_path / "outside").exists() and "runApp" not in (made.folder / "0/p").read_text()
    with pytest.raises(InputError, match="icoFoam writes U, Ux, Uy, Uz, p, and no T"):
        make_template(case, "cavity", VARIED[:1], ["T"], tmp_path / "unwritten")
    made = make_template(case, "cavity", VARIED[:1], ["U", "Ux"], tmp_path / "named")
    assert [field.name for field in made.fields] == ["velocity", "Ux"]


@pytest.mark.openfoam
@pytest.mark.usefixtures("no_templates")
def test_a_first_try_without_an_accepted_case_leaves_the_name_free(
    tmp_path: Path, case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURANT_SCRATCH", str(tmp_path / "scratch"))
    tried = Generation(
        "cavity", template=str(case), vary=[SPEED], cases=5, store=str(tmp_path / "store")
    )
    with pytest.raises(InputError, match=r"3 cases were rejected, .* \(--set max_courant\)$"):
        replace(tried, settings={"max_courant": 1e-3}).execute()
    record = read_on_record(tried.url)
    assert record is not None and 3 <= len(record.design) < 5
    with (case / "constant/transportProperties").open("a") as properties:
        properties.write("unused 1;\n")
    unused = ["x=constant/transportProperties:unused=1:2"]
    with pytest.raises(InputError, match="have the same fields to the last digit: what is varied"):
        replace(tried, family="idle", template=str(case), vary=unused).execute()
    ramped = shutil.copytree(case, tmp_path / "ramped")
    still = "type surfaceNormalFixedValue; refValue uniform 0; ramp constant 1;"
    text = (ramped / "0.orig/U").read_text()
    (ramped / "0.orig/U").write_text(text.replace("type noSlip;", still))
    with pytest.raises(InputError, match="its patch walls has no value, and surface"):
        replace(tried, family="ramped", template=str(ramped), cases=1).execute()
    flow = "type flowRateInletVelocity; volumetricFlowRate 1; value uniform (0 0 0);"
    (ramped / "0.orig/U").write_text(text.replace("type noSlip;", flow))
    with pytest.raises(InputError, match="vary boundaryField/walls/volumetricFlowRate"):
        varied = [Varied.parse("x=0/U:boundaryField/walls/value[0]=1:2")]
        make_template(ramped, "ramped", varied, None, tmp_path / "flow")
    shutil.copy(case / "0.orig/p", case / "0.orig/k")
    execute(again := replace(tried, fields=["U", "p"], cases=1))
    assert execute(again).version == "v1" and len(simgen.open_dataset(again.url)) == 1
    with pytest.raises(InputError, match="has cases with other fields: leave"):
        execute(replace(again, fields=["U"]))
    (case / "0.orig/k").unlink()  # other files with the same parameters
    with pytest.raises(InputError, match="has cases with other files"):
        execute(replace(again))


def room() -> TemplateRecord:
    return TemplateRecord(
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


@pytest.mark.usefixtures("no_templates")
def test_each_dataset_has_the_template_beside_it(tmp_path: Path) -> None:
    for name, iterations in (("one", 100.0), ("two", 50.0)):
        (folder := tmp_path / name / "room").mkdir(parents=True)
        record = room().model_copy(update={"settings": {"max_iterations": iterations}})
        (folder / RECORD).write_text(record.model_dump_json())
        keep(TemplateFamily(record, folder), f"{tmp_path}/{name}", is_used=False)
    found = [get_family("room", f"{tmp_path}/{name}/room") for name in ("one", "two", "one")]
    assert [each.presets["template"]["max_iterations"] for each in found] == [100, 50, 100]
    assert find_family("room", f"{tmp_path}/three/room") is None


@pytest.mark.parametrize(
    ("is_transient", "name", "value", "limit"),
    [(False, "max_residual", 0.0136, 0.05), (True, "max_courant", 7.8, 10.0)],
)
def test_the_limit_of_a_template_s_gate_is_a_setting(
    tmp_path: Path, is_transient: bool, name: str, value: float, limit: float
) -> None:
    times = {"end_time": 1.0, "write_interval": 0.5, "time_step": 0.1}
    changed = {"transient": True, "settings": times} if is_transient else {}
    family = TemplateFamily(room().model_copy(update=changed), tmp_path)
    for settings, passed in (({}, False), ({name: limit}, True)):
        point = family.point({"speed": 1.0}, family.settings("template", settings))
        (gate,) = family.gates(SolvedCase(point, tmp_path), {name: value})
        assert gate.passed is passed and f"--set {name}" in rejection([gate]) + gate.limit


@pytest.mark.openfoam
@pytest.mark.parametrize(
    ("varied", "fields", "break_it", "answer"),
    [
        ("x=0/U:nothing=1:2", None, None, "0/U has no nothing; there are "),
        ("x=0/U:boundaryField/lid/value[3]=1:2", None, None, "3 numbers, [0] to [2] and no [3]"),
        ("x=0/U:boundaryField/top/value=1:2", None, None, "0/U: boundaryField has no top; there "),
        ("x=0/V:a=1:2", None, None, "0/V cannot be read: No such file or directory; 0 has U, "),
        ("x=0/U:boundaryField/lid/type=1:2", None, None, "holds no number"),
        ("x=0/U:boundaryField/lid/value[0]=1:2:mm/s", None, None, "has the unit m/s, not mm/s"),
        ("x=system/controlDict:endTime=1:2", None, None, "all designs: give --set end_time=0.1, "),
        ("x=constant/faces:wall/a=1:2", None, None, "--vary 'x=constant/faces:x=1:2:1'"),
        ("x=constant/around:b=1:2", None, None, "cannot be set, as it is in an included file or"),
        (SPEED.replace("m/s", "furlong"), None, None, "unit 'furlong' is not known; write one of "),
        ("x=system/blockMeshDict:blocks[8]=5:9", None, None, "unit count: --vary 'x=system/bl"),
        (SPEED, ["T"], None, "icoFoam writes U, p, and no T"),
        (SPEED, None, "system/blockMeshDict", "line 'm4 mesh.m4 > mesh' is not run: run it in"),
        (SPEED, None, "system/controlDict", "no system/controlDict"),
        (SPEED, None, "0.orig", "no folder 0 or 0.orig"),
    ],
)
def test_a_case_that_is_no_template_has_one_line(
    tmp_path: Path,
    case: Path,
    varied: str,
    fields: list[str] | None,
    break_it: str | None,
    answer: str,
) -> None:
    (case / "constant/faces").write_text('b 2; ".*" { a 3; }')
    (case / "Allrun").write_text("m4 mesh.m4 > mesh\nrunApplication blockMesh\n")
    (case / "constant/around").write_text('#include "faces"\n')
    if break_it:
        target = case / break_it
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    with pytest.raises(InputError) as raised:
        make_template(case, "cavity", [Varied.parse(varied)], fields, tmp_path / "made")
    assert answer in str(raised.value) and "\n" not in str(raised.value)
