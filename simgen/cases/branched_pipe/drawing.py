"""Draw the plan view of branched-pipe with its parameters named.

python -m simgen.cases.branched_pipe.drawing docs/images/branched_pipe.png
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from simgen.cases.branched_pipe.geometry import (
    BEND_RADIUS,
    INLET_X,
    PLATES_X,
    WIDTH,
    Branch,
    Plan,
    plan_of,
)

MM = 1e3
WALL: dict[str, Any] = {"color": "#333333", "lw": 1.6, "solid_capstyle": "round"}
PLATE: dict[str, Any] = {"color": "#b3261e", "lw": 2.6}
GUIDE: dict[str, Any] = {"color": "#8a8a8a", "lw": 0.8, "ls": (0, (4, 3))}
NOTE = "#0b5fa5"


def draw(parameters: Mapping[str, float]) -> Figure:
    """Draw the plane (x, z) in millimetres."""
    plan = plan_of(parameters)
    figure = Figure(figsize=(8.2, 7.4), layout="constrained")
    axes = figure.add_subplot()
    _walls(axes, plan)
    _plates(axes, plan)
    _angles(axes, plan, parameters)
    axes.text(INLET_X * MM, 32, "inlet_velocity", color=NOTE, ha="center", va="bottom")
    for z in (-15, 0, 15):
        axes.arrow(INLET_X * MM - 28, z, 20, 0, head_width=4, head_length=5, color=NOTE, lw=1)
    axes.set_aspect("equal")
    axes.set(xlabel="x (mm)", ylabel="z (mm)")
    axes.margins(0.09)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _walls(axes: Axes, plan: Plan) -> None:
    half = WIDTH / 2
    for side, shoulder in zip((half, -half), plan.shoulders, strict=True):
        axes.plot([INLET_X * MM, shoulder[0] * MM], [side * MM, side * MM], **WALL)
    axes.plot([INLET_X * MM] * 2, [-half * MM, half * MM], color=NOTE, lw=1.6)
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


def _side(points: np.ndarray, branch: Branch) -> np.ndarray:
    """Return a side's points with its arc resolved."""
    if branch.bend is None:
        return points
    centre, start, end = branch.bend, points[1], points[2]
    radius = np.linalg.norm(start - centre)
    first, last = (math.atan2(*(point - centre)[::-1]) for point in (start, end))
    angles = np.linspace(first, last if last > first else last + 2 * math.pi, 40)
    arc = centre + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([points[:2], arc, points[2:]])


def _plates(axes: Axes, plan: Plan) -> None:
    half, gap = WIDTH / 2 * MM, plan.half_aperture * MM
    x = PLATES_X * MM
    for side in (1, -1):
        axes.plot([x, x], [side * half, side * gap], **PLATE)
    arrow = {"arrowstyle": "<->", "color": NOTE, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (x, gap), (x, -gap), arrowprops=arrow)
    axes.text(x + 5, 0, "aperture", color=NOTE, va="center")
    axes.plot(*(np.array([plan.crotch, plan.plate_tip]).T * MM), **PLATE)


def _angles(axes: Axes, plan: Plan, parameters: Mapping[str, float]) -> None:
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
    ahead_of_bend = BEND_RADIUS * MM * math.tan(turn / 2)
    corner = centres[0] + ahead_of_bend * centres[0] / np.linalg.norm(centres[0])
    axes.plot(*np.array([incoming, corner, corner + 0.9 * outgoing]).T, **GUIDE)
    back = math.degrees(math.atan2(*(-centres[0])[::-1]))
    ahead = math.degrees(math.atan2(*outgoing[::-1]))
    axes.add_patch(Arc((corner[0], corner[1]), 70, 70, theta1=ahead, theta2=back, color=NOTE))
    middle = math.radians((ahead + (back if back > ahead else back + 360)) / 2)
    x, z = corner + 42 * np.array([math.cos(middle), math.sin(middle)])
    axes.text(x, z, "curvature_angle", color=NOTE, ha="right", va="center")


if __name__ == "__main__":
    angles = {"baffle_angle": 35.0, "duct_angle": 95.0, "curvature_angle": 115.0}
    draw({"aperture": 26.0, **angles}).savefig(sys.argv[1], dpi=75)
