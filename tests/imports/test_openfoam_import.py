"""A folder of OpenFOAM cases that somebody else solved: what comes in, and what is printed."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simgen
from simgen.case_description import patch_kind, read_control, velocity_conditions
from simgen.cell_mesh import face_neighbours
from simgen.errors import CaseError, InputError
from simgen.foam.dictionaries import DictionaryPlace, read_entry, read_number
from simgen.foam.mesh import PatchRange, read_faces, read_geometry
from simgen.foam.run import find_openfoam
from simgen.imports.folder import FolderOptions, read_case_table
from simgen.imports.openfoam import FoamFolder
from simgen.quantities import obtainable
from simgen.store.verify import verify
from simgen.store.write import DatasetWriter
from tests.imports.foam_cases import (
    NX,
    Form,
    box,
    cell_places,
    field_values,
    import_openfoam,
    plan_openfoam,
    replace_in,
    write_case,
    write_mesh,
)

FIELDS = {"U": "", "p": "", "T": ""}
SPEED = {"speed": DictionaryPlace.parse("0/U:boundaryField/inlet/value[0]")}
READER = FoamFolder(fields=FIELDS, parameters=SPEED)


def asked(tmp_path: Path, **more) -> FolderOptions:
    of = {"folder": tmp_path / "cases", "url": str(tmp_path / "store/foreign"), "name": "foreign"}
    return FolderOptions(**{**of, **more})


def imported(tmp_path: Path, reader: FoamFolder = READER, **more):
    """Import the folder; return the dataset and what was skipped, by place."""
    plan = plan_openfoam(asked(tmp_path, **more), reader)
    skipped = {each.case: each.reason for each in plan.skipped}
    done = import_openfoam(plan, reader, on_skipped=skipped.__setitem__)
    return simgen.open_dataset(done.url), skipped


def check_values(case, speed: float, times: list[float]) -> None:
    """The values are those of their places, whatever the order of the cells."""
    np.testing.assert_allclose(case.time, times)
    for step, time in enumerate(times):
        for name, stored in (("U", "velocity"), ("p", "kinematic_pressure"), ("T", "temperature")):
            expected = field_values(name, time, speed).at(case.points)
            found = case[stored][step]
            np.testing.assert_allclose(found, expected[:, : found.shape[1]], rtol=1e-6)
    inlet = case.boundary.patch == case.patch_kinds.index("inlet")
    expected = field_values("U", times[-1], speed).at(case.boundary.points[inlet])[:, :2]
    np.testing.assert_allclose(case.boundary["velocity"][-1][inlet], expected, rtol=1e-6)


FORMS = {
    "ascii": {},
    "binary": {"form": Form(binary=True)},
    "decomposed": {"decomposed": True},
    "decomposed binary packed": {"decomposed": True, "form": Form(binary=True, packed=True)},
    "ascii mesh, big-endian fields": {"form": Form(binary=True, order=">"), "mesh_form": Form()},
    "big-endian, 64-bit labels, 32-bit numbers": {
        "form": Form(binary=True, order=">", label=64, scalar=32)
    },
}


def test_cases_of_every_form_are_the_same_dataset(tmp_path) -> None:
    for number, (name, how) in enumerate(FORMS.items(), start=1):
        write_case(tmp_path / "cases" / name, speed=number, **how)
    dataset, skipped = imported(tmp_path)
    assert skipped == {}
    assert verify(dataset).findings == []
    assert dataset.schema.dimension == 2 and dataset.schema.transient
    assert [field.unit for field in dataset.schema.fields] == ["m/s", "m2/s2", "K"]
    assert dataset.schema.patch_kinds == ("inlet", "outlet", "wall")
    for case in dataset:
        check_values(case, case.parameters["speed"], [0.5, 1.0])
        np.testing.assert_allclose(case.volumes, 1)
        centres = np.sort(cell_places(box())[:, :2], axis=0)
        np.testing.assert_allclose(np.sort(case.points[:, :2], axis=0), centres, rtol=1e-6)
        to_inlet, to_outlet, _ = case.distance[:].T
        np.testing.assert_allclose(to_inlet, case.points[:, 0], rtol=1e-6)
        np.testing.assert_allclose(to_outlet, 4 - case.points[:, 0], rtol=1e-6)
        assert case.provenance["solver"] == "icoFoam"
        corners = case.mesh.points[case.mesh.blocks(0, 12)[0][1]].mean(axis=1)
        np.testing.assert_allclose(corners[:, :2], case.points[:, :2], rtol=1e-6)
        # Also across the border of a decomposed mesh.
        near = face_neighbours(case.mesh, len(case.points))
        apart = np.linalg.norm(case.points[near] - case.points[:, None], axis=-1)
        assert (near >= 0).sum() == 34 and apart[near >= 0] == pytest.approx(1, rel=1e-6)


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "an unfinished case": (lambda d: shutil.rmtree(d / "1"), "it is unfinished: its last time"),
    "a log that tells of an error": (
        lambda d: (
            (d / "log.icoFoam").write_text(
                "Exec   : icoFoam\nTime = 0.5\n--> FOAM FATAL ERROR:\nMaximum number of\n\n"
            ),
            (d / "system/controlDict").write_text("application icoFoam;\nendTime 2;\n"),
        ),
        "see log.icoFoam: Maximum number of",
    ),
    "no faces": (lambda d: (d / "constant/polyMesh/faces").unlink(), "Mesh/faces: No such file"),
    "a missing field": (lambda d: (d / "1/T").unlink(), "its time 1 has no T; it has U, p"),
    "a mesh for each region": (
        lambda d: (
            (d / "constant/fluid").mkdir(),
            (d / "constant/polyMesh").rename(d / "constant/fluid/polyMesh"),
        ),
        "it has a mesh for each of fluid; choose one with --region",
    ),
    "no mesh": (lambda d: shutil.rmtree(d / "constant/polyMesh"), "it has no mesh"),
    "a patch of a kind that others lack": (
        # What it is called tells nothing, and no field has a condition there.
        lambda d: replace_in(d / "constant/polyMesh/boundary", "outlet {", "vent {"),
        "it has a patch of kind open, which the dataset has not (inlet, outlet, wall)",
    ),
    "a field that is not finite": (
        lambda d: replace_in(d / "1/p", "(\n0.5", "(\nnan"),
        "1/p holds 1 values that are not finite",
    ),
    "a moving mesh": (
        lambda d: shutil.copytree(d / "constant/polyMesh", d / "1/polyMesh"),
        "a moving mesh has 1/polyMesh beside constant/polyMesh",
    ),
    "parts without the first": (
        lambda d: shutil.rmtree(d / "processor0"),
        "its part processor0 is missing",
    ),
    "parts of different times": (
        lambda d: shutil.rmtree(d / "processor1/1"),
        "its parts differ in time 1",
    ),
    "collated": (lambda d: (d / "processors4").mkdir(), "collated format (processors4)"),
    "a steady one": (
        lambda d: replace_in(d / "system/fvSchemes", "Euler", "steadyState"),
        "it is steady, the dataset is transient",
    ),
    "another unit": (
        lambda d: [replace_in(d / time / "p", "[0 2 -2", "[1 -1 -2") for time in ("0.5", "1")],
        "it is of p as pressure in Pa with 1 components, the dataset is of p as kinematic_pressure",
    ),
    "no parameter": (
        lambda d: replace_in(d / "0/U", "value uniform", "freestream uniform"),
        "0/U: boundaryField/inlet has no value; there are ",
    ),
}


def test_each_hostile_case_is_one_line_and_the_others_are_imported(tmp_path) -> None:
    for number in (1, 2, 3):
        write_case(tmp_path / f"cases/good{number}", speed=number)
    shutil.copytree(tmp_path / "cases/good1", tmp_path / "cases/twin")
    (tmp_path / "cases/empty folder").mkdir()
    for number, (name, (change, _)) in enumerate(SPOILT.items(), start=4):
        folder, decomposed = tmp_path / "cases" / name, name.startswith("parts")
        write_case(folder, speed=number, change=change, decomposed=decomposed)
    dataset, skipped = imported(tmp_path)
    printed = {
        **{name: says for name, (_, says) in SPOILT.items()},
        "twin": "it has the parameters of good1, solved twice",
    }
    lacking = {
        name: skipped.get(name) for name in printed if printed[name] not in skipped.get(name, "")
    }
    assert lacking == {}
    assert not any("\n" in reason for reason in skipped.values())
    assert str(tmp_path) not in " ".join(skipped.values())
    assert set(skipped) == set(printed)
    assert len(dataset) == 3 and dataset.version == "v1"
    assert verify(dataset).findings == []


def test_a_patch_that_only_some_cases_have_is_reported(tmp_path) -> None:
    def fin(directory: Path) -> None:
        replace_in(
            directory / "constant/polyMesh/boundary", "outlet { type patch", "fin { type wall"
        )
        for path in directory.glob("[01]*/[UpT]"):
            path.write_text(path.read_text().replace("    outlet\n", "    fin\n"))

    for number in (1, 2, 3):
        write_case(tmp_path / f"cases/run{number}", speed=number)
    write_case(tmp_path / "cases/odd", speed=4, change=fin)
    plan = plan_openfoam(asked(tmp_path), READER)
    assert [(each.case, each.reason.partition(";")[0]) for each in plan.skipped] == [
        ("odd", "it has no patch of kind outlet, to which the dataset has distances")
    ]
    plan = plan_openfoam(asked(tmp_path, distance_kinds=("wall",)), READER)
    assert plan.skipped == ()
    assert plan.patches == {"inlet": ["inlet"], "outlet": ["outlet"], "wall": ["fin", "walls"]}
    dataset, _ = imported(tmp_path, distance_kinds=("wall",))
    assert dataset["odd"].distance.shape == (12, 1)


def test_it_goes_on_where_it_was_cut_off_and_adds_only_what_is_new(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("simgen.imports.importing.CASES_A_COMMIT", 1)
    for number in (1, 2, 3):
        write_case(tmp_path / f"cases/run{number}", speed=number)
    ranges = {"speed": (0.0, 9.0)}
    plan = plan_openfoam(asked(tmp_path, ranges=ranges), READER)

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_openfoam(plan, READER, on_progress=stop)
    with pytest.raises(InputError, match="no published version"):
        simgen.open_dataset(plan.url)
    read: list[Path] = []
    original = FoamFolder.read
    monkeypatch.setattr(
        FoamFolder,
        "read",
        lambda of, case, *more: read.append(case.name) or original(of, case, *more),
    )
    first, _ = imported(tmp_path, ranges=ranges)
    assert (first.version, read) == ("v1", ["run3"])
    write_case(tmp_path / "cases/run1/sub/run4", speed=4)  # inside a case
    second, _ = imported(tmp_path, ranges=ranges)
    assert (second.version, read) == ("v2", ["run3", "run1-sub-run4"])
    for split in ("train", "validation", "test"):
        assert set(first.cases(split)) <= set(second.cases(split))
    again, _ = imported(tmp_path)
    assert (again.version, read) == ("v2", ["run3", "run1-sub-run4"])


def test_copied_files_are_the_same_case_and_changed_ones_are_reported(
    tmp_path, monkeypatch
) -> None:
    for number in (1, 2, 3):
        write_case(tmp_path / f"cases/run{number}", speed=number)
    imported(tmp_path)
    for path in (tmp_path / "cases/run1").rglob("*"):
        os.utime(path, (1e9, 1e9))
    replace_in(tmp_path / "cases/run2/1/p", "(\n1.5", "(\n7.5")
    # Neither where they lie nor the command makes them others.
    (tmp_path / "cases").rename(tmp_path / "moved")
    (tmp_path / "cases").symlink_to(tmp_path / "moved")
    monkeypatch.setattr("sys.argv", ["courant", "dataset", "import", "elsewhere"])
    dataset, skipped = imported(tmp_path, folder=tmp_path / "moved")
    assert dataset.version == "v1"
    assert list(skipped) == ["run2"] and "with other content" in skipped["run2"]
    DatasetWriter.open(dataset.url, dataset.schema).withdraw(["run2"], "it was solved anew")
    dataset, skipped = imported(tmp_path)
    assert skipped == {} and dataset["run2"]["kinematic_pressure"][-1].max() == 7.5
    DatasetWriter.open(dataset.url, dataset.schema).withdraw(["run2"], "a plate is missing")
    dataset, skipped = imported(tmp_path)
    assert "withdrawn (a plate is missing), and its files have not" in skipped["run2"]
    assert "run2" not in dataset.members


def test_quantities_are_measured_on_stored_values_and_kept_with_the_dataset(tmp_path) -> None:
    for number in (1, 2, 3):
        of = write_case(tmp_path / f"cases/run{number}", speed=number, decomposed=number == 2)
        (of / "postProcessing/forces/0").mkdir(parents=True)
        (of / "postProcessing/forces/0/forces.dat").write_text(f"# Time Cd\n0.5 1\n1 {number}\n")
    texts = [
        *("drop=average(p, inlet) - average(p, outlet)", "share=average(U.x, inlet) / speed"),
        *("heat=end(max(T)):K", "drag=end(monitor(forces, Cd))"),
    ]
    dataset, skipped = imported(tmp_path, quantities=texts)
    assert skipped == {}
    stated = [(each.name, each.unit, each.meaning) for each in dataset.schema.quantities]
    assert stated[0] == ("drop", "m2/s2", texts[0].partition("=")[2])
    over = [each.described.rpartition(", ")[2] for each in dataset.schema.quantities]
    assert over == ["mean over the stored times"] * 2 + ["at the last stored time"] * 2
    assert [(name, unit) for name, unit, _ in stated[1:]] == [
        *(("share", ""), ("heat", "K"), ("drag", ""))
    ]
    width = 4 / NX
    for case in dataset:
        speed, faces = case.parameters["speed"], case.boundary
        inlet = faces.points[faces.patch == 0]
        expected = {
            # The outlet has the value of the cells behind it, the inlet one of its own.
            "drop": -speed * (4 - width / 2),
            "share": (0.75 + speed * inlet[:, 1].mean()) / speed,
            "heat": 301 + 4 - width / 2,
            "drag": speed,
        }
        measured = dataset.design.loc[case.id, [*expected]].to_dict()
        assert measured == pytest.approx(expected, rel=1e-5)
    known, reasons = obtainable(dataset.computed, ["kinematic_pressure.p"])
    assert [each.name for each in known] == ["drop"] and "forces" in reasons["drag"]
    for wrong, why in {
        "x=average(p, walls)": "no patch kind 'walls'; there are inlet, outlet, wall",
        "x=average(p, inlet):mbar": "unit m2/s2, not mbar; give a factor too",
        "x=integral(U.x, inlet):m2/s": "unit m2 m/s, not m2/s; give a factor too",
        "x=max(rho)": "no field or component 'rho'",
        "x=max(U):Pa": "its terms have the unit m/s, not Pa",
        "speed=max(U)": "quantity speed is named twice",
        "x=max(U)": "has other quantities: leave --quantity out",
    }.items():
        name = "store" if "has other" in why else "another"
        with pytest.raises(InputError, match=why):
            imported(tmp_path, quantities=[wrong], url=str(tmp_path / name / "foreign"))
    usual, _ = imported(tmp_path, url=str(tmp_path / "usual/foreign"))
    names = [each.name for each in usual.schema.quantities]
    assert names == ["pressure_drop", "max_speed", "outlet_temperature"]


def test_parameters_and_splits_come_from_a_table(tmp_path) -> None:
    for number in (1, 2, 3):
        write_case(tmp_path / f"cases/set/run{number}", speed=number)
    table = tmp_path / "designs.csv"
    table.write_text(
        "case,split,angle (deg),height\nset/run1,train,10,2\nset/run3,test,30,2\n"
        "set/run9,train,1,2\n"
    )
    reader = FoamFolder(fields=FIELDS)
    plan = plan_openfoam(asked(tmp_path, table=read_case_table(table)), reader)
    assert plan.splits == {"set-run1": "train", "set-run3": "test"}
    assert "has no row for it" in plan.skipped[0].reason
    same, lost, _ = plan.notes
    assert same.startswith("height is 2 in all cases") and lost.endswith("these rows: set-run9")
    dataset, _ = imported(tmp_path, reader, table=read_case_table(table))
    table.write_text(table.read_text().replace("(deg)", "(rad)"))
    with pytest.raises(InputError, match="has angle in deg, and here it is in rad"):
        imported(tmp_path, reader, table=read_case_table(table))
    assert [(each.name, each.unit, each.low, each.high) for each in dataset.schema.parameters] == [
        ("angle", "deg", 10.0, 30.0)
    ]
    assert dataset.cases("test") == ["set-run3"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name,x\na,1\n", "no column 'case'"),
        ("case,x\nset/a,1\nset-a,2\n", "there are two rows for set-a"),
        ("case,inlet speed,inlet-speed\na,1,2\n", "two columns that are called inlet_speed"),
        ("case,x\na,fast\n", "line 2: x = 'fast' is no number"),
        ("case,split\na,some\n", "split = 'some', expected train"),
        ("case,x\n", "holds no row"),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path, text, says) -> None:
    (tmp_path / "designs.csv").write_text(text)
    with pytest.raises(InputError, match=says):
        read_case_table(tmp_path / "designs.csv")


def test_limits_judge_as_far_as_logs_allow(tmp_path) -> None:
    def log(courant: float) -> Callable[[Path], object]:
        text = f"Exec   : icoFoam\nnProcs : 2\nTime = 1\nCourant Number mean: 0.1 max: {courant}\n"
        text += "ExecutionTime = 3.5 s  ClockTime = 4 s\nEnd\n"

        def write(directory: Path) -> None:
            (directory / "log.icoFoam").write_text(text)
            later = directory / "log.yPlus"  # is no log of a run
            later.write_text("Exec   : icoFoam -postProcess -func yPlus\nTime = 1\n\nEnd\n")
            os.utime(later, (4e9, 4e9))

        return write

    write_case(tmp_path / "cases/calm", speed=1, change=log(0.5))
    write_case(tmp_path / "cases/wild", speed=2, change=log(7))
    write_case(tmp_path / "cases/silent", speed=3)
    reader = FoamFolder(fields=FIELDS, parameters=SPEED, limits={"courant": 1.0})
    dataset, skipped = imported(tmp_path, reader)
    assert skipped == {"wild": "courant in the log is 7, limit <= 1"}
    assert [gate["value"] for gate in dataset["calm"].gates] == [1, 0.5]
    took = [dataset["calm"].provenance[f"{each}_time_s"] for each in ("wall", "cpu")]
    assert took == [{"solve": 4.0}, {"solve": 7.0}] and dataset.design["wall_time_s"]["calm"] == 4
    assert [gate["name"] for gate in dataset["silent"].gates] == ["solver finished"]
    _, skipped = imported(tmp_path, replace(reader, limits={"courant": 0.4}))
    assert list(skipped) == ["calm", "wild"] and "courant dataset withdraw" in skipped["calm"]


@pytest.mark.parametrize(
    "value",
    ["nonuniform List<vector> 3((1.5 0 0) (1.5 0 0) (1.5 0 0))", "3{(1.5 0 0)}", "#eval{ 2 * 3 }"],
)
def test_a_count_or_a_formula_is_no_parameter(tmp_path, value) -> None:
    """The number of an inlet's faces would pass for its velocity."""
    case = write_case(tmp_path / "a", speed=2.5)
    replace_in(case / "0/U", "uniform (2.5 0 0)", value)
    for index in ("[0]", ""):
        place = DictionaryPlace.parse(f"0/U:boundaryField/inlet/value{index}")
        with pytest.raises(CaseError, match="which is no number: a list of a field's values, or"):
            read_number(case, place)


