"""cylinder-flow: 2D laminar flow past a cylinder in a channel, a Karman vortex street.

Channel x in [-20, 40] m, y in [-10, 10] m, one cell thick. The paper's tables of the
simulations and their designs (tab:sim-setup, tab:sim-design) give Re = 90 and f = 0.022 Hz but
neither velocity nor viscosity; U_max = 0.4 m/s (mean 4/15 m/s) and nu = U_mean D / 90 at the radius
of 1.5 m reproduce both figures. The same fluid serves the whole space, so Re runs from 45 to 240
with the radius.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from simgen import meshing
from simgen.case import CaseFamily, Field, Gate, SampleLine, SolvedCase
from simgen.cases.cylinder.quantities import cylinder_quantities, force_figures
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.foam.log import SolverLog, read_series

INLET_X, OUTLET_X, HALF_HEIGHT, THICKNESS = -20.0, 40.0, 10.0, 1.0
PEAK_VELOCITY = 0.4
MEAN_VELOCITY = 2 / 3 * PEAK_VELOCITY
REFERENCE_RADIUS, REFERENCE_REYNOLDS = 1.5, 90.0
VISCOSITY = MEAN_VELOCITY * 2 * REFERENCE_RADIUS / REFERENCE_REYNOLDS
INLET_RAMP_S, KICK_DURATION_S = 1.0, 10.0
CELLS_AROUND = 40
#: Metres from the cylinder to where cells have their full size, and cells in its wake, in radii.
#: Both matter to small cylinders, whose street is otherwise too coarse (docs/validation.md).
NEAR_REACH, WAKE_CELL = 14.0, 0.4

MAX_COURANT = 1.5
MAX_MASS_IMBALANCE = 1e-3


class CylinderFlow(CaseFamily):
    name = "cylinder-flow"
    revision = 2
    title = "2D cylinder-obstructed flow"
    dimension = 2
    transient = True
    application = "icoFoam"
    # Behind the inlet's ramp, too, whose pressure is 100 times the later one.
    startup_s = KICK_DURATION_S
    #: Properties of the channel and its fluid. Override them for another channel with the same
    #: dictionaries and numerics.
    outlet_x = OUTLET_X
    viscosity = VISCOSITY
    design_space = DesignSpace(
        (
            Parameter("radius", "m", 0.75, 4.0, "radius of the cylinder"),
            Parameter("center_x", "m", -8.0, 8.0, "streamwise position of its centre"),
            Parameter("center_y", "m", -5.0, 5.0, "transverse position of its centre"),
        )
    )
    settings_space = DesignSpace(
        (
            Parameter("end_time", "s", 1.0, 1e5, "simulated time"),
            Parameter("time_step", "s", 1e-3, 1.0, "solver time step"),
            Parameter("snapshot_interval", "s", 0.1, 100.0, "time between stored snapshots"),
            Parameter("mesh_size", "m", 0.1, 2.0, "far from the cylinder; others scale with it"),
            Parameter("kick_velocity", "m/s", 0.0, 1.0, "of the cylinder for 10 s, to shed"),
        )
    )
    presets: Mapping[str, Mapping[str, float]] = {
        name: {
            "end_time": end_time,
            "time_step": 0.1,
            "snapshot_interval": 1.0,
            "mesh_size": 1.0,
            "kick_velocity": kick_velocity,
        }
        for name, end_time, kick_velocity in (("paper", 1000.0, 0.0), ("trial", 500.0, 0.4))
    }
    patches: Mapping[str, str] = {
        "inlet": "inlet",
        "outlet": "outlet",
        "walls": "wall",
        "cylinder": "cylinder",
    }
    fields = (
        Field("velocity", "m/s", ("x", "y"), "U"),
        Field("kinematic_pressure", "m2/s2", ("p",), "p"),
    )
    quantities = cylinder_quantities(VISCOSITY, MEAN_VELOCITY)

    def write_case(self, point: DesignPoint, directory: Path) -> None:
        values = {
            **point.parameters,
            **point.settings,
            "kick_duration_s": KICK_DURATION_S,
            "inlet_ramp_s": INLET_RAMP_S,
            "peak_velocity": PEAK_VELOCITY,
            "half_height": HALF_HEIGHT,
            "viscosity": self.viscosity,
        }
        meshing.write_dictionaries(Path(__file__).parent / "dictionaries", directory, values)
        _mesh(directory / "mesh.msh", point.parameters, point.settings["mesh_size"], self.outlet_x)
        types = meshing.types_of(self.patches) | {"frontAndBack": "empty"}
        meshing.import_mesh(directory / "mesh.msh", directory, types)

    def lines(self, parameters: Mapping[str, float]) -> Mapping[str, SampleLine]:
        """Return lines across the channel through the cylinder's wake."""
        radius, x = parameters["radius"], parameters["center_x"]
        places = {f"{far} D behind the centre": x + 2 * radius * far for far in (1, 2, 4)}
        return {n: ((at, -HALF_HEIGHT, 0.0), (at, HALF_HEIGHT, 0.0)) for n, at in places.items()}

    def settled_from_s(self, settings: Mapping[str, float]) -> float:
        """Return the middle of the run: the vortex street has grown by then."""
        return 0.5 * settings["end_time"]

    def figures(self, case: SolvedCase, log: SolverLog) -> dict[str, float]:
        forces = read_series(case.directory, "cylinderForces", log.time, "force.dat")
        forces = forces[forces[:, 0] >= self.settled_from_s(case.point.settings) * (1 - 1e-9)]
        diameter = 2 * case.point.parameters["radius"]
        # The slab is 1 m thick; the first three columns after the time are the whole force.
        coefficients = forces[:, 1:3] / (0.5 * MEAN_VELOCITY**2 * diameter * THICKNESS)
        return force_figures(forces[:, 0], coefficients, diameter / MEAN_VELOCITY)

    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        imbalance = figures["mass_imbalance"]
        return [
            *meshing.mesh_gates(figures),
            Gate.at_most("maximum Courant number", figures["max_courant"], MAX_COURANT),
            Gate.at_most("mass imbalance, inlet against outlet", imbalance, MAX_MASS_IMBALANCE),
        ]


