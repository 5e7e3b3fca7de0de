"""Judge solved cases: complete, and each figure measured on a case within its limit.

Checks for every solver are here; a family adds its own in `CaseFamily.gates`. A case is complete
with every time that was asked for and every value, on one mesh.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from simgen.case import OPENINGS, CaseFamily, Gate, SolvedCase
from simgen.case_description import has_file
from simgen.errors import CaseError, MeshError
from simgen.foam.field import check_sizes, columns_of, read_field, read_flux
from simgen.foam.log import SolverLog
from simgen.foam.mesh import moved_meshes, read_boundary, time_directories
from simgen.point_cloud import point_tree


def measure(
    family: CaseFamily, case: SolvedCase, mesh: Mapping[str, float], log: SolverLog
) -> dict[str, float]:
    """Measure the figures of a solved case: mesh, solver, stored times and their fields.

    CaseError as `check_fields`.
    """
    not_finite = check_fields(family, case.directory, int(mesh["num_cells"]))
    own = family.figures(case, log)
    if lacking := [each.name for each in family.quantities if each.name not in own]:
        raise LookupError(
            f"figures of {family.name} lack {', '.join(lacking)}, which its quantities declare"
        )
    opens = OPENINGS & set(family.patches.values())
    # Solvers of conserved variables, such as rhoCentralFoam, write no flux; NaN passes no gate.
    times = time_directories(case.directory)
    stored = bool(opens and times) and has_file(times[-1][1] / "phi")
    flux = read_flux(case.directory).boundary if stored else {}
    return {
        **mesh,
        "max_courant": log.max_courant,
        "continuity_error": log.last_continuity_error,
        "solver_finished": float(log.finished),
        "not_finite": float(not_finite),
        "mass_imbalance": mass_imbalance(flux, family.patches),
        "back_flow": back_flow(flux, family.patches),
        **completeness(family, case, log.time),
        **own,
    }


def completeness(family: CaseFamily, case: SolvedCase, solver_time: float) -> dict[str, float]:
    """Measure how far what a case stores departs from what was asked."""
    directory = case.directory
    times = [time for time, _ in time_directories(directory)]
    missing = 0
    if family.transient:
        missing = len(AskedTimes.of(family, case.point.settings).missing(times))
    elif times[-1:] != [solver_time]:
        missing = 1
    return {
        "num_snapshots": float(len(times)),
        "first_stored_time": times[0] if times else float("nan"),
        "last_time": times[-1] if times else 0.0,
        "asked_times_missing": float(missing),
        "mesh_files_changed": float(len(moved_meshes(directory))),
    }


def mass_imbalance(flux: Mapping[str, np.ndarray], patches: Mapping[str, str]) -> float:
    """Return |net flux| / inflow over all that is flown through; NaN where nothing flows in."""
    flown_through = {*OPENINGS, "farfield", "open"}
    openings = [flux[patch].sum() for patch in flux if patches.get(patch) in flown_through]
    inflow = -sum(total for total in openings if total < 0)
    return float(abs(sum(openings)) / inflow) if inflow > 0 else float("nan")


def back_flow(flux: Mapping[str, np.ndarray], patches: Mapping[str, str]) -> float:
    """Return the inflow through faces of the outlets over the inlets' flow; NaN without inflow."""
    of_kind = {kind: [flux[at] for at in flux if patches.get(at) == kind] for kind in OPENINGS}
    inflow = -sum(float(values.sum()) for values in of_kind["inlet"])
    entering = -sum(float(np.minimum(values, 0).sum()) for values in of_kind["outlet"])
    return max(0.0, entering) / inflow if inflow > 0 else float("nan")


