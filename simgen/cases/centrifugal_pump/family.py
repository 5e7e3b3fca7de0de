"""centrifugal-pump: steady turbulent flow of water through impeller, volute and diffuser.

A rotating frame (MRF) models the impeller: its blades stand still in the mesh, and walls carry
omega x r. The paper's tables of the simulations and their designs (tab:sim-setup, tab:sim-design)
give four parameters, water, RANS, MRF and a uniform inlet velocity. Blades, casing, speed of
rotation and numerics are chosen here (docs/families/centrifugal-pump.md gives the reasons, and
explains why the labels of the two radii in the paper's table are exchanged).
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from simgen.case import Gate, SolvedCase
from simgen.cases import simple_foam
from simgen.cases.centrifugal_pump.geometry import DEPTH, PumpPlan, pump_plan
from simgen.cases.centrifugal_pump.mesh import mesh_pump
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.foam.field import read_flux
from simgen.foam.log import SolverLog, drift, read_series
from simgen.meshing import import_mesh, types_of, write_dictionaries
from simgen.point_cloud import BoundaryCloud
from simgen.quantities import CaseFields, Quantity

VISCOSITY, DENSITY, GRAVITY = 1e-6, 998.2, 9.81
KAPPA, ROUGHNESS = 0.41, 9.8  # The law of the wall's constants, as OpenFOAM has them
_ITERATIONS = 30
#: The mixing length as a share of the passage's width.
MIXING_SHARE = 0.07

PARAMETERS = (
    Parameter("inlet_radius", "mm", 80.0, 100.0, "of the impeller's eye and of the suction pipe"),
    Parameter("impeller_radius", "mm", 160.0, 200.0, "of the blades' tips; scales the casing too"),
    Parameter("blade_pitch_angle", "deg", 5.0, 40.0, "at the blade's tip, from the tangent"),
    Parameter("inlet_velocity", "m/s", 1.5, 3.5, "uniform velocity in the suction pipe"),
)
SETTINGS = (
    Parameter("mesh_size", "mm", 2.0, 16.0, "cell size in the impeller; others scale with it"),
    Parameter("rotation_speed", "rpm", 200.0, 6000.0, "speed of the impeller"),
    *simple_foam.ITERATION_SETTINGS,
)


def _head(case: CaseFields) -> float:
    """Subtract the total pressure at the inlet from that at the outlet, where p is zero."""
    inlet, outlet = case.faces("inlet"), case.faces("outlet")
    velocity = case.vectors("velocity")[outlet.cells]
    outflow = outlet.outflow(velocity)
    leaving = float(outflow @ (0.5 * (velocity**2).sum(axis=-1)) / outflow.sum())
    pressure = float(inlet.mean(case.cells("kinematic_pressure")[inlet.cells, 0]))
    entering = pressure + 0.5 * case.parameters["inlet_velocity"] ** 2
    return (leaving - entering) / GRAVITY


def _shaft_power(case: CaseFields) -> float:
    """Turn against the pressure in the cells at the impeller, and the wall's friction.

    Friction is some hundredth of it. The solver takes it from a wall function; here it is that of
    the logarithmic law, without the turbulent energy, which is not stored.
    """
    wall = case.faces("impeller")
    rotation = math.radians(360 / 60 * case.settings["rotation_speed"])  # rad/s
    x, y, _ = wall.points.T
    moving = rotation * np.stack([-y, x, np.zeros_like(x)], axis=1)
    beside = wall.tangential(case.vectors("velocity")[wall.cells] - moving)
    speed = np.maximum(np.linalg.norm(beside, axis=1), 1e-12)
    friction_velocity = np.sqrt(VISCOSITY * speed / wall.depth)
    for _ in range(_ITERATIONS):
        grown = ROUGHNESS * wall.depth * friction_velocity / VISCOSITY
        friction_velocity = KAPPA * speed / np.log(np.maximum(grown, math.e))
    friction = friction_velocity[:, None] ** 2 * beside / speed[:, None]
    traction = case.cells("kinematic_pressure")[wall.cells, 0, None] * wall.normals + friction
    moment = float((x * traction[:, 1] - y * traction[:, 0]) @ wall.areas)
    # The motor's moment is the water's with the opposite sign.
    return -DENSITY * moment * rotation


def _efficiency(case: CaseFields) -> float:
    # m3/s, as prescribed at the inlet
    flow_rate = float(case.parameters["inlet_velocity"] * case.faces("inlet").areas.sum())
    return DENSITY * GRAVITY * flow_rate * _head(case) / _shaft_power(case)


_ALL = ("velocity.x", "velocity.y", "velocity.z", "kinematic_pressure.p")
PUMP_QUANTITIES = tuple(
    Quantity(name, unit, meaning, from_fields, _ALL)
    for name, unit, meaning, from_fields in (
        ("head", "m", "total pressure that the water gains, as a height of water", _head),
        ("shaft_power", "W", "power that the impeller takes from its shaft", _shaft_power),
        ("efficiency", "1", "power given to the water over shaft power", _efficiency),
    )
)


class CentrifugalPump(simple_foam.SimpleFoamFamily):
    name = "centrifugal-pump"
    revision = 2
    title = "3D centrifugal pump"
    design_space = DesignSpace(PARAMETERS)
    settings_space = DesignSpace(SETTINGS)
    presets: Mapping[str, Mapping[str, float]] = {
        name: {
            "mesh_size": mesh_size,
            "rotation_speed": 2000.0,
            "max_iterations": max_iterations,
            "residual_target": 1e-6,
        }
        for name, mesh_size, max_iterations in (("paper", 3.4, 2500.0), ("trial", 8.5, 2000.0))
    }
    patches: Mapping[str, str] = {
        "inlet": "inlet",
        "outlet": "outlet",
        "casing": "wall",
        "impeller": "impeller",
    }
    quantities = PUMP_QUANTITIES
    drifts: Mapping[str, str] = {"head_drift": "the head"}

    def write_case(self, point: DesignPoint, directory: Path) -> None:
        plan, rotation = plan_of(point.parameters), angular_velocity(point)
        inlet_velocity = point.parameters["inlet_velocity"]
        inlet_energy, inlet_frequency = _turbulence(inlet_velocity, 2 * plan.eye_radius)
        start_energy, start_frequency = _turbulence(rotation * plan.impeller_radius, DEPTH)
        values = {
            **point.settings,
            "inlet_velocity": inlet_velocity,
            "angular_velocity": rotation,
            "viscosity": VISCOSITY,
            "density": DENSITY,
            "inlet_energy": inlet_energy,
            "inlet_frequency": inlet_frequency,
            "start_energy": start_energy,
            "start_frequency": start_frequency,
        }
        write_dictionaries(Path(__file__).parent / "dictionaries", directory, values)
        mesh_pump(directory / "mesh.msh", plan, point.settings["mesh_size"] * 1e-3)
        import_mesh(directory / "mesh.msh", directory, types_of(self.patches))

    def prescribed(self, point: DesignPoint, boundary: BoundaryCloud) -> dict[str, np.ndarray]:
        inlet, impeller = (
            boundary.patch == self.patch_kinds.index(kind) for kind in ("inlet", "impeller")
        )
        velocity = np.zeros((len(boundary.points), 3), np.float32)
        velocity[inlet, 2] = -point.parameters["inlet_velocity"]
        x, y, _ = boundary.points[impeller].T
        turning = np.stack([-y, x, np.zeros_like(x)], axis=1)
        velocity[impeller] = angular_velocity(point) * turning
        return {"velocity": velocity}

    def figures(self, case: SolvedCase, log: SolverLog) -> dict[str, float]:
        head = head_history(case.directory, log.time)
        flux = read_flux(case.directory).boundary
        flow_rate = -float(flux["inlet"].sum())
        # The water's moment on the impeller about the shaft is the motor's with the opposite sign.
        moments = read_series(case.directory, "impellerTorque", log.time, "moment.dat")
        torque = -float(moments[-1, 3])
        power = torque * angular_velocity(case.point)
        return {
            "head": float(head[-1]),
            "head_drift": drift(head, self.settling(case, log)),
            "flow_rate": flow_rate,
            "shaft_torque": torque,
            "shaft_power": power,
            "efficiency": DENSITY * GRAVITY * flow_rate * float(head[-1]) / power,
            **super().figures(case, log),
        }

    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        head = figures["head"]
        return [*super().gates(case, figures), Gate("head", head, "> 0", head > 0, "m")]


def plan_of(parameters: Mapping[str, float]) -> PumpPlan:
    return pump_plan(
        parameters["inlet_radius"] * 1e-3,
        parameters["impeller_radius"] * 1e-3,
        parameters["blade_pitch_angle"],
    )


def angular_velocity(point: DesignPoint) -> float:
    """Return rad/s, anticlockwise as seen from the suction side."""
    return math.radians(360 / 60 * point.settings["rotation_speed"])


def head_history(directory: Path, last: float) -> np.ndarray:
    """Return the (T,) head in m after each iteration until the `last`.

    It is the total pressure at the outlet minus that at the inlet, both averaged over the flow.
    """
    outlet, inlet = (
        read_series(directory, f"{patch}TotalPressure", last)[:, 1] for patch in ("outlet", "inlet")
    )
    return np.asarray((outlet - inlet) / GRAVITY)


def _turbulence(speed: float, width: float) -> tuple[float, float]:
    """Return k (m2/s2) and omega (1/s) of a flow with `speed` (m/s) in a passage of `width` (m)."""
    energy = simple_foam.turbulent_energy(speed)
    return energy, math.sqrt(energy) / (simple_foam.C_MU**0.25 * MIXING_SHARE * width)
