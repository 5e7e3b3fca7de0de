"""The acceptance gates: figures measured on a solved case, each held against a limit.

A rejected case says which gate, which figure and which limit. Checks that hold for every solver stand here; a
family adds its own in `CaseFamily.gates`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simgen.case import CaseFamily, Gate, SolvedCase
from simgen.completeness import check_fields, completeness_figures, completeness_gates
from simgen.foam.field import FoamField, read_field, time_directories
from simgen.foam.log import SolverLog


def measure(
    family: CaseFamily,
    case: SolvedCase,
    mesh: Mapping[str, float],
    mesh_files: Mapping[str, str],
    log: SolverLog,
) -> dict[str, float]:
    """Figures of a solved case: the mesh's, the solver's, what is stored, and the last fields'.

    `mesh_files` holds the digests of the mesh's files from before the solver ran. Raises CaseError
    where files of a stored time are missing, damaged or not of the mesh's size.
    """
    check_fields(family, case.directory, int(mesh["num_cells"]))
    times = time_directories(case.directory)
    last_time, last = times[-1] if times else (0.0, case.directory / "0")
    fields = {field.name: read_field(last / field.openfoam) for field in family.fields}
    flux = read_field(last / "phi")
    not_finite = sum(int(np.count_nonzero(~np.isfinite(field.internal))) for field in fields.values())
    return {
        **mesh,
        "max_courant": log.max_courant,
        "continuity_error": log.last_continuity_error,
        "solver_finished": float(log.finished),
        "last_time": last_time,
        "num_snapshots": float(len(times)),
        "not_finite": float(not_finite),
        "mass_imbalance": mass_imbalance(flux, family.patches),
        "back_flow": back_flow(flux, family.patches),
        **completeness_figures(family, case, mesh_files, log.time),
        **family.figures(case, log),
    }


def mass_imbalance(flux: FoamField, patches: Mapping[str, str]) -> float:
    """|net flux| / inflow over the inlets and outlets; NaN where nothing flows in."""
    openings = [flux.boundary[patch].sum() for patch, kind in patches.items() if kind in ("inlet", "outlet")]
    inflow = -sum(total for total in openings if total < 0)
    return float(abs(sum(openings)) / inflow) if inflow > 0 else float("nan")


def back_flow(flux: FoamField, patches: Mapping[str, str]) -> float:
    """What enters through faces of the outlets, over the inlets' flow; NaN where nothing flows in."""
    of_kind = {
        kind: [flux.boundary[patch] for patch in patches if patches[patch] == kind] for kind in ("inlet", "outlet")
    }
    inflow = -sum(float(values.sum()) for values in of_kind["inlet"])
    entering = -sum(float(np.minimum(values, 0).sum()) for values in of_kind["outlet"])
    return max(0.0, entering) / inflow if inflow > 0 else float("nan")


def judge(family: CaseFamily, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
    """All gates of a solved case, the common ones first. A figure that is NaN passes no gate."""
    end = case.point.settings[family.horizon]
    reached = figures["last_time"] >= end * (1 - 1e-9)
    finished = bool(figures["solver_finished"])
    common = [
        Gate("solver finished", figures["last_time"], f"End, and >= {end:g}", finished and reached, "s")
        # A steady solver may end earlier, where its residuals have reached their target.
        if family.transient
        else Gate("solver finished", figures["last_time"], "End", finished, "iterations"),
        Gate.at_most("values not finite", figures["not_finite"], 0),
        *completeness_gates(family, case.point.settings, figures),
    ]
    return common + family.gates(case, figures)


def rejection(gates: list[Gate]) -> str:
    """One line that names the gates that failed; empty where all passed."""
    return "; ".join(
        f"{gate.name} is {gate.value:.4g}{' ' + gate.unit if gate.unit else ''}, limit {gate.limit}"
        for gate in gates
        if not gate.passed
    )
