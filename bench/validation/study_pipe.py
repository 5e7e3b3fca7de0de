"""branched-pipe on four meshes: pressure loss and flow split; of the finest three the observed
order and the extrapolated value.

Refinement ratio and Richardson extrapolation as in Celik et al., J. Fluids Eng. 130 (2008) 078001.
"""

import math
from pathlib import Path
from typing import Any

from bench.report import publish
from bench.validation import solved
from simgen.cases import get_family

DESIGN = {
    "baffle_angle": 30.0,
    "aperture": 30.0,
    "duct_angle": 95.0,
    "curvature_angle": 135.0,
    "inlet_velocity": 6.0,
}
#: mm, finest first
SIZES, RATIO = (2.5, 3.5, 5.0, 7.0), 2**0.5
ITERATIONS = 2000.0


def main(out: Path, short: bool) -> None:
    sizes = [1.7 * size for size in SIZES] if short else SIZES
    rows: list[dict[str, Any]] = []
    for size in sizes:
        settings = {"mesh_size": size, "max_iterations": ITERATIONS}
        _, result = solved(get_family("branched-pipe"), DESIGN, settings, out)
        figures = result.provenance["figures"]
        rows.append(
            {
                "mesh size (mm)": settings["mesh_size"],
                "cells": int(figures["num_cells"]),
                "pressure loss (m2/s2)": figures["pressure_loss"],
                "share of branch 1": figures["branch1_share"],
                "drift": figures["pressure_loss_drift"],
                "greatest residual": figures["max_residual"],
                "y+": f"{figures['y_plus_min']:.0f} to {figures['y_plus_max']:.0f}",
                "solve (s)": result.provenance["wall_time_s"]["solve"],
            }
        )
    losses = [row["pressure loss (m2/s2)"] for row in rows]
    fine, medium, coarse = losses[:3]
    ratio = (coarse - medium) / (medium - fine)
    order = math.log(abs(ratio)) / math.log(RATIO)
    limit = fine + (fine - medium) / (RATIO**order - 1) if ratio > 1 else math.nan
    publish(
        out,
        "pipe",
        rows,
        convergence="monotonic" if ratio > 1 else "not monotonic: the order means nothing",
        observed_order=order,
        extrapolated_pressure_loss=limit,
        error_of_the_trial_mesh=abs(losses[-1] / limit - 1),
    )
