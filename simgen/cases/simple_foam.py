"""Define settings and turbulence constants shared by the families solved with simpleFoam."""

from simgen.design_space import Parameter

ITERATION_SETTINGS = (
    Parameter(
        "max_iterations",
        "1",
        10.0,
        1e5,
        "SIMPLE iterations, if the residuals do not get there before",
    ),
    Parameter("residual_target", "1", 1e-9, 1e-2, "initial residuals at which the solver ends"),
)
C_MU = 0.09
INTENSITY = 0.05  # Turbulence intensity where the flow enters


def turbulent_energy(speed: float) -> float:
    """Return k (m2/s2) of a flow with mean `speed` (m/s)."""
    return 1.5 * (INTENSITY * speed) ** 2