def _mesh(file: Path, parameters: Mapping[str, float], mesh_size: float, outlet_x: float) -> None:
    """Mesh with 2,100 to 4,800 quadrilaterals at mesh_size 1; the smaller the cylinder, the more.

    There are 40 around the circumference, a finer wake, and six across the narrower gap.
    """
    radius, x, y = (parameters[name] for name in ("radius", "center_x", "center_y"))
    with meshing.gmsh_model("cylinder-flow") as gmsh:
        model, occ = gmsh.model, gmsh.model.occ
        z = -THICKNESS / 2
        channel = occ.addRectangle(INLET_X, -HALF_HEIGHT, z, outlet_x - INLET_X, 2 * HALF_HEIGHT)
        plan, _ = occ.cut([(2, channel)], [(2, occ.addDisk(x, y, z, radius, radius))])
        occ.synchronize()
        boundary = model.getBoundary([(2, plan[0][1])], oriented=False)
        circle = [tag for _, tag in boundary if model.getType(1, tag) != "Line"]
        distance = meshing.add_size(model, "Distance", CurvesList=circle, Sampling=200)
        near = meshing.add_size(
            model,
            "Threshold",
            InField=distance,
            SizeMin=2 * math.pi * radius / CELLS_AROUND * mesh_size,
            SizeMax=mesh_size,
            DistMin=0.3 * radius,
            DistMax=NEAR_REACH,
        )
        half_wake = 2 * radius + 1
        wake = meshing.add_size(
            model,
            "Box",
            VIn=min(0.62, WAKE_CELL * radius) * mesh_size,
            VOut=mesh_size,
            XMin=x,
            XMax=outlet_x,
            YMin=max(-HALF_HEIGHT, y - half_wake),
            YMax=min(HALF_HEIGHT, y + half_wake),
            Thickness=4.0,
        )
        # A jet flows through the narrower gap between cylinder and wall: at least six cells across.
        gap_width = HALF_HEIGHT - abs(y) - radius
        low, high = sorted(math.copysign(at, y) for at in (HALF_HEIGHT, HALF_HEIGHT - gap_width))
        gap = meshing.add_size(
            model,
            "Box",
            VIn=min(1.0, gap_width / 6) * mesh_size,
            VOut=mesh_size,
            XMin=x - radius,
            XMax=x + radius,
            YMin=low,
            YMax=high,
            Thickness=3.0,
        )
        finest = meshing.add_size(model, "Min", FieldsList=[near, wake, gap])
        model.mesh.setRecombine(2, plan[0][1])
        extruded = occ.extrude(plan, 0, 0, THICKNESS, numElements=[1], recombine=True)
        occ.synchronize()
        (volume,) = (tag for dim, tag in extruded if dim == 3)
        # OpenFOAM's patches take the names of the physical groups, by where a surface lies.
        surfaces: dict[str, list[int]] = {}
        tolerance = 1e-3
        for _, tag in model.getBoundary([(3, volume)], oriented=False):
            x_min, y_min, z_min, x_max, y_max, z_max = model.getBoundingBox(2, tag)
            if z_max - z_min < tolerance:
                name = "frontAndBack"
            elif x_max < INLET_X + tolerance:
                name = "inlet"
            elif x_min > outlet_x - tolerance:
                name = "outlet"
            elif y_max - y_min < tolerance:
                name = "walls"
            else:
                name = "cylinder"
            surfaces.setdefault(name, []).append(tag)
        model.addPhysicalGroup(3, [volume], name="fluid")
        for name, tags in surfaces.items():
            model.addPhysicalGroup(2, tags, name=name)
        meshing.write_quadrilaterals(gmsh, file, finest)
