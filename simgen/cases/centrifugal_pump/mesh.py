"""Mesh the pump: its plan view in quadrilaterals, extruded in layers.

The eye is extruded further, up into the suction pipe. Rotor and casing share their nodes, so that
no interpolation is needed between them; `rotor` and `stator` become cell zones.
"""

from pathlib import Path
from typing import Any

import numpy as np

from simgen.cases.centrifugal_pump.geometry import DEPTH, SUCTION_LENGTH, PumpPlan
from simgen.meshing import add_size, gmsh_model, write_quadrilaterals

#: Cell sizes in units of `mesh_size`, the size in the blade passages.
AT_OUTLET, AT_TONGUE, ALONG_DEPTH, ALONG_SUCTION = 2.0, 0.4, 1.25, 2.0
FEWEST_LAYERS = 4
TOLERANCE = 1e-5


def mesh_pump(file: Path, plan: PumpPlan, mesh_size: float) -> None:
    """Write the mesh with patches inlet, outlet, impeller, casing and zones rotor and stator.

    Raises MeshError.
    """
    layers = max(FEWEST_LAYERS, round(DEPTH / (ALONG_DEPTH * mesh_size)))
    pipe_layers = max(FEWEST_LAYERS, round(SUCTION_LENGTH / (ALONG_SUCTION * mesh_size)))
    with gmsh_model("centrifugal-pump") as gmsh:
        model, occ = gmsh.model, gmsh.model.occ
        surfaces = _plan_surfaces(occ, plan)
        occ.synchronize()
        size = _cell_size(model, plan, mesh_size)
        for surface in surfaces:
            model.mesh.setRecombine(2, surface)
        layered = occ.extrude(
            [(2, tag) for tag in surfaces], 0, 0, DEPTH, numElements=[layers], recombine=True
        )
        # Each surface yields its copy at the top, then the volume, then the sides; the eye was
        # given first.
        eye, rotor, stator = (tag for dim, tag in layered if dim == 3)
        suction = occ.extrude(
            layered[:1], 0, 0, SUCTION_LENGTH, numElements=[pipe_layers], recombine=True
        )
        (pipe,) = (tag for dim, tag in suction if dim == 3)
        occ.synchronize()
        model.addPhysicalGroup(3, [eye, rotor], name="rotor")
        model.addPhysicalGroup(3, [stator, pipe], name="stator")
        # OpenFOAM's patches take the names of the physical groups, by where a surface lies.
        surfaces_of: dict[str, list[int]] = {}
        moving = model.getBoundary([(3, eye), (3, rotor)], oriented=False)
        moving_walls = {tag for _, tag in moving}
        for _, tag in model.getBoundary(model.getEntities(3), combined=True, oriented=False):
            _, y_min, z_min, _, y_max, _ = model.getBoundingBox(2, tag)
            if z_min > DEPTH + SUCTION_LENGTH - TOLERANCE:
                name = "inlet"
            elif y_min > plan.outer_wall[1, 1] - TOLERANCE and y_max - y_min < TOLERANCE:
                name = "outlet"
            else:
                name = "impeller" if tag in moving_walls else "casing"
            surfaces_of.setdefault(name, []).append(tag)
        for name, tags in surfaces_of.items():
            model.addPhysicalGroup(2, tags, name=name)
        write_quadrilaterals(gmsh, file, size)


def _plan_surfaces(occ: Any, plan: PumpPlan) -> tuple[int, int, int]:
    """Return the surfaces of the eye, the rotor without its blades, and the stator.

    They share the circles between them.
    """

    def point(xy: np.ndarray) -> int:
        return int(occ.addPoint(float(xy[0]), float(xy[1]), 0.0))

    def surface(curves: list[int]) -> int:
        return int(occ.addPlaneSurface([occ.addCurveLoop(curves)]))

    eye = occ.addDisk(0, 0, 0, plan.eye_radius, plan.eye_radius)
    holes = [(2, occ.addDisk(0, 0, 0, plan.eye_radius, plan.eye_radius))]
    for outline in plan.blades:
        corners = [point(xy) for xy in outline]
        half = len(outline) // 2
        pressure, suction = corners[:half], corners[half:]
        blade = [
            occ.addSpline(pressure),
            occ.addLine(pressure[-1], suction[0]),
            occ.addSpline(suction),
            occ.addLine(suction[-1], pressure[0]),
        ]
        holes.append((2, surface(blade)))
    rotor, _ = occ.cut([(2, occ.addDisk(0, 0, 0, plan.rotor_radius, plan.rotor_radius))], holes)
    disc = occ.addDisk(0, 0, 0, plan.rotor_radius, plan.rotor_radius)
    spiral = [point(xy) for xy in plan.spiral]
    outer_end, inner_end, shoulder, nose = (
        point(xy) for xy in (plan.outer_wall[1], plan.inner_wall[1], plan.inner_wall[0], plan.nose)
    )
    casing = [
        occ.addSpline(spiral),
        occ.addLine(spiral[-1], outer_end),
        occ.addLine(outer_end, inner_end),
        occ.addLine(inner_end, shoulder),
        occ.addCircleArc(shoulder, nose, spiral[0], center=False),
    ]
    stator, _ = occ.cut([(2, surface(casing))], [(2, disc)])
    _, pieces = occ.fragment([(2, eye)], [*rotor, *stator])
    ((_, eye),), ((_, rotor_tag),), ((_, stator_tag),) = pieces
    return eye, rotor_tag, stator_tag


def _cell_size(model: Any, plan: PumpPlan, mesh_size: float) -> int:
    """Return the size field: mesh_size in the rotor, growing outwards, finer at the tongue."""
    radius = add_size(model, "MathEval", F="Sqrt(x*x + y*y)")
    growing = add_size(
        model,
        "Threshold",
        InField=radius,
        SizeMin=mesh_size,
        SizeMax=AT_OUTLET * mesh_size,
        DistMin=plan.rotor_radius,
        DistMax=float(np.linalg.norm(plan.outer_wall[1])),  # at the diffuser's end
    )
    # One cell around the rounded end would fold over.
    thickness = float(np.linalg.norm(plan.inner_wall[0] - plan.spiral[0]))
    tongue = add_size(
        model,
        "Ball",
        VIn=min(AT_TONGUE * mesh_size, thickness / 2.5),
        VOut=AT_OUTLET * mesh_size,
        XCenter=plan.nose[0],
        YCenter=plan.nose[1],
        Radius=thickness,
        Thickness=6 * thickness,
    )
    return add_size(model, "Min", FieldsList=[growing, tongue])
