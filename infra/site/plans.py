"""Draw the plans of branched-pipe and centrifugal-pump with their parameters named, for the docs.

python infra/site/plans.py
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, Rectangle

from simgen.cases.branched_pipe import geometry as pipe
from simgen.cases.centrifugal_pump import geometry as pump
from simgen.cases.centrifugal_pump.family import plan_of

IMAGES = Path(__file__).parents[2] / "docs/images"
MM = 1e3
WALL: dict[str, Any] = {"color": "#333333", "lw": 1.6, "solid_capstyle": "round"}
ROTATING = "#b3261e"
PLATE: dict[str, Any] = {"color": ROTATING, "lw": 2.6}
GUIDE: dict[str, Any] = {"color": "#8a8a8a", "lw": 0.8, "ls": (0, (4, 3))}
NOTE = "#0b5fa5"


def draw_pipe(parameters: Mapping[str, float]) -> Figure:
    """Draw the plane (x, z) in millimetres."""
    plan = pipe.plan_of(parameters)
    figure = Figure(figsize=(8.2, 7.4), layout="constrained")
    axes = figure.add_subplot()
    _walls(axes, plan)
    _plates(axes, plan)
    _angles(axes, plan, parameters)
    axes.text(pipe.INLET_X * MM, 32, "inlet_velocity", color=NOTE, ha="center", va="bottom")
    for z in (-15, 0, 15):
        axes.arrow(pipe.INLET_X * MM - 28, z, 20, 0, head_width=4, head_length=5, color=NOTE, lw=1)
    axes.set_aspect("equal")
    axes.set(xlabel="x (mm)", ylabel="z (mm)")
    axes.margins(0.09)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _walls(axes: Axes, plan: pipe.Plan) -> None:
    half = pipe.WIDTH / 2
    for side, shoulder in zip((half, -half), plan.shoulders, strict=True):
        axes.plot([pipe.INLET_X * MM, shoulder[0] * MM], [side * MM, side * MM], **WALL)
    axes.plot([pipe.INLET_X * MM] * 2, [-half * MM, half * MM], color=NOTE, lw=1.6)
    upper, lower = plan.branches
    for branch, left, right in (
        (upper, plan.shoulders[0], plan.crotch),
        (lower, plan.crotch, plan.shoulders[1]),
    ):
        for start, points in ((left, branch.left), (right, branch.right)):
            line = _side(np.array([start, *points]), branch)
            axes.plot(*(line.T * MM), **WALL)
        ends = np.array([branch.left[-1], branch.right[-1]]) * MM
        axes.plot(*ends.T, color=NOTE, lw=1.6)
        middle = ends.mean(axis=0)
        along = np.array([ends[0, 1] - ends[1, 1], ends[1, 0] - ends[0, 0]]) / 30
        x, z = middle + 22 * along
        name = "outlet 1" if branch is upper else "outlet 2"
        axes.text(x, z, name, color=NOTE, ha="center", va="center")


def _side(points: np.ndarray, branch: pipe.Branch) -> np.ndarray:
    """Return a side's points with its arc resolved."""
    if branch.bend is None:
        return points
    centre, start, end = branch.bend, points[1], points[2]
    radius = np.linalg.norm(start - centre)
    first, last = (math.atan2(*(point - centre)[::-1]) for point in (start, end))
    angles = np.linspace(first, last if last > first else last + 2 * math.pi, 40)
    arc = centre + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([points[:2], arc, points[2:]])


def _plates(axes: Axes, plan: pipe.Plan) -> None:
    half, gap = pipe.WIDTH / 2 * MM, plan.half_aperture * MM
    x = pipe.PLATES_X * MM
    for side in (1, -1):
        axes.plot([x, x], [side * half, side * gap], **PLATE)
    arrow = {"arrowstyle": "<->", "color": NOTE, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (x, gap), (x, -gap), arrowprops=arrow)
    axes.text(x + 5, 0, "aperture", color=NOTE, va="center")
    axes.plot(*(np.array([plan.crotch, plan.plate_tip]).T * MM), **PLATE)


