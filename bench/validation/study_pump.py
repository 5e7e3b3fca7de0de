"""centrifugal-pump: head against flow at one speed, and the affinity laws between two speeds, for
the middle of the design space.

At speeds in the ratio s, flows in the same ratio s are similar, and their heads stand in the ratio
s^2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.validation.pump_figures import draw_curve, draw_fields
from bench.validation.report import publish
from bench.validation.solved import solved
from simgen.case import CaseResult, SolvedCase
from simgen.cases import get_family

DESIGN = {"inlet_radius": 90.0, "impeller_radius": 180.0, "blade_pitch_angle": 22.5}
SPEED, SLOWER = 2000.0, 1500.0
VELOCITIES = (1.5, 2.0, 2.5, 3.0, 3.5)
#: Of those at SPEED, the flows that are also solved at SLOWER.
SIMILAR = (2.5, 3.5)


def main(out: Path, short: bool) -> None:
    settings = {"mesh_size": 13.0, "max_iterations": 400.0} if short else {}
    rows = [_row(velocity, SPEED, settings, out) for velocity in VELOCITIES]
    slower = [_row(velocity * SLOWER / SPEED, SLOWER, settings, out) for velocity in SIMILAR]
    heads = [row["head (m)"] for row in rows]
    errors = [
        abs(row["head (m)"] / heads[VELOCITIES.index(velocity)] / (SLOWER / SPEED) ** 2 - 1)
        for velocity, row in zip(SIMILAR, slower, strict=True)
    ]
    publish(
        out,
        "pump",
        [*rows, *slower],
        head_falls_with_flow=heads == sorted(heads, reverse=True),
        largest_error_of_the_affinity_laws=max(errors),
    )
    draw_curve(out / "pump_curve.png", rows, slower)
    draw_fields(out / "pump_fields.png", _case(2.5, SPEED, settings, out)[0])


def _row(velocity: float, speed: float, settings: dict[str, float], out: Path) -> dict[str, Any]:
    _, result = _case(velocity, speed, settings, out)
    figures = result.provenance["figures"]
    return {
        "speed (rpm)": speed,
        "inlet (m/s)": velocity,
        "flow (m3/h)": 3600 * figures["flow_rate"],
        "head (m)": figures["head"],
        "drift": figures["head_drift"],
        "power (kW)": figures["shaft_power"] / 1000,
        "efficiency": figures["efficiency"],
        "residual": figures["max_residual"],
        "solve (s)": result.provenance["wall_time_s"]["solve"],
    }


def _case(
    velocity: float, speed: float, settings: dict[str, float], out: Path
) -> tuple[SolvedCase, CaseResult]:
    parameters = {**DESIGN, "inlet_velocity": velocity}
    return solved(
        get_family("centrifugal-pump"), parameters, {**settings, "rotation_speed": speed}, out
    )
