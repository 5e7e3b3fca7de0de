"""branched-pipe: steady turbulent flow of air in a Y-shaped duct with baffle plates.

A 50 x 50 mm duct divides in the plane (x, z). Two plates before the junction leave an aperture; a
third at the crotch steers the jet into one branch. The paper's tables of the simulations and
their designs (tab:sim-setup, tab:sim-design) give the five parameters and the 1/7th power law at
the inlet. Lengths, plates, fluid and numerics are chosen here (docs/families/branched-pipe.md gives
the reasons).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from simgen.case import Gate, SampleLine, SolvedCase
from simgen.cases import simple_foam
from simgen.cases.branched_pipe.geometry import PLATES_X, WIDTH, mesh_plan, plan_of
from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.foam.field import read_field
from simgen.foam.log import SolverLog, drift, read_series
from simgen.foam.mesh import read_geometry, time_directories
from simgen.meshing import import_mesh, types_of, write_dictionaries
from simgen.point_cloud import BoundaryCloud
from simgen.quantities import CaseFields, Quantity

VISCOSITY = 1.5e-5
#: 7 % of the hydraulic diameter, as in a straight duct.
MIXING_LENGTH = 0.07 * WIDTH

MAX_RESIDUAL = 1e-4

TEMPLATES = Path(__file__).parent / "dictionaries"

PARAMETERS = (
    Parameter("baffle_angle", "deg", 0.0, 60.0, "middle plate, from the trunk towards branch 1"),
    Parameter("aperture", "mm", 20.0, 37.0, "opening between the two inlet plates"),
    Parameter("duct_angle", "deg", 75.0, 120.0, "angle between the two branches"),
    Parameter("curvature_angle", "deg", 90.0, 180.0, "inside the bend of branch 1; straight: 180"),
    Parameter("inlet_velocity", "m/s", 3.0, 10.0, "mean velocity at the inlet"),
)
SETTINGS = (
    Parameter("mesh_size", "mm", 1.5, 12.0, "cell size; three fifths of it at the plates"),
    *simple_foam.ITERATION_SETTINGS,
)


def _pressure_loss(case: CaseFields) -> float:
    """Average the pressure behind the inlet's faces; the outlets' is zero."""
    inlet = case.faces("inlet")
    return float(inlet.mean(case.cells("kinematic_pressure")[inlet.cells, 0]))


def _branch1_share(case: CaseFields) -> float:
    """Compare the flow through the outlet above the trunk's axis with that through both."""
    outlets = case.faces("outlet")
    outflow = outlets.outflow(case.vectors("velocity")[outlets.cells])
    return float(outflow[outlets.points[:, 2] > 0].sum() / outflow.sum())


def _peak_speed(case: CaseFields) -> float:
    return float(np.linalg.norm(case.cells("velocity"), axis=-1).max())


_LOSS = "kinematic pressure at the inlet, averaged over its area; it is zero at the outlets"
_SPLIT = "flow split: the share of the flow that leaves through branch 1"
_ALL = ("velocity.x", "velocity.y", "velocity.z")
PIPE_QUANTITIES = (
    Quantity("pressure_loss", "m2/s2", _LOSS, _pressure_loss, ("kinematic_pressure.p",)),
    # The outlets' normals lie in the plane of the ducts.
    Quantity("branch1_share", "1", _SPLIT, _branch1_share, ("velocity.x", "velocity.z")),
    Quantity("peak_speed", "m/s", "greatest speed in any cell", _peak_speed, _ALL),
)