def _angles(axes: Axes, plan: pipe.Plan, parameters: Mapping[str, float]) -> None:
    crotch = plan.crotch * MM
    heading = parameters["duct_angle"] / 2
    axes.plot([crotch[0] - 75, crotch[0]], [crotch[1]] * 2, **GUIDE)
    start = 180 - parameters["baffle_angle"]
    axes.add_patch(Arc((crotch[0], crotch[1]), 46, 46, theta1=start, theta2=180, color=NOTE))
    axes.text(crotch[0] - 28, crotch[1] + 5, "baffle_angle", color=NOTE, ha="right", va="bottom")
    turned = math.radians(heading)
    for sign in (1, -1):
        direction = np.array([math.cos(turned), sign * math.sin(turned)])
        axes.plot(*(np.array([np.zeros(2), 115 * direction]).T), **GUIDE)
    axes.add_patch(Arc((0, 0), 170, 170, theta1=-heading, theta2=heading, color=NOTE))
    axes.text(89, 0, "duct_angle", color=NOTE, va="center")
    bend = plan.branches[0].bend
    if bend is None:
        return
    left = np.array(plan.branches[0].left)
    right = np.array(plan.branches[0].right)
    centres = (left + right) / 2 * MM
    incoming, outgoing = centres[0] - centres[0] * 0.55, centres[2] - centres[1]
    # The straight centre lines meet here; the interior angle opens towards the bend's centre.
    turn = math.radians(180 - parameters["curvature_angle"])
    ahead_of_bend = pipe.BEND_RADIUS * MM * math.tan(turn / 2)
    corner = centres[0] + ahead_of_bend * centres[0] / np.linalg.norm(centres[0])
    axes.plot(*np.array([incoming, corner, corner + 0.9 * outgoing]).T, **GUIDE)
    back = math.degrees(math.atan2(*(-centres[0])[::-1]))
    ahead = math.degrees(math.atan2(*outgoing[::-1]))
    axes.add_patch(Arc((corner[0], corner[1]), 70, 70, theta1=ahead, theta2=back, color=NOTE))
    middle = math.radians((ahead + (back if back > ahead else back + 360)) / 2)
    x, z = corner + 42 * np.array([math.cos(middle), math.sin(middle)])
    axes.text(x, z, "curvature_angle", color=NOTE, ha="right", va="center")


