"""The gates that every solved case passes, and cases that are damaged before they are judged."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from simgen.case import CaseFamily, Field, Gate, SolvedCase
from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.errors import CaseError, MeshError
from simgen.foam.field import check_sizes, read_field
from simgen.foam.mesh import read_boundary
from simgen.solving import gates
from simgen.solving import solve_case as solving
from simgen.solving.convert import convert
from simgen.solving.gates import AskedTimes, check_fields, check_patches, judge, rejection
from simgen.solving.solve_case import solve_case
from tests.imports.foam_cases import box, replace_in, write_case
from tests.simgen.lid_cavity import LidCavity
from tests.store.conftest import FAMILY, make_result

#: A case of 6 s, solved to its end with a snapshot a second.
GOOD = {"solver_finished": 1.0, "last_time": 6.0, "num_snapshots": 6.0, "first_stored_time": 1.0}
GOOD |= dict.fromkeys(("not_finite", "mesh_files_changed", "asked_times_missing"), 0.0)
GOOD |= {"max_courant": 0.5, "mass_imbalance": 1e-6}
GOOD |= {"max_non_orthogonality": 20.0, "failed_checks": 0.0}


def failed(**changed: float) -> list[str]:
    case = SolvedCase(make_result(0).point, Path("unread"))
    judged = judge(FAMILY, case, {**GOOD, **changed})
    assert rejection(judged).count("limit") == sum(not gate.passed for gate in judged)
    return [gate.name for gate in judged if not gate.passed]


def test_a_case_that_came_to_its_end_passes() -> None:
    assert failed() == []


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"solver_finished": 0.0}, "solver finished"),
        ({"last_time": 5.0}, "solver finished"),
        ({"not_finite": 1.0}, "values not finite"),
        ({"not_finite": float("nan")}, "values not finite"),
        ({"num_snapshots": 5.0}, "number of stored times"),
        ({"num_snapshots": 7.0}, "number of stored times"),
        ({"first_stored_time": 2.0}, "first stored time"),
        ({"first_stored_time": 0.5}, "first stored time"),
        ({"asked_times_missing": 1.0}, "asked times not stored"),
        ({"mesh_files_changed": 1.0}, "mesh files changed while it was solved"),
        ({"failed_checks": 1.0}, "mesh checks failed"),
        ({"max_non_orthogonality": 80.0}, "mesh non-orthogonality"),
        ({"max_courant": 1e3}, "maximum Courant number"),
        ({"mass_imbalance": 0.1}, "mass imbalance, inlet against outlet"),
    ],
)
def test_each_fault_fails_its_gate_alone(changed: dict[str, float], name: str) -> None:
    assert failed(**changed) == [name]
    assert Gate.at_most("angle", 70.0, 70).passed and not Gate.at_most("angle", 70.1, 70).passed


def test_a_steady_case_without_its_last_iteration_fails_its_gate() -> None:
    steady = LidCavity()
    point = steady.point({"height": 1.0, "lid_velocity": 1.0}, steady.settings("trial"))
    judged = judge(steady, SolvedCase(point, Path("unread")), {**GOOD, "asked_times_missing": 1.0})
    assert rejection(judged) == "last iterations not stored is 1, limit <= 0"


@pytest.mark.parametrize("outflow", [0.9, 1.1])
def test_mass_that_vanishes_counts_like_mass_that_appears(outflow: float) -> None:
    flux = {"in": np.array([-0.5, -0.5]), "out": np.array([0.5, 0.0]), "wall": np.array([7.0])}
    flux["top"] = np.array([outflow - 0.5])
    kinds = {"in": "inlet", "out": "outlet", "wall": "wall", "top": "farfield"}
    assert gates.mass_imbalance(flux, kinds) == pytest.approx(0.1)
    still = {name: 0 * values for name, values in flux.items()}
    assert np.isnan(gates.mass_imbalance(still, kinds))


VELOCITY = Field("velocity", "m/s", ("x", "y"), openfoam="U")
TEMPERATURE = Field("temperature", "K", ("T",), openfoam="T")
PATCHES = {"inlet": "inlet", "outlet": "outlet", "walls": "wall"}
NUM_CELLS = box().num_cells


def family(*fields: Field, transient: bool = True) -> CaseFamily:
    made = SimpleNamespace(name="box", fields=fields, patches=PATCHES, transient=transient)
    return cast(Any, made)


BOX = family(VELOCITY, TEMPERATURE)


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return write_case(tmp_path / "case", times=("0.5", "1", "1.5"))


def test_fields_of_every_time_are_read(case: Path) -> None:
    assert check_fields(BOX, case, NUM_CELLS) == 0
    replace_in(case / "1/T", "301.5", "nan")
    assert check_fields(BOX, case, NUM_CELLS) == 1
    replace_in(case / "0.5/U", "(1.0 0.05 0.0)", "(1e39 0.05 0.0)")
    assert check_fields(BOX, case, NUM_CELLS) == 2, "single precision has no 1e39"
    assert check_fields(family(VELOCITY, TEMPERATURE, transient=False), case, NUM_CELLS) == 0


def test_values_on_patches_are_looked_at(case: Path) -> None:
    text = (case / "1/T").read_text()
    at = text.index("(\n", text.index("boundaryField")) + 2
    end = text.index("\n", at)
    (case / "1/T").write_text(text[:at] + "nan" + text[end:])
    assert check_fields(BOX, case, NUM_CELLS) == 1
    (case / "1/T").write_text(text[:end] + "\n" + text[at:])
    with pytest.raises(CaseError):
        check_fields(BOX, case, NUM_CELLS)


def test_a_field_of_another_size_or_kind_is_named(case: Path) -> None:
    with pytest.raises(CaseError, match=f"has values for {NUM_CELLS} cells, not 13"):
        check_fields(BOX, case, 13)
    velocity = read_field(case / "1/U")
    patches = read_boundary(case / "constant/polyMesh/boundary")
    wider = {name: replace(patch, size=patch.size + 1) for name, patch in patches.items()}
    with pytest.raises(CaseError, match="values on the 4 faces of the patch inlet"):
        check_sizes(case / "1/U", velocity, NUM_CELLS, wider, ["inlet"])
    stress = Field("stress", "Pa", ("xx", "xy"), openfoam="U")
    with pytest.raises(CaseError, match="U has the components x, y, z, not xx, xy"):
        check_fields(family(stress), case, NUM_CELLS)
    replace_in(case / "1/U", "walls", "sides")
    with pytest.raises(CaseError, match="no entry for the patch walls"):
        check_fields(BOX, case, NUM_CELLS)
    (case / "1/T").unlink()
    with pytest.raises(CaseError, match="1/T"):
        check_fields(family(TEMPERATURE), case, NUM_CELLS)


def test_what_was_not_stored_and_meshes_of_single_times_are_counted(case: Path) -> None:
    settings = {"end": 2.0, "interval": 0.5, "step": 0.1}
    point: Any = SimpleNamespace(settings=settings)
    timed = vars(BOX) | {"horizon": "end", "snapshot_interval": "interval", "time_step": "step"}
    transient = cast(Any, SimpleNamespace(**timed))

    def found(of: CaseFamily, solver_time: float = 1.5) -> list[float]:
        return list(gates.completeness(of, SolvedCase(point, case), solver_time).values())

    # Stored times, the first and the last of them, those that are missing, meshes.
    assert found(transient) == [3, 0.5, 1.5, 1, 0]
    steady = family(VELOCITY, transient=False)
    assert [gates.stored_times(each, case)[0][0] for each in (BOX, steady)] == [0.5, 1.5]
    assert (found(steady)[3], found(steady, 1.6)[3]) == (0, 1)
    shutil.copytree(case / "constant/polyMesh", case / "1/polyMesh")
    assert found(steady)[4] == 1
    for time in case.glob("[0-9]*"):
        shutil.rmtree(time)
    assert (found(steady)[0], found(steady)[2]) == (0, 0)


@pytest.mark.parametrize(
    ("stored", "missing"),
    [([1, 2, 3, 4], []), ([0.8, 2.2, 3, 3.8], []), ([4, 1.2, 2.3], [2, 3]), ([1], [2, 3, 4]),
     ([4], [1, 2, 3]), ([], [1, 2, 3, 4])],
)  # fmt: skip
def test_times_that_no_stored_one_meets_are_missing(
    stored: list[float], missing: list[float]
) -> None:
    asked = AskedTimes(np.arange(1.0, 5.0), 0.25)
    assert asked.missing(stored).tolist() == missing


CYLINDER = get_family("cylinder-flow")


def cylinder(radius: float = 1.5, **settings: float) -> DesignPoint:
    design = {"radius": radius, "center_x": 0.0, "center_y": 0.0}
    point = CYLINDER.point(design, CYLINDER.settings("trial"))
    return replace(point, settings={**point.settings, "mesh_size": 2.0, **settings})


def remove(*times: str) -> Callable[[Path], None]:
    return lambda directory: [shutil.rmtree(directory / time) for time in times] and None


def shorten(directory: Path) -> None:
    """Leave a field's first half, as a full disk or a killed writer does."""
    os.truncate(directory / "4/U", (directory / "4/U").stat().st_size // 2)


@pytest.mark.openfoam
@pytest.mark.parametrize(
    ("damage", "reason"),
    [(remove("3"), "asked times not stored is 1"), (shorten, "4/U is cut short")],
)
def test_a_case_that_is_damaged_before_it_is_judged_is_not_accepted(
    damage, reason, tmp_path, monkeypatch
):
    run_solver = solving.run_solver

    def run_and_damage(application, directory, *arguments, **options):
        ended = run_solver(application, directory, *arguments, **options)
        damage(directory)
        return ended

    monkeypatch.setattr(solving, "run_solver", run_and_damage)
    result = solve_case(cylinder(end_time=6.0), tmp_path)
    assert result.status in ("rejected", "failed") and reason in result.reason


@pytest.mark.openfoam
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (remove("3"), "has lost times"),
        (shorten, "/4/U is cut short"),
        (remove(*map(str, range(1, 13))), "holds no solved time"),
    ],
)
def test_what_a_solved_case_loses_before_its_conversion_is_named(solved, tmp_path, damage, problem):
    shutil.copytree(solved.directory, tmp_path / "case")
    damage(tmp_path / "case")
    with pytest.raises(CaseError, match=problem):
        convert(SolvedCase(solved.point, tmp_path / "case"))


