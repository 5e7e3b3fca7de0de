"""Build the plan view of branched-pipe, outline and plates, from the design parameters; mesh it.

Everything lies in the plane of the ducts, (x, z) in metres, with the origin where the three centre
lines meet. The trunk comes along +x. Branch 1 leaves it upwards by half the angle between the
ducts, runs straight, turns outwards by 180 degrees minus its curvature angle, and runs straight
again. Branch 2 leaves downwards and stays straight. Each ends in a nozzle.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simgen.meshing import add_size, gmsh_model, write_quadrilaterals

WIDTH = 0.050
INLET_X, PLATES_X = -0.270, -0.225
STRAIGHT, BEND_RADIUS, STRAIGHT_BRANCH = 0.100, 0.075, 0.275
NOZZLE_LENGTH, NOZZLE_WIDTH = 0.050, 0.030
PLATE_LENGTH = 0.018
#: Below this turn (rad) branch 1 is straight: the arc would be shorter than a cell.
LEAST_TURN = math.radians(3.0)

Point = np.ndarray  # (2,) m: x and z


@dataclass(frozen=True)
class Branch:
    """The two sides of a branch, from the junction to the outlet, as seen along the flow.

    Each is a list of points; the arc between the second and the third has its centre in `bend`,
    which is None for a straight branch.
    """

    left: tuple[Point, ...]
    right: tuple[Point, ...]
    bend: Point | None


@dataclass(frozen=True)
class Plan:
    """The corners of the plan view.

    `shoulders` lie where trunk and outer walls meet, `crotch` where the inner walls meet.
    """

    branches: tuple[Branch, Branch]
    shoulders: tuple[Point, Point]
    crotch: Point
    plate_tip: Point
    half_aperture: float


def plan_of(parameters: Mapping[str, float]) -> Plan:
    """Return the plan view of a design; angles in degrees, the aperture in millimetres."""
    half = math.radians(parameters["duct_angle"]) / 2
    baffle = math.radians(parameters["baffle_angle"])
    turn = math.pi - math.radians(parameters["curvature_angle"])
    crotch = np.array([WIDTH / 2 / math.sin(half), 0.0])
    shoulder_x = -WIDTH / 2 * math.tan(half / 2)
    return Plan(
        (_branch(half, turn if turn > LEAST_TURN else 0.0), _branch(-half, None)),
        (np.array([shoulder_x, WIDTH / 2]), np.array([shoulder_x, -WIDTH / 2])),
        crotch,
        crotch + PLATE_LENGTH * np.array([-math.cos(baffle), math.sin(baffle)]),
        parameters["aperture"] * 1e-3 / 2,
    )


def _branch(heading: float, turn: float | None) -> Branch:
    """Build a branch with a `turn` (rad, to the left).

    0 gives two straights in line, None a branch of a single straight.
    """
    position, bend = np.zeros(2), None
    stations: list[tuple[Point, float, float]] = []  # centre, heading, half width

    def go(length: float, half_width: float) -> None:
        nonlocal position
        position = position + length * np.array([math.cos(heading), math.sin(heading)])
        stations.append((position, heading, half_width))

    if turn is None:
        go(STRAIGHT_BRANCH, WIDTH / 2)
    elif turn == 0:
        go(2 * STRAIGHT, WIDTH / 2)
    else:
        go(STRAIGHT, WIDTH / 2)
        bend = position + BEND_RADIUS * _left(heading)
        heading += turn
        position = bend - BEND_RADIUS * _left(heading)
        stations.append((position, heading, WIDTH / 2))
        go(STRAIGHT, WIDTH / 2)
    go(NOZZLE_LENGTH, NOZZLE_WIDTH / 2)
    left = tuple(centre + width * _left(at) for centre, at, width in stations)
    right = tuple(centre - width * _left(at) for centre, at, width in stations)
    return Branch(left, right, bend)


def _left(heading: float) -> Point:
    return np.array([-math.sin(heading), math.cos(heading)])


def mesh_plan(file: Path, plan: Plan, mesh_size: float) -> None:
    """Mesh the plan with quadrilaterals and extrude it across the duct.

    Cells are `mesh_size` metres wide, finer at the plates. Patches and plates become physical
    groups.
    """
    layers = max(4, round(WIDTH / mesh_size))
    with gmsh_model("branched-pipe") as gmsh:
        model, geo = gmsh.model, gmsh.model.geo
        loops, plates, openings = _draw(geo, plan)
        surfaces = [geo.addPlaneSurface([geo.addCurveLoop(loop)]) for loop in loops]
        for surface in surfaces:
            geo.mesh.setRecombine(2, surface)
        extruded = geo.extrude(
            [(2, surface) for surface in surfaces],
            0,
            WIDTH,
            0,
            numElements=[layers],
            recombine=True,
        )
        geo.synchronize()
        # Physical groups name the patches, the plates (faces inside the mesh) and the fluid. For
        # each face of the plan, `extruded` lists the opposite face, the volume, and the sides in
        # the order of the face's loop.
        volumes: list[int] = []
        ends, sides = list(surfaces), {}
        place, times_seen = 0, Counter[int]()
        for loop in loops:
            ends.append(extruded[place][1])
            volumes.append(extruded[place + 1][1])
            for curve, (_, side) in zip(loop, extruded[place + 2 :], strict=False):
                sides[abs(curve)] = side
                times_seen[abs(curve)] += 1
            place += 2 + len(loop)
        no_walls = {curve for curve, times in times_seen.items() if times > 1}
        no_walls |= set(openings.values())
        walls = [side for curve, side in sides.items() if curve not in no_walls]
        model.addPhysicalGroup(3, volumes, name="fluid")
        model.addPhysicalGroup(2, [*ends, *walls], name="walls")
        model.addPhysicalGroup(2, [sides[curve] for curve in plates], name="plates")
        for patch, curve in openings.items():
            model.addPhysicalGroup(2, [sides[curve]], name=patch)
        # Three fifths of the size at the plates, where the jets begin, over 40 mm.
        distance = add_size(model, "Distance", CurvesList=plates, Sampling=50)
        near = add_size(
            model,
            "Threshold",
            InField=distance,
            SizeMin=0.6 * mesh_size,
            SizeMax=mesh_size,
            DistMin=0.005,
            DistMax=0.04,
        )
        write_quadrilaterals(gmsh, file, near)


def _draw(geo: Any, plan: Plan) -> tuple[list[list[int]], list[int], dict[str, int]]:
    """Draw three faces that share the plates' lines; return gmsh's curves.

    These are a loop for each face (negative where a curve runs backwards), the plates, and the
    openings by patch.

    The faces are the trunk up to the inlet plates, the junction with branch 2, and branch 1. Plates
    have no thickness: they are curves inside the plan, and a curve is only extruded where it
    divides a face. So the line of the inlet plates continues through the aperture, and that of the
    middle plate up to the shoulder.
    """

    def point(at: Sequence[float] | Point) -> int:
        return int(geo.addPoint(at[0], -WIDTH / 2, at[1]))

    upper, lower = plan.branches
    tip, crotch = point(plan.plate_tip), point(plan.crotch)
    shoulder_up, shoulder_down = (point(at) for at in plan.shoulders)
    line = geo.addLine
    half, gap = WIDTH / 2, plan.half_aperture
    at_plates = [point((PLATES_X, z)) for z in (-half, -gap, gap, half)]
    at_inlet = [point((INLET_X, z)) for z in (-half, half)]
    across = [line(*ends) for ends in itertools.pairwise(at_plates)]
    inlet = line(at_inlet[1], at_inlet[0])
    top = line(at_plates[3], at_inlet[1])
    bottom = line(at_inlet[0], at_plates[0])
    middle, to_shoulder = line(crotch, tip), line(tip, shoulder_up)
    sides = {}
    for number, branch in enumerate((upper, lower), start=1):
        left = [point(at) for at in branch.left]
        right = [point(at) for at in branch.right]
        first_left, first_right = (shoulder_up, crotch) if number == 1 else (crotch, shoulder_down)
        centre = None if branch.bend is None else point(branch.bend)
        along_right = _side(geo, [first_right, *right], centre)
        along_left = _side(geo, [first_left, *left], centre)
        outlet = line(right[-1], left[-1])
        sides[number] = (along_right, outlet, along_left)
    one, two = sides[1], sides[2]
    trunk = [bottom, *across, top, inlet]
    lower_wall, upper_wall = line(at_plates[0], shoulder_down), line(at_plates[3], shoulder_up)
    junction = [
        lower_wall,
        *two[0],
        two[1],
        *(-curve for curve in reversed(two[2])),
        middle,
        to_shoulder,
        -upper_wall,
        *(-curve for curve in reversed(across)),
    ]
    bent = [*one[0], one[1], *(-curve for curve in reversed(one[2])), -to_shoulder, -middle]
    openings = {"inlet": inlet, "outlet1": one[1], "outlet2": two[1]}
    return [trunk, junction, bent], [across[0], across[2], middle], openings


def _side(geo: Any, points: list[int], centre: int | None) -> list[int]:
    """Draw the curves along one side; the second is an arc where the branch has a bend."""
    curves = []
    for place, ends in enumerate(itertools.pairwise(points)):
        curves.append(
            geo.addCircleArc(ends[0], centre, ends[1])
            if place == 1 and centre is not None
            else geo.addLine(*ends)
        )
    return curves
