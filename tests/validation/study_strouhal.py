"""Strouhal number against Reynolds number for cylinder-flow: what the dataset holds from its steady to its periodic end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simgen.cases import get_family
from simgen.cases.cylinder import HALF_HEIGHT, MEAN_VELOCITY, VISCOSITY
from simgen.convert import convert
from simgen.shedding import shedding
from tests.validation.report import publish
from tests.validation.solved import solved

RADII = (0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
END_S, START_S = 800.0, 300.0


def main(out: Path, short: bool) -> None:
    rows: list[dict[str, Any]] = []
    for radius in (1.5,) if short else RADII:
        design = {"radius": radius, "center_x": -8.0, "center_y": 0.0}
        case, _ = solved(get_family("cylinder-flow"), design, {"end_time": 500.0 if short else END_S}, out)
        found = shedding(convert(case), radius=radius, center=(-8.0, 0.0), start=START_S)
        blockage = radius / HALF_HEIGHT
        frequency = found.frequency
        rows.append(
            {
                "radius (m)": radius,
                "Re": MEAN_VELOCITY * 2 * radius / VISCOSITY,
                "blockage": blockage,
                "f (Hz)": frequency if frequency else "steady",
                "St on the mean velocity": frequency * 2 * radius / MEAN_VELOCITY if frequency else "",
                # What the cylinder sees is the channel's peak velocity, sped up where the channel narrows.
                "St on the gap velocity": frequency * 2 * radius * (1 - blockage) / MEAN_VELOCITY if frequency else "",
                "fluctuation": found.fluctuation,
            }
        )
    publish(out, "strouhal", rows)
