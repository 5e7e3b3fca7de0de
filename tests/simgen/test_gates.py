"""The gates that every solved case passes, and the figures that they judge."""

from pathlib import Path

import numpy as np
import pytest

from simgen.case import Gate, SolvedCase
from simgen.solving.gates import judge, mass_imbalance, rejection
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


def test_a_gate_holds_at_its_limit() -> None:
    assert Gate.at_most("angle", 70.0, 70).passed and not Gate.at_most("angle", 70.1, 70).passed


@pytest.mark.parametrize("outflow", [0.9, 1.1])
def test_mass_that_vanishes_counts_like_mass_that_appears(outflow: float) -> None:
    flux = {"in": np.array([-0.5, -0.5]), "out": np.array([outflow, 0.0]), "wall": np.array([7.0])}
    kinds = {"in": "inlet", "out": "outlet", "wall": "wall"}
    assert mass_imbalance(flux, kinds) == pytest.approx(0.1)
    still = {name: 0 * values for name, values in flux.items()}
    assert np.isnan(mass_imbalance(still, kinds))