def test_a_face_of_many_corners_is_read(tmp_path) -> None:
    """OpenFOAM writes long lists in lines of their own."""
    plain = write_case(tmp_path / "cases/run1", speed=1)
    spread = write_case(tmp_path / "cases/run2", speed=2)
    faces = spread / "constant/polyMesh/faces"
    expected = read_faces(plain / "constant/polyMesh/faces", 40)
    text = re.sub(
        r"(?m)^4\(([\d ]+)\)$",
        lambda found: "4\n(\n" + found[1].replace(" ", "\n") + "\n)",
        faces.read_text(),
        count=5,
    )
    faces.write_text(text)
    for ours, theirs in zip(read_faces(faces, 40), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_schemes_of_a_region_say_whether_it_is_steady(tmp_path) -> None:
    case = write_case(tmp_path / "a")
    scheme = b"ddtSchemes { default steadyState; }"
    Form().write(case / "system/fluid/fvSchemes", "dictionary", scheme)
    assert read_control(case, "fluid")[2] is True
    assert read_control(case, "solid")[2] is False
    static = "Euler; } d2dt2Schemes { default steadyState"  # as solidDisplacementFoam has
    for scheme, other in (("Euler", "localEuler rDeltaT"), ("localEuler rDeltaT", static)):
        replace_in(case / "system/fvSchemes", scheme, other)
        assert read_control(case)[2] is True


def test_a_fixed_velocity_of_zero_is_a_wall(tmp_path) -> None:
    """As in cases from before noSlip, whose meshes have patches of type patch only."""
    path = tmp_path / "U"
    entries = {"floor": "uniform ( 0.0  -0 0e+00)", "lid": "uniform (1 0 0)"}
    patches = "".join(f"{n} {{ type fixedValue; value {v}; }}\n" for n, v in entries.items())
    path.write_text(f"internalField uniform (0 0 0);\nboundaryField {{ {patches} }}\n")
    velocity = velocity_conditions(path, dict.fromkeys(entries, PatchRange("patch", 0, 1)))
    kinds = {name: patch_kind(name, "patch", velocity[name], {}) for name in entries}
    assert kinds == {"floor": "wall", "lid": "inlet"}


def test_a_part_without_faces_of_a_wall_does_not_make_it_an_inlet(tmp_path) -> None:
    """Of a decomposed case; its list of values there is empty."""
    case = write_case(tmp_path / "cases/one", decomposed=True)
    boundary = (case / "processor1/constant/polyMesh/boundary").read_text()
    assert re.search(r"inlet \{[^}]*nFaces 0;", boundary)
    for path in (path for path in case.glob("processor*/**/*") if path.is_file()):
        value = "uniform (0 0 0)" if "processor0" in path.parts else "nonuniform List<vector> 0()"
        text = path.read_text().replace("inlet", "body")
        if path.name == "U":
            text = re.sub(r"(type fixedValue;\s*value )[^;]*;", rf"\1{value};", text)
        path.write_text(text)
    (found,) = plan_openfoam(asked(tmp_path), FoamFolder(fields=FIELDS)).cases
    assert found.kind_of["body"] == "wall"


def test_times_that_are_passed_over_are_left_out_by_name(tmp_path) -> None:
    def objects(directory: Path) -> None:
        (directory / "0.25/uniform/functionObjects").mkdir(parents=True)
        (directory / "0.75").mkdir()
        shutil.copy(directory / "0.5/p", directory / "0.75/yPlus")

    for number, decomposed in enumerate((False, True), start=1):
        case = write_case(tmp_path / f"cases/run{number}", speed=number, decomposed=decomposed)
        objects(case / "processor0" if decomposed else case)  # which the first process alone writes
    # The first of four times was put together, then removed from the parts.
    write_case(case, speed=2, times=("0.125",))
    shutil.copytree(tmp_path / "cases/run1/0.5", tmp_path / "cases/run1/-0.5")
    reasons = {each.case: each.reason for each in plan_openfoam(asked(tmp_path), READER).left_out}
    times = "times before 0 or without U or p or T in"
    assert reasons == {
        "run1": f"{times} the case itself: -0.5, 0.25, 0.75",
        "run2": f"{times} its processors: 0.125, 0.25, 0.75",
    }
    dataset, skipped = imported(tmp_path)
    assert skipped == {}
    for case in dataset:
        check_values(case, case.parameters["speed"], [0.5, 1.0])


def test_irregular_times_are_noted_and_an_interval_makes_them_regular(tmp_path) -> None:
    """Fields are linear in time here, so that what is interpolated has its exact value."""
    write_case(tmp_path / "cases/run1", speed=1, times=("0.25", "0.5", "1"))
    write_case(tmp_path / "cases/run2", speed=2, times=("0.25", "0.5", "0.75", "1"))
    note, _ = plan_openfoam(asked(tmp_path), READER).notes
    assert "0.25 s (run1) to 0.5 s (run1)" in note and "--interval" in note
    reader = replace(READER, interval=0.25)
    assert "--interval" not in "".join(plan_openfoam(asked(tmp_path), reader).notes)
    dataset, skipped = imported(tmp_path, reader)
    assert skipped == {}
    for case in dataset:
        check_values(case, case.parameters["speed"], [0.25, 0.5, 0.75, 1.0])
    with pytest.raises(InputError, match="less than the interval of 3"):
        plan_openfoam(asked(tmp_path), replace(READER, interval=3.0))


def test_the_last_cell_of_a_mesh_may_own_no_face(tmp_path) -> None:
    mesh = box()
    inside = tuple(each for each in mesh.faces if each[1] != mesh.num_cells - 1)
    write_mesh(tmp_path, replace(mesh, faces=inside), Form())
    assert len(read_geometry(tmp_path).volumes) == mesh.num_cells


TRICKY = """
FoamFile { version 2.0; format ascii; class dictionary; object tricky; }
nu 1e-5; /* the first one */
mu $nu;
nu 2e-5; // 3e-5 was too much
base { a 1; deep { x 4; } }
sub { a 5; c 6; }
sub { c 7; }
#include "extra"
other { a 9; inner { val $a; up $nu; dot $:base.deep.x; top $:sub.a; } }
k 5;
rho 3; // comment 5
last $viscosity;;
twice { a 3; }
twice { b $mu; c $k; }
k 6;
"""
PLACES = [
    "nu", "mu", "sub/a", "sub/b", "sub/c", "other/a", "other/inner/val", "other/inner/up",
    "other/inner/dot", "other/inner/top", "rho", "last", "twice/a", "twice/b", "twice/c", "k",
]  # fmt: skip


def test_entries_are_those_that_openfoam_reads(tmp_path) -> None:
    (tmp_path / "extra").write_text("viscosity 7e-6;\nsub { b 12; }\n")
    tricky = tmp_path / "tricky"
    tricky.write_text(TRICKY)
    find_openfoam(["foamDictionary"])
    for place in PLACES:
        command = ["foamDictionary", str(tricky), "-entry", place.replace("/", "."), "-value"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = read_entry(tricky, place.split("/"))
        assert found is not None and float(found) == float(printed), place


def test_what_comes_from_elsewhere_is_reported_where_an_entry_is_not_found(tmp_path) -> None:
    (tmp_path / "a").write_text('#includeEtc "caseDicts/setup"\nsub { #calc "x"\n b 1; }\nc $d;\n')

    def number(entry: str) -> float:
        return read_number(tmp_path, DictionaryPlace.parse(f"a:{entry}"))

    assert number("sub/b") == 1
    assert read_entry(tmp_path / "a", ["nu"]) is None
    with pytest.raises(
        CaseError, match='no nu; there are sub, c; #includeEtc "caseDicts/setup" is'
    ):
        number("nu")
    with pytest.raises(CaseError, match='sub has no x; there are b; #calc "x" is not read'):
        number("sub/x")
    with pytest.raises(CaseError, match=r"c refers to \$d, which is not there"):
        number("c")
    (tmp_path / "a").write_text('#include "a"\nnu 1;\n')
    with pytest.raises(CaseError, match="includes itself"):
        number("nu")


@pytest.mark.parametrize(
    ("text", "directive"),
    [
        ("x 1; #ifeq $x 1\nnu 1;\n#else\nnu 2;\n#endif\n", "#ifeq"),
        ("nu 3;\n#remove nu\n", "#remove nu"),
        ('nu 3;\n#remove "n.*"\n', '#remove "n.*"'),
        ("#inputMode protect\nnu 1; nu 2;\n", "#inputMode protect"),
        ("n nu;\nnu 1;\n$n 2;\n", "$n 2"),
        ("base { nu 2; }\nnu 1;\n$base\n", "$base"),
    ],
)
def test_an_entry_that_may_not_count_is_no_parameter(tmp_path, text, directive) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(CaseError, match=re.escape(f"has {directive}")):
        read_number(tmp_path, DictionaryPlace.parse("a:nu"))
    assert read_entry(tmp_path / "a", ["nu"]) is None