def draw_pump(parameters: Mapping[str, float]) -> Figure:
    """Draw the plan from the suction side and a section through the shaft, in millimetres."""
    plan = plan_of(parameters)
    figure = Figure(figsize=(10.5, 7.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _plan(left, plan)
    _radii(left, plan)
    _pitch(left, plan, parameters)
    _section(right, plan)
    for axes, label in ((left, "y (mm)"), (right, "z (mm)")):
        axes.set_aspect("equal")
        axes.set(xlabel="x (mm)", ylabel=label)
        axes.margins(0.06)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _plan(axes: Axes, plan: pump.PumpPlan) -> None:
    nose = np.array([plan.inner_wall[0], plan.nose, plan.spiral[0]])
    for wall in (plan.spiral, plan.outer_wall, plan.inner_wall, nose):
        axes.plot(*(wall.T * MM), **WALL)
    outlet = np.array([plan.outer_wall[1], plan.inner_wall[1]]) * MM
    axes.plot(*outlet.T, color=NOTE, lw=1.6)
    x, y = outlet.mean(axis=0)
    axes.annotate("", (x, y + 36), (x, y + 2), arrowprops=_arrow("->"))
    axes.text(x, y + 42, "outlet", color=NOTE, ha="center", va="bottom")
    for blade in plan.blades:
        axes.fill(*(blade.T * MM), color=ROTATING, lw=0)
    axes.add_patch(Circle((0, 0), plan.eye_radius * MM, fill=False, color=NOTE, lw=1.4))
    axes.add_patch(Circle((0, 0), plan.impeller_radius * MM, fill=False, **GUIDE))
    axes.add_patch(
        Circle((0, 0), plan.rotor_radius * MM, fill=False, color=ROTATING, lw=1.0, ls=":")
    )
    turn = 0.45 * plan.eye_radius * MM
    axes.add_patch(Arc((0, 0), 2 * turn, 2 * turn, theta1=300, theta2=60, color=ROTATING, lw=1.4))
    end = turn * _direction(60)
    axes.annotate(
        "", end + np.array([-7, 3.5]), end + np.array([1, -0.6]), arrowprops=_arrow("->", ROTATING)
    )
    axes.text(-12, 0.5 * plan.eye_radius * MM, "rotation", color=ROTATING, ha="center", va="center")
    x, y = plan.nose * MM
    arrow = _arrow("-", "#333333")
    axes.annotate("tongue", (x, y), (x + 38, y + 95), color="#333333", arrowprops=arrow)


def _radii(axes: Axes, plan: pump.PumpPlan) -> None:
    for radius, angle, name in (
        (plan.eye_radius, 215, "inlet_radius"),
        (plan.impeller_radius, 265, "impeller_radius"),
    ):
        direction = _direction(angle)
        end = radius * MM * direction
        axes.annotate("", (end[0], end[1]), (0, 0), arrowprops=_arrow("->"))
        away = 1.75 * plan.impeller_radius * MM * direction
        axes.plot(*np.stack([end, away]).T, **GUIDE)
        x, y = away + 8 * direction
        axes.text(x, y, name, color=NOTE, ha="center", va="top" if angle > 240 else "center")


def _pitch(axes: Axes, plan: pump.PumpPlan, parameters: Mapping[str, float]) -> None:
    """Mark the angle between the topmost blade's tip and the circle's tangent."""
    _, _, angle = pump.camber_line(
        plan.eye_radius, plan.impeller_radius, parameters["blade_pitch_angle"]
    )
    tips = [blade[len(blade) // 2 - 1] for blade in plan.blades]
    tip = max(tips, key=lambda point: point[1])
    polar = math.atan2(tip[1], tip[0])
    radial = np.array([math.cos(polar), math.sin(polar)])
    tangent = np.array([math.sin(polar), -math.cos(polar)])
    turned = float(angle[-1])
    along = math.cos(turned) * tangent + math.sin(turned) * radial
    for direction in (tangent, along):
        axes.plot(*(np.stack([tip, tip + 0.12 * direction]).T * MM), color=NOTE, lw=1)
    first = math.degrees(math.atan2(tangent[1], tangent[0]))
    last = first + math.degrees(turned)
    axes.add_patch(Arc(tip * MM, 150, 150, theta1=first, theta2=last, color=NOTE, lw=1.2))
    middle = (tip + 0.075 * (tangent + along) / np.linalg.norm(tangent + along)) * MM
    place = (tip + np.array([-0.06, 0.12])) * MM
    style: dict[str, Any] = {"color": NOTE, "ha": "center", "arrowprops": _arrow("-")}
    axes.annotate("blade_pitch_angle", middle, place, **style)


def _section(axes: Axes, plan: pump.PumpPlan) -> None:
    """Draw the section: suction pipe, impeller, and the volute at its wide and narrow ends."""
    eye, tip, rotor = (
        radius * MM for radius in (plan.eye_radius, plan.impeller_radius, plan.rotor_radius)
    )
    wide = float(np.linalg.norm(plan.spiral[-1])) * MM
    around = np.arctan2(plan.spiral[:, 1], plan.spiral[:, 0]) % (2 * math.pi)
    half_turn = int(np.argmin(np.abs(around - math.pi)))
    narrow = -float(np.linalg.norm(plan.spiral[half_turn])) * MM
    depth, top = pump.DEPTH * MM, (pump.DEPTH + pump.SUCTION_LENGTH) * MM
    for side, end in ((1, wide), (-1, narrow)):
        axes.plot([side * rotor, end, end, side * rotor], [0, 0, depth, depth], **WALL)
        axes.plot([side * eye, side * eye], [depth, top], **WALL)
        axes.plot([side * eye, side * rotor], [depth, depth], color=ROTATING, lw=2.2)
        inner = pump.BLADE_INLET * plan.eye_radius * MM
        corner = (min(side * inner, side * tip), 0)
        blade = Rectangle(corner, tip - inner, depth, color=ROTATING, alpha=0.25, lw=0)
        axes.add_patch(blade)
        axes.plot([side * rotor] * 2, [0, depth], color=ROTATING, lw=1, ls=":")
    axes.plot([-rotor, rotor], [0, 0], color=ROTATING, lw=2.2)
    axes.plot([-eye, eye], [top, top], color=NOTE, lw=1.6)
    axes.plot([0, 0], [-25, top + 20], **GUIDE)
    for x in (-0.6 * eye, 0.0, 0.6 * eye):
        axes.annotate("", (x, top - 32), (x, top + 2), arrowprops=_arrow("->"))
    axes.text(0, top + 26, "inlet_velocity", color=NOTE, ha="center", va="bottom")
    words: dict[str, Any] = {"color": ROTATING, "ha": "center", "va": "center", "fontsize": 9}
    axes.text(0, depth / 2, "blades, hub and shroud turn", **words)
    axes.text(wide, depth + 8, "casing", color="#333333", ha="right", va="bottom")


def _direction(degrees: float) -> np.ndarray:
    return np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])


def _arrow(style: str, color: str = NOTE) -> dict[str, Any]:
    return {"arrowstyle": style, "color": color, "shrinkA": 0, "shrinkB": 0}


if __name__ == "__main__":
    angles = {"baffle_angle": 35.0, "duct_angle": 95.0, "curvature_angle": 115.0}
    duct = draw_pipe({"aperture": 26.0, **angles})
    duct.savefig(IMAGES / "branched_pipe.png", dpi=75)
    radii = {"inlet_radius": 90.0, "impeller_radius": 180.0}
    plan = draw_pump({**radii, "blade_pitch_angle": 25.0})
    plan.savefig(IMAGES / "centrifugal_pump.png", dpi=80)
