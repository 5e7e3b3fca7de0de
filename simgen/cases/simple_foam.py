"""Define what the families share that simpleFoam solves: settings, fields, figures and gates."""

from collections.abc import Mapping

from simgen.case import CaseFamily, Field, Gate, SolvedCase
from simgen.design_space import Parameter
from simgen.foam.log import SolverLog, residual_figures, settling_window, y_plus_figures
from simgen.meshing import mesh_gates

ITERATION_SETTINGS = (
    Parameter("max_iterations", "1", 10.0, 1e5, "SIMPLE iterations, at most"),
    Parameter("residual_target", "1", 1e-9, 1e-2, "initial residuals at which the solver ends"),
)
C_MU = 0.09
INTENSITY = 0.05  # Turbulence intensity where the flow enters
MAX_MASS_IMBALANCE, MAX_DRIFT, MAX_BACK_FLOW = 1e-3, 0.005, 0.05


class SimpleFoamFamily(CaseFamily):
    dimension = 3
    transient = False
    application = "simpleFoam"
    horizon = "max_iterations"
    flow_parameters = ("inlet_velocity",)
    fields = (
        Field("velocity", "m/s", ("x", "y", "z"), "U"),
        Field("kinematic_pressure", "m2/s2", ("p",), "p"),
    )

    drifts: Mapping[str, str]
    """Monitors that must stay the same, by the figure of their drift"""

    def settling(self, case: SolvedCase, log: SolverLog) -> int:
        """Return over how many iterations at the end monitors must stay the same."""
        return settling_window(log.num_steps, case.point.settings["max_iterations"])

    def figures(self, case: SolvedCase, log: SolverLog) -> dict[str, float]:
        return {**residual_figures(log), **y_plus_figures(case.directory)}

    def gates(self, case: SolvedCase, figures: Mapping[str, float]) -> list[Gate]:
        imbalance, entering = figures["mass_imbalance"], figures["back_flow"]
        return [
            *mesh_gates(figures),
            Gate.at_most("mass imbalance, inlet against outlets", imbalance, MAX_MASS_IMBALANCE),
            Gate.at_most("back-flow, of the inlet's flow", entering, MAX_BACK_FLOW),
            *(
                Gate.at_most(f"drift of {of}", figures[n], MAX_DRIFT)
                for n, of in self.drifts.items()
            ),
        ]


def turbulent_energy(speed: float) -> float:
    """Return k (m2/s2) of a flow with mean `speed` (m/s)."""
    return 1.5 * (INTENSITY * speed) ** 2
