"""Shedding frequency over the radii of cylinder-flow, on the production mesh and a finer one.

Shows what the dataset holds from its steady to its periodic end, and how far the frequency is from
that of a mesh and a time step half as large.
"""

from pathlib import Path
from typing import Any

from bench.report import publish
from bench.validation import solved
from simgen.cases import get_family
from simgen.cases.cylinder.family import HALF_HEIGHT, MEAN_VELOCITY, VISCOSITY
from simgen.cases.cylinder.shedding import Shedding, shedding
from simgen.solving.convert import convert

RADII = (0.75, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0)
END_S, START_S = 800.0, 300.0
#: Cell size (m) and time step (s): of the trial preset, and finer.
PRODUCTION, FINER = (1.0, 0.1), (0.5, 0.05)
#: A finer case takes ten times as long.
REFINED_RADII = (0.75, 1.2, 2.5)


def main(out: Path, short: bool) -> None:
    rows: list[dict[str, Any]] = []
    for radius in (1.5,) if short else RADII:
        end = 500.0 if short else END_S
        found, cells = _shedding(radius, PRODUCTION, end, out)
        refined = radius in REFINED_RADII and not short
        finer = _shedding(radius, FINER, end, out)[0].frequency if refined else None
        blockage, frequency = radius / HALF_HEIGHT, found.frequency
        apart = f"{100 * (frequency / finer - 1):+.1f} %" if frequency and finer else ""
        strouhal = frequency * 2 * radius / MEAN_VELOCITY if frequency else None
        rows.append(
            {
                "radius (m)": radius,
                "Re": MEAN_VELOCITY * 2 * radius / VISCOSITY,
                "blockage": blockage,
                "cells": cells,
                "f (Hz)": frequency or "steady",
                "f, finer (Hz)": finer or "",
                "deviation": apart,
                "St on the mean velocity": strouhal or "",
                # The cylinder sees the channel's peak velocity, sped up where it narrows.
                "St on the gap velocity": strouhal * (1 - blockage) if strouhal else "",
                "fluctuation": found.fluctuation,
            }
        )
    publish(out, "strouhal", rows)


def _shedding(
    radius: float, resolution: tuple[float, float], end: float, out: Path
) -> tuple[Shedding, int]:
    """Solve one cylinder on the centre line; its wake and its number of cells."""
    size, step = resolution
    design = {"radius": radius, "center_x": -8.0, "center_y": 0.0}
    settings = {"end_time": end, "mesh_size": size, "time_step": step}
    cloud = convert(solved(get_family("cylinder-flow"), design, settings, out)[0])
    wake = shedding(cloud, radius=radius, center=(-8.0, 0.0), start=START_S)
    return wake, len(cloud.points)
