"""The gates that every solved case passes, and the figures that they judge."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from simgen.case import CaseFamily, Field, Gate, SolvedCase
from simgen.errors import CaseError
from simgen.solving.gates import (
    AskedTimes,
    check_fields,
    completeness,
    judge,
    mass_imbalance,
    mesh_digests,
    rejection,
    stored_times,
)
from tests.imports.foam_cases import box, write_case
from tests.store.conftest import FAMILY, make_result

#: A case of 6 s, solved to its end with a snapshot a second.
GOOD = {
    "solver_finished": 1.0,
    "last_time": 6.0,
    "not_finite": 0.0,
    "mesh_files_changed": 0.0,
    "num_snapshots": 6.0,
    "first_stored_time": 1.0,
    "asked_times_missing": 0.0,
    "max_courant": 0.5,
    "mass_imbalance": 1e-6,
    "max_non_orthogonality": 20.0,
    "failed_checks": 0.0,
}


def failed(**changed: float) -> list[str]:
    case = SolvedCase(make_result(0).point, Path("unread"))
    gates = judge(FAMILY, case, {**GOOD, **changed})
    assert rejection(gates).count("limit") == sum(not gate.passed for gate in gates)
    return [gate.name for gate in gates if not gate.passed]


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


@pytest.mark.parametrize("outflow", [0.9, 1.1])
def test_mass_that_vanishes_counts_like_mass_that_appears(outflow: float) -> None:
    flux = {"in": np.array([-0.5, -0.5]), "out": np.array([outflow, 0.0]), "wall": np.array([7.0])}
    kinds = {"in": "inlet", "out": "outlet", "wall": "wall"}
    assert mass_imbalance(flux, kinds) == pytest.approx(0.1)
    still = {name: 0 * values for name, values in flux.items()}
    assert np.isnan(mass_imbalance(still, kinds))


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


def replace_in(path: Path, old: str, new: str, count: int = 1) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))


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
    # One value of a whole patch is enough.
    head, _, inlet = text.partition("value nonuniform List<scalar> ")
    (case / "1/T").write_text(f"{head}value uniform 300;\n{inlet.partition(';')[2]}")
    assert check_fields(BOX, case, NUM_CELLS) == 0


def test_a_field_of_another_size_or_kind_is_named(case: Path) -> None:
    with pytest.raises(CaseError, match=f"has values for {NUM_CELLS} cells, the mesh has 13"):
        check_fields(BOX, case, 13)
    stress = Field("stress", "Pa", ("xx", "xy"), openfoam="U")
    with pytest.raises(CaseError, match="U has the components x, y, z: the field stress cannot"):
        check_fields(family(stress), case, NUM_CELLS)
    replace_in(case / "1/U", "walls", "sides")
    with pytest.raises(CaseError, match="no entry for the patch walls"):
        check_fields(BOX, case, NUM_CELLS)
    (case / "1/T").unlink()
    with pytest.raises(CaseError, match="1/T"):
        check_fields(family(TEMPERATURE), case, NUM_CELLS)


def test_what_was_not_stored_is_counted_and_each_file_of_the_mesh_is_watched(case: Path) -> None:
    meshed, settings = mesh_digests(case), {"end": 2.0, "interval": 0.5, "step": 0.1}
    point: Any = SimpleNamespace(settings=settings)
    timed = vars(BOX) | {"horizon": "end", "snapshot_interval": "interval", "time_step": "step"}
    transient = cast(Any, SimpleNamespace(**timed))
    found = completeness(transient, SolvedCase(point, case), meshed, 1.5)
    assert found == {
        "num_snapshots": 3.0,
        "first_stored_time": 0.5,
        "last_time": 1.5,
        "asked_times_missing": 1.0,
        "mesh_files_changed": 0.0,
    }
    steady = family(VELOCITY, transient=False)
    assert [stored_times(each, case)[0][0] for each in (BOX, steady)] == [0.5, 1.5]
    for solver_time, missing in ((1.5, 0.0), (1.6, 1.0)):
        found = completeness(steady, SolvedCase(point, case), meshed, solver_time)
        assert found["asked_times_missing"] == missing
    for number, name in enumerate(meshed, start=1):
        replace_in(case / "constant/polyMesh" / name, "1", "2")
        found = completeness(steady, SolvedCase(point, case), meshed, 1.5)
        assert found["mesh_files_changed"] == number


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
    assert bool(asked.problem(stored)) == bool(missing)
    assert "holds 5 stored times, its settings ask for 4" in asked.problem([*asked.times, 4.2])
