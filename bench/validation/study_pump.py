"""Pictures of the pump's studies: the characteristic curve, and a solved case at half depth."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from bench.report import publish
from bench.validation import solved
from simgen.case import CaseResult, SolvedCase
from simgen.cases import get_family
from simgen.cases.centrifugal_pump.geometry import DEPTH
from simgen.foam.field import read_field
from simgen.foam.mesh import MeshGeometry, read_geometry, time_directories
from simgen.publish.figures import png_bytes


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
    """Speed in the resting frame and kinematic pressure on the layer of faces nearest to half
    depth.
    """
    geometry = read_geometry(case.directory)
    last = time_directories(case.directory)[-1][1]
    outlines, cells = _layer(geometry, DEPTH / 2)
    velocity = read_field(last / "U").internal
    fields = {
        "speed (m/s)": np.linalg.norm(velocity, axis=1)[cells],
        "kinematic pressure (m²/s²)": read_field(last / "p").internal[cells, 0],
    }
    figure = Figure(figsize=(9, 5), layout="constrained")
    for axes, (name, values) in zip(figure.subplots(1, 2), fields.items(), strict=True):
        filled = PolyCollection(
            outlines, array=values, cmap="viridis", edgecolors="face", linewidths=0.2
        )
        axes.add_collection(filled)
        axes.autoscale()
        axes.set_aspect("equal")
        axes.set_axis_off()
        figure.colorbar(filled, ax=axes, label=name, orientation="horizontal", shrink=0.8)
    file.write_bytes(png_bytes(figure, dpi=70))


def _layer(geometry: MeshGeometry, height: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Outlines (n, 2) of the flat faces nearest to `height`, and the cells below them."""
    flat = np.abs(geometry.face_areas[:, 2]) > 0.99 * np.linalg.norm(geometry.face_areas, axis=1)
    distance = np.where(flat, np.abs(geometry.face_centres[:, 2] - height), np.inf)
    faces = np.flatnonzero(distance < distance.min() + 1e-6)
    offsets, labels = geometry.face_offsets, geometry.face_points
    outlines = [geometry.points[labels[offsets[face] : offsets[face + 1]], :2] for face in faces]
    return outlines, geometry.owner[faces]


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
