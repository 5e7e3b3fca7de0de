"""Pictures of the pump's studies: the characteristic curve, and a solved case at half depth."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bench.report import publish
from bench.validation import solved
from courant.report.drawing import FieldMap, draw_maps
from simgen.case import CaseResult, SolvedCase
from simgen.cases import get_family
from simgen.publish.figures import layer_of_cloud, png_bytes, spanning
from simgen.solving.convert import convert


def draw_curve(
    file: Path, rows: Sequence[Mapping[str, Any]], slower: Sequence[Mapping[str, Any]]
) -> None:
    """Head against flow at one speed, its image under the affinity laws, and what was solved at the
    other speed.
    """
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    axes = figure.add_subplot()
    (flow, head), (slow_flow, slow_head) = (
        np.array([[row["flow (m3/h)"], row["head (m)"]] for row in found]).T
        for found in (rows, slower)
    )
    speed, slow_speed = rows[0]["speed (rpm)"], slower[0]["speed (rpm)"]
    ratio = slow_speed / speed
    axes.plot(flow, head, "o-", label=f"{speed:g} rpm")
    axes.plot(
        ratio * flow, ratio**2 * head, "--", color="grey", label="the same by the affinity laws"
    )
    axes.plot(slow_flow, slow_head, "s", label=f"{slow_speed:g} rpm")
    axes.set(xlabel="flow (m³/h)", ylabel="head (m)")
    axes.set_ylim(bottom=0)
    axes.legend()
    file.write_bytes(png_bytes(figure, dpi=70))


def draw_fields(file: Path, case: SolvedCase) -> None:
    """Speed in the resting frame and kinematic pressure on a layer of cells near half depth."""
    cloud = convert(case)
    plane = layer_of_cloud(cloud, dimension=3, axis=2)
    fields = {
        "speed (m/s)": np.linalg.norm(cloud.fields["velocity"], axis=1),
        "kinematic pressure (m²/s²)": cloud.fields["kinematic_pressure"][:, 0],
    }
    maps = [
        FieldMap(plane, values, label=name, limits=spanning(values))
        for name, values in fields.items()
    ]
    file.write_bytes(png_bytes(draw_maps([maps], bars="each")))


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