def judge(family: CaseFamily, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
    """Return all gates of a solved case, the common ones first; NaN passes no gate."""
    settings, last = case.point.settings, figures["last_time"]
    finished, missing = bool(figures["solver_finished"]), figures["asked_times_missing"]
    if family.transient:
        asked = AskedTimes.of(family, settings)
        end, interval = settings[family.horizon], settings[family.snapshot_interval]
        number, first = figures["num_snapshots"], figures["first_stored_time"]
        within, count = f"{interval:g} +- {asked.tolerance:g}", len(asked.times)
        # Steps that do not divide the time end within half of one.
        finished = finished and last >= end - asked.tolerance
        times = [
            Gate("solver finished", last, f"End, and >= {end:g}", finished, "s"),
            Gate("number of stored times", number, f"= {count}", number == count),
            Gate("first stored time", first, within, abs(first - interval) <= asked.tolerance, "s"),
            Gate.at_most("asked times not stored", missing, 0),
        ]
    else:
        times = [  # it may end early, where its residuals have reached their target
            Gate("solver finished", last, "End", finished, "iterations"),
            Gate.at_most("last iterations not stored", missing, 0),
        ]
    return [
        *times,
        Gate.at_most("values not finite", figures["not_finite"], 0),
        Gate.at_most("mesh files changed while it was solved", figures["mesh_files_changed"], 0),
        *family.gates(case, figures),
    ]


def rejection(gates: list[Gate]) -> str:
    """Name the gates that failed in one line; empty where all passed."""
    return "; ".join(
        f"{gate.name} is {gate.value:.4g}{' ' + gate.unit if gate.unit else ''}, limit {gate.limit}"
        for gate in gates
        if not gate.passed
    )


@dataclass(frozen=True)
class AskedTimes:
    """The times (s) that a transient solve has to store, each within `tolerance`."""

    times: np.ndarray
    tolerance: float

    @classmethod
    def of(cls, family: CaseFamily, settings: Mapping[str, float]) -> Self:
        """List multiples of the snapshot interval; a solver stores at the nearest step."""
        interval, step = settings[family.snapshot_interval], settings[family.time_step]
        # 60 s over an interval of 0.1 s is 599.99... in floating point.
        number = int(settings[family.horizon] / interval + 1e-6)
        return cls(interval * np.arange(1, number + 1), 0.5 * step * (1 + 1e-6))

    def missing(self, stored: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the times asked for that no stored one meets."""
        tree = point_tree(np.asarray(stored, dtype=float).reshape(-1, 1))
        distance, _ = tree.query(self.times[:, None])
        return self.times[distance > self.tolerance]


def check_patches(family: CaseFamily, directory: Path) -> None:
    """Raise MeshError where the mesh lacks a patch of the family, or the faces of a patch kind."""
    found = read_boundary(directory / "constant/polyMesh/boundary")
    if missing := [patch for patch in family.patches if patch not in found]:
        raise MeshError(f"the mesh lacks the patch {', '.join(missing)} of {family.name}")
    for kind in family.patch_kinds:
        of_kind = [patch for patch, of in family.patches.items() if of == kind]
        if not any(found[patch].size for patch in of_kind):
            faces = f"no face on the patch {', '.join(of_kind)}"
            raise MeshError(f"the mesh has {faces}: there is no distance to {kind}")


def check_fields(family: CaseFamily, directory: Path, num_cells: int) -> int:
    """Count the values that are not finite in single precision, in cells and on patches.

    Raises CaseError for a file that is absent, damaged or of another size.
    """
    patches, not_finite = read_boundary(directory / "constant/polyMesh/boundary"), 0
    for _, time in stored_times(family, directory):
        for field in family.fields:
            path = time / field.openfoam
            if not has_file(path):
                raise CaseError(f"{path}: the solver writes no {path.name}")
            values = read_field(path)
            check_sizes(path, values, num_cells, patches, family.patches)
            columns_of(path, field.components, values)
            on_patches = [values.boundary[p] for p in family.patches if p in values.boundary]
            for each in (values.internal, *on_patches):
                with np.errstate(over="ignore"):
                    not_finite += int(np.count_nonzero(~np.isfinite(each.astype("f4"))))
    return not_finite


def stored_times(family: CaseFamily, directory: Path) -> list[tuple[float, Path]]:
    """Return the times for the dataset: all of a transient case, the last of a steady one."""
    times = time_directories(directory)
    return times if family.transient else times[-1:]