class BranchedPipe(simple_foam.SimpleFoamFamily):
    name = "branched-pipe"
    revision = 2
    title = "3D branched pipe flow"
    preparation = ("createBaffles",)
    design_space = DesignSpace(PARAMETERS)
    settings_space = DesignSpace(SETTINGS)
    presets: Mapping[str, Mapping[str, float]] = {
        "paper": {"mesh_size": 4.1, "max_iterations": 2000.0, "residual_target": 1e-7},
        "trial": {"mesh_size": 7.0, "max_iterations": 1500.0, "residual_target": 1e-7},
    }
    patches: Mapping[str, str] = {
        "inlet": "inlet",
        "outlet1": "outlet",
        "outlet2": "outlet",
        "walls": "wall",
        "plates": "wall",
    }
    quantities = PIPE_QUANTITIES
    drifts: Mapping[str, str] = {
        "pressure_loss_drift": "the pressure loss",
        "flow_split_drift": "the flow split",
    }

    def write_case(self, point: DesignPoint, directory: Path) -> None:
        speed = point.parameters["inlet_velocity"]
        energy = simple_foam.turbulent_energy(speed)
        values = {
            **point.settings,
            "viscosity": VISCOSITY,
            "mean_velocity": speed,
            "half_width": WIDTH / 2,
            "turbulent_energy": energy,
            "dissipation": simple_foam.C_MU**0.75 * energy**1.5 / MIXING_LENGTH,
        }
        for part in ("system", "constant"):
            write_dictionaries(TEMPLATES / part, directory / part, values)
        file, size = directory / "mesh.msh", point.settings["mesh_size"] * 1e-3
        mesh_plan(file, plan_of(point.parameters), size)
        import_mesh(file, directory, types_of(self.patches), baffles=True)
        # The profile of peak 1, averaged over the inlet's faces as valueExpr in 0/U computes it: it
        # is (7/8)^2 on a fine mesh.
        geometry = read_geometry(directory)
        faces = geometry.patches["inlet"].faces
        areas = np.linalg.norm(geometry.face_areas[faces], axis=1)
        mean = float(_power_law(geometry.face_centres[faces]) @ areas / areas.sum())
        peak = speed / mean
        # After the mesh: the peak depends on the inlet's faces, and createBaffles would read the
        # fields.
        write_dictionaries(TEMPLATES / "0", directory / "0", {**values, "peak_velocity": peak})

    def prescribed(self, point: DesignPoint, boundary: BoundaryCloud) -> dict[str, np.ndarray]:
        inlet = boundary.patch == self.patch_kinds.index("inlet")
        profile, areas = _power_law(boundary.points[inlet]), boundary.areas[inlet]
        velocity = np.zeros((len(boundary.points), 3), np.float32)
        mean = profile @ areas / areas.sum()
        velocity[inlet, 0] = point.parameters["inlet_velocity"] * profile / mean
        return {"velocity": velocity}

    def lines(self, parameters: Mapping[str, float]) -> Mapping[str, SampleLine]:
        """Return lines across the duct, between its plates and the junction."""
        half = WIDTH / 2
        places = {f"{far} mm behind the plates": PLATES_X + far * 1e-3 for far in (50, 100, 150)}
        return {name: ((at, 0.0, -half), (at, 0.0, half)) for name, at in places.items()}

    def figures(self, case: SolvedCase, log: SolverLog) -> dict[str, float]:
        speed = case.point.parameters["inlet_velocity"]
        pressure = read_series(case.directory, "inletPressure", log.time)[:, 1]
        branch1, branch2 = (
            read_series(case.directory, f"{branch}Flow", log.time)[:, 1]
            for branch in ("branch1", "branch2")
        )
        _, last = time_directories(case.directory)[-1]
        velocity = read_field(last / "U").internal
        share, window = branch1 / (branch1 + branch2), self.settling(case, log)
        return {
            "pressure_loss": float(pressure[-1]),
            "loss_coefficient": float(pressure[-1] / (0.5 * speed**2)),
            "pressure_loss_drift": drift(pressure, window),
            "branch1_share": float(share[-1]),
            "peak_speed": float(np.linalg.norm(velocity, axis=1).max()),
            # As a share of the whole flow: one branch may get next to nothing.
            "flow_split_drift": float(np.ptp(share[-window:])),
            **super().figures(case, log),
        }

    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        return [
            *super().gates(case, figures),
            Gate.at_most("greatest initial residual", figures["max_residual"], MAX_RESIDUAL),
        ]


def _power_law(centres: np.ndarray) -> np.ndarray:
    """Return (F,): the inlet profile of peak 1 at faces' centres (F, 3)."""
    inside = np.maximum(1 - np.abs(centres[:, 1:].astype(float)) / (WIDTH / 2), 0)
    return np.asarray(np.prod(inside, axis=1) ** (1 / 7))
