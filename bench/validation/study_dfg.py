"""cylinder-flow's dictionaries, mesher and numerics on the published benchmark DFG 2D-2: a cylinder
in a channel at Re = 100.

Schaefer, Turek et al., Benchmark computations of laminar flow around a cylinder (1996): maximum
drag coefficient 3.22 to 3.24, maximum lift coefficient 0.98 to 1.02, Strouhal number 0.295 to
0.305. Lengths are the benchmark's (channel 2.2 x 0.41 m, diameter 0.1 m, centre at (0.2, 0.2) m)
times 20 m / 0.41 m, which makes its channel as high as the family's; the coefficients have no unit.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import publish
from bench.validation import solved
from simgen import cases
from simgen.cases.cylinder.family import HALF_HEIGHT, INLET_X, MEAN_VELOCITY, CylinderFlow
from simgen.cases.cylinder.quantities import cylinder_quantities
from simgen.design_space import DesignPoint
from simgen.foam.log import read_series

SCALE = 2 * HALF_HEIGHT / 0.41
DIAMETER = 0.1 * SCALE
DESIGN = {
    "radius": DIAMETER / 2,
    "center_x": INLET_X + 0.2 * SCALE,
    "center_y": (0.2 - 0.205) * SCALE,
}
PUBLISHED = {"max C_D": (3.22, 3.24), "max C_L": (0.98, 1.02), "St": (0.295, 0.305)}
#: Coefficients are taken from the last so many seconds: six to seven periods.
WINDOW_S = 400.0
#: mesh_size (m), time step (s), end (s): the production mesh first.
RUNS = ((1.0, 0.1, 900.0), (0.5, 0.05, 900.0), (0.35, 0.035, 900.0))

FORCES = """
functions
{
    forces
    {
        type            forces;
        libs            (forces);
        patches         (cylinder);
        rho             rhoInf;
        rhoInf          1;
        CofR            (0 0 0);
        writeControl    timeStep;
        writeInterval   1;
        log             no;
    }
}
"""


class DfgChannel(CylinderFlow):
    """The family with the benchmark's length behind the cylinder, its Reynolds number, and forces
    written.
    """

    name = "dfg-2d-2"
    outlet_x = INLET_X + 2.2 * SCALE
    viscosity = MEAN_VELOCITY * DIAMETER / 100
    quantities = cylinder_quantities(viscosity, MEAN_VELOCITY)

    def point(self, parameters: Mapping[str, float], settings: Mapping[str, float]) -> DesignPoint:
        # The benchmark's cylinder is further upstream than any of the design space.
        return DesignPoint(
            self.name, self.revision, dict(parameters), self.settings_space.check(settings)
        )

    def write_case(self, point: DesignPoint, directory: Path) -> None:
        super().write_case(point, directory)
        with (directory / "system/controlDict").open("a") as control:
            control.write(FORCES)


def main(out: Path, short: bool) -> None:
    cases.FAMILIES[DfgChannel.name] = family = DfgChannel()
    rows: list[dict[str, Any]] = []
    for mesh_size, time_step, end in ((1.0, 0.1, 700.0),) if short else RUNS:
        settings = {
            "mesh_size": mesh_size,
            "time_step": time_step,
            "end_time": end,
            "snapshot_interval": 100.0,
        }
        case, result = solved(family, DESIGN, settings, out)
        measured = _coefficients(read_series(case.directory, "forces", end, "force.dat"))
        errors = {f"{name} off by": _error(measured[name], *PUBLISHED[name]) for name in PUBLISHED}
        rows.append(
            {
                "mesh size (m)": mesh_size,
                "cells": int(result.provenance["mesh"]["num_cells"]),
                "time step (s)": time_step,
                **measured,
                **{name: f"{100 * error:.1f} %" for name, error in errors.items()},
                "solve (s)": result.provenance["wall_time_s"]["solve"],
            }
        )
    publish(out, "dfg", rows, published={name: list(bounds) for name, bounds in PUBLISHED.items()})


def _coefficients(forces: np.ndarray) -> dict[str, float]:
    """Of rows with the time and the whole force first; the slab is 1 m thick."""
    late = forces[forces[:, 0] >= forces[-1, 0] - WINDOW_S]
    reference = 0.5 * MEAN_VELOCITY**2 * DIAMETER
    drag, lift = late[:, 1] / reference, late[:, 2] / reference
    time, swing = late[:, 0], lift - lift.mean()
    rising = np.flatnonzero((swing[:-1] < 0) & (swing[1:] >= 0))
    crossings = time[rising] - swing[rising] * (time[rising + 1] - time[rising]) / (
        swing[rising + 1] - swing[rising]
    )
    period = float(np.diff(crossings).mean())
    return {
        "max C_D": float(drag.max()),
        "max C_L": float(lift.max()),
        "St": DIAMETER / (period * MEAN_VELOCITY),
    }


def _error(value: float, low: float, high: float) -> float:
    """How far outside the published range, over its middle; 0 inside."""
    return max(0.0, low - value, value - high) / ((low + high) / 2)
