"""centrifugal-pump: steady turbulent flow of water through impeller, volute and diffuser (Tables tab:sim-setup, tab:sim-design).

A rotating frame (MRF) takes the impeller's place: its blades stand still in the mesh, and walls carry omega x r. The paper gives four
parameters, water, RANS, MRF and a uniform inlet velocity; blades, casing, speed of rotation and numerics are chosen here
(docs/families/centrifugal-pump.md says why, and why the two radii of its table are read with their labels exchanged).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from simgen.case import CaseFamily, Field, Gate, SolvedCase
from simgen.cases.centrifugal_pump_geometry import DEPTH, PumpPlan, pump_plan
from simgen.cases.centrifugal_pump_mesh import mesh_pump
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.foam.field import read_field, time_directories
from simgen.foam.log import SolverLog
from simgen.foam.monitors import drift, read_series, residual_figures, settling_window, y_plus_figures
from simgen.meshing import import_mesh
from simgen.templates import write_dictionaries

VISCOSITY, DENSITY, GRAVITY = 1e-6, 998.2, 9.81
#: 5 % turbulence intensity, and a mixing length of 7 % of the passage.
INTENSITY, MIXING_SHARE = 0.05, 0.07
C_MU = 0.09

MAX_NON_ORTHOGONALITY = 65.0
MAX_MASS_IMBALANCE = 1e-3
MAX_DRIFT = 0.005
MAX_BACK_FLOW = 0.05

PATCH_TYPES = {"inlet": "patch", "outlet": "patch", "casing": "wall", "impeller": "wall"}


class CentrifugalPump(CaseFamily):
    name = "centrifugal-pump"
    revision = 1
    title = "3D centrifugal pump"
    dimension = 3
    transient = False
    application = "simpleFoam"
    horizon = "max_iterations"
    design_space = DesignSpace(
        (
            Parameter("inlet_radius", "mm", 80.0, 100.0, "radius of the impeller's eye and of the suction pipe"),
            Parameter("impeller_radius", "mm", 160.0, 200.0, "radius of the blades' tips; the casing scales with it"),
            Parameter("blade_pitch_angle", "deg", 5.0, 40.0, "blade's angle at the tip, from the tangential direction"),
            Parameter("inlet_velocity", "m/s", 1.5, 3.5, "uniform velocity in the suction pipe"),
        )
    )
    settings_space = DesignSpace(
        (
            Parameter(
                "mesh_size", "mm", 2.0, 16.0, "cell size in the impeller's passages; everything else scales with it"
            ),
            Parameter("rotation_speed", "rpm", 200.0, 6000.0, "speed of the impeller"),
            Parameter("max_iterations", "1", 10.0, 1e5, "SIMPLE iterations, if the residuals do not get there before"),
            Parameter("residual_target", "1", 1e-9, 1e-2, "initial residuals at which the solver ends"),
        )
    )
    presets: Mapping[str, Mapping[str, float]] = {
        "paper": {"mesh_size": 3.4, "rotation_speed": 2000.0, "max_iterations": 2500.0, "residual_target": 1e-6},
        "trial": {"mesh_size": 8.5, "rotation_speed": 2000.0, "max_iterations": 2000.0, "residual_target": 1e-6},
    }
    patches: Mapping[str, str] = {"inlet": "inlet", "outlet": "outlet", "casing": "wall", "impeller": "impeller"}
    fields = (
        Field("velocity", "m/s", ("x", "y", "z"), "U"),
        Field("kinematic_pressure", "m2/s2", ("p",), "p"),
    )

    def write_case(self, point: DesignPoint, directory: Path) -> None:
        plan, rotation = plan_of(point.parameters), angular_velocity(point)
        inlet_velocity = point.parameters["inlet_velocity"]
        inlet_energy, inlet_frequency = _turbulence(inlet_velocity, 2 * plan.eye_radius)
        start_energy, start_frequency = _turbulence(rotation * plan.impeller_radius, DEPTH)
        values = {
            **{name: point.settings[name] for name in ("max_iterations", "residual_target")},
            "inlet_velocity": inlet_velocity,
            "angular_velocity": rotation,
            "viscosity": VISCOSITY,
            "density": DENSITY,
            "inlet_energy": inlet_energy,
            "inlet_frequency": inlet_frequency,
            "start_energy": start_energy,
            "start_frequency": start_frequency,
        }
        write_dictionaries(Path(__file__).parent / "centrifugal_pump", directory, values)
        mesh_pump(directory / "mesh.msh", plan, point.settings["mesh_size"] * 1e-3)
        import_mesh(directory / "mesh.msh", directory, PATCH_TYPES)

    def figures(self, case: SolvedCase, log: SolverLog) -> dict[str, float]:
        head = head_history(case.directory)
        flux = read_field(time_directories(case.directory)[-1][1] / "phi").boundary
        flow_rate = -float(flux["inlet"].sum())
        # The moment that the water exerts on the impeller about the shaft is the motor's with the other sign.
        torque = -float(read_series(case.directory, "impellerTorque")[-1, 3])
        power = torque * angular_velocity(case.point)
        return {
            "head": float(head[-1]),
            "head_drift": drift(head, settling_window(log.num_steps, case.point.settings["max_iterations"])),
            "flow_rate": flow_rate,
            "shaft_torque": torque,
            "shaft_power": power,
            "efficiency": DENSITY * GRAVITY * flow_rate * float(head[-1]) / power,
            **residual_figures(log),
            **y_plus_figures(case.directory),
        }

    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        return [
            Gate.at_most("mesh checks failed", figures["failed_checks"], 0),
            Gate.at_most("mesh non-orthogonality", figures["max_non_orthogonality"], MAX_NON_ORTHOGONALITY, "deg"),
            Gate.at_most("mass imbalance, inlet against outlet", figures["mass_imbalance"], MAX_MASS_IMBALANCE),
            Gate.above("head", figures["head"], 0, "m"),
            Gate.at_most("drift of the head", figures["head_drift"], MAX_DRIFT),
            Gate.at_most("back-flow through the outlet, of the inlet's flow", figures["back_flow"], MAX_BACK_FLOW),
        ]


def plan_of(parameters: Mapping[str, float]) -> PumpPlan:
    """The plan view of a design."""
    return pump_plan(
        parameters["inlet_radius"] * 1e-3, parameters["impeller_radius"] * 1e-3, parameters["blade_pitch_angle"]
    )


def angular_velocity(point: DesignPoint) -> float:
    """rad/s, anticlockwise seen from the suction side."""
    return math.radians(360 / 60 * point.settings["rotation_speed"])


def head_history(directory: Path) -> np.ndarray:
    """(T,) head in m after each iteration: total pressure at the outlet less that at the inlet, both averaged over the flow."""
    outlet, inlet = (read_series(directory, f"{patch}TotalPressure")[:, 1] for patch in ("outlet", "inlet"))
    return np.asarray((outlet - inlet) / GRAVITY)


def _turbulence(speed: float, width: float) -> tuple[float, float]:
    """k (m2/s2) and omega (1/s) of a flow with `speed` (m/s) in a passage of `width` (m)."""
    energy = 1.5 * (INTENSITY * speed) ** 2
    return energy, math.sqrt(energy) / (C_MU**0.25 * MIXING_SHARE * width)