@pytest.mark.openfoam
@pytest.mark.parametrize(
    ("time_step", "interval", "status"), [(0.3, 1.0, "accepted"), (1.0, 0.5, "rejected")]
)
def test_a_snapshot_is_stored_at_the_step_nearest_to_the_time_asked_for(
    time_step, interval, status, tmp_path
):
    # 10 s are no multiple of 0.3 s. The family would not take the second step and interval.
    point = cylinder(end_time=10.0, radius=4.0, time_step=time_step, snapshot_interval=interval)
    result = solve_case(point, tmp_path)
    assert result.status == status, result.reason
    if status == "rejected":
        assert "number of stored times is 10, limit = 20" in result.reason


def test_a_mesh_without_a_patch_or_its_faces_is_an_error(tmp_path: Path) -> None:
    mesh = tmp_path / "constant/polyMesh"
    mesh.mkdir(parents=True)
    for lacking, faces, problem in (
        ("cylinder", {"cylinder": 0}, "no face on the patch cylinder"),
        ("outlet", {}, "lacks the patch outlet"),
    ):
        sizes = {name: 3 for name in CYLINDER.patches if name != lacking} | faces
        entries = (f"{name} {{type patch; nFaces {n}; startFace 0;}}" for name, n in sizes.items())
        (mesh / "boundary").write_text(f"FoamFile {{}}\n{len(sizes)}\n({' '.join(entries)})\n")
        with pytest.raises(MeshError, match=problem):
            check_patches(CYLINDER, tmp_path)


def test_without_a_stored_flux_nothing_is_balanced() -> None:
    patches = {"in": "inlet", "out": "outlet"}  # rhoCentralFoam writes no phi
    assert np.isnan(gates.mass_imbalance({}, patches)) and np.isnan(gates.back_flow({}, patches))
