"""Judge solved cases: figures measured on a case, each held against a limit.

A rejected case says which gate, which figure and which limit. Checks for every solver are here; a
family adds its own in `CaseFamily.gates`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simgen.case import CaseFamily, Gate, SolvedCase
from simgen.foam.field import read_flux
from simgen.foam.log import SolverLog
from simgen.foam.mesh_files import time_directories
from simgen.solving.completeness import (
    AskedTimes,
    check_fields,
    completeness_figures,
    completeness_gates,
)

#: Kinds of patches that fluid flows through; a family without any has no flux.
OPENINGS = {"inlet", "outlet"}


def measure(
    family: CaseFamily,
    case: SolvedCase,
    mesh: Mapping[str, float],
    mesh_files: Mapping[str, str],
    log: SolverLog,
) -> dict[str, float]:
    """Measure the figures of a solved case: mesh, solver, stored times and their fields.

    `mesh_files` holds the digests of the mesh's files from before the solver ran. Raises CaseError
    where files of a stored time are missing, damaged or not of the mesh's size.
    """
    not_finite = check_fields(family, case.directory, int(mesh["num_cells"]))
    times = time_directories(case.directory)
    last_time = times[-1][0] if times else 0.0
    opens = OPENINGS & set(family.patches.values())
    flux = read_flux(case.directory).boundary if opens else {}
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
        **_own_figures(family, case, log),
    }


def _own_figures(family: CaseFamily, case: SolvedCase, log: SolverLog) -> dict[str, float]:
    """Return the family's figures, which hold every quantity that it declares."""
    figures = family.figures(case, log)
    lacking = [each.name for each in family.quantities if each.name not in figures]
    if lacking:
        raise LookupError(
            f"figures of {family.name} lack {', '.join(lacking)}, which its quantities declare"
        )
    return figures


def mass_imbalance(flux: Mapping[str, np.ndarray], patches: Mapping[str, str]) -> float:
    """Return |net flux| / inflow over the inlets and outlets; NaN where nothing flows in."""
    openings = [flux[patch].sum() for patch, kind in patches.items() if kind in OPENINGS]
    inflow = -sum(total for total in openings if total < 0)
    return float(abs(sum(openings)) / inflow) if inflow > 0 else float("nan")


def back_flow(flux: Mapping[str, np.ndarray], patches: Mapping[str, str]) -> float:
    """Return the inflow through faces of the outlets over the inlets' flow; NaN without inflow."""
    of_kind = {
        kind: [flux[patch] for patch in patches if patches[patch] == kind] for kind in OPENINGS
    }
    inflow = -sum(float(values.sum()) for values in of_kind["inlet"])
    entering = -sum(float(np.minimum(values, 0).sum()) for values in of_kind["outlet"])
    return max(0.0, entering) / inflow if inflow > 0 else float("nan")


def judge(family: CaseFamily, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
    """Return all gates of a solved case, the common ones first; NaN passes no gate."""
    end = case.point.settings[family.horizon]
    finished = bool(figures["solver_finished"])
    common = [
        Gate(
            "solver finished",
            figures["last_time"],
            f"End, and >= {end:g}",
            # Steps that do not divide the time end within half of one.
            finished
            and figures["last_time"] >= end - AskedTimes.of(family, case.point.settings).tolerance,
            "s",
        )
        # A steady solver may end earlier, where its residuals have reached their target.
        if family.transient
        else Gate("solver finished", figures["last_time"], "End", finished, "iterations"),
        Gate.at_most("values not finite", figures["not_finite"], 0),
        *completeness_gates(family, case.point.settings, figures),
    ]
    return common + family.gates(case, figures)


def rejection(gates: list[Gate]) -> str:
    """Name the gates that failed in one line; empty where all passed."""
    return "; ".join(
        f"{gate.name} is {gate.value:.4g}{' ' + gate.unit if gate.unit else ''}, limit {gate.limit}"
        for gate in gates
        if not gate.passed
    )
