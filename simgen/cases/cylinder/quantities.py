"""Declare what is asked of a cylinder: drag, lift and the frequency of its wake.

Forces are those of the flow on the cylinder, as coefficients: over half the mean velocity squared,
the diameter and the density. A monitor measures them in the solver. From fields they are the
pressure in the cells at the cylinder, and the friction from the velocity in these cells over their
distance from the wall at rest, which is what the solver's own scheme has in laminar flow.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from simgen.cases.cylinder.shedding import peak_frequency, shedding
from simgen.quantities import CaseFields, Quantity

#: Fewer states than this give no frequency.
LEAST_STATES = 16
#: A lift coefficient whose root mean square is lower belongs to a steady wake.
STEADY_LIFT = 0.01


def cylinder_quantities(viscosity: float, mean_velocity: float) -> tuple[Quantity, ...]:
    """Declare the quantities for a fluid (m2/s) and a mean velocity of the inflow (m/s)."""
    velocity, pressure = ("velocity.x", "velocity.y"), ("kinematic_pressure.p",)
    drag, half = "mean drag coefficient of the cylinder", "over the last half of the run"
    lift = "root mean square of the lift coefficient about its mean"
    wake = "frequency of vortex shedding times diameter over mean velocity; 0 in a steady wake"
    of_force, both = partial(_of_force, viscosity, mean_velocity), velocity + pressure
    frequency = partial(_strouhal_number, mean_velocity)
    return (
        Quantity("mean_drag", "1", drag, partial(of_force, 0, np.mean), both, over=half),
        Quantity("rms_lift", "1", lift, partial(of_force, 1, np.std), both, over=half),
        Quantity("strouhal_number", "1", wake, frequency, velocity, over=half),
    )


def force_figures(
    time: np.ndarray, coefficients: np.ndarray, time_scale: float
) -> dict[str, float]:
    """Reduce (T, 2) coefficients of drag and lift at times (T,) s to the quantities.

    `time_scale` is diameter over mean velocity in s.
    """
    mean_drag, swing = coefficients[:, 0].mean(), coefficients[:, 1] - coefficients[:, 1].mean()
    rms_lift = float(np.sqrt((swing**2).mean()))
    strouhal = float("nan")
    if len(time) >= LEAST_STATES:
        interval = float(np.diff(time).mean())
        steady = rms_lift < STEADY_LIFT
        strouhal = 0.0 if steady else peak_frequency(swing, interval) * time_scale
    return {"mean_drag": float(mean_drag), "rms_lift": rms_lift, "strouhal_number": strouhal}


def _of_force(
    viscosity: float, mean_velocity: float, axis: int, reduce: Any, case: CaseFields
) -> float:
    """Reduce the coefficients over time of drag (axis 0) or lift (1)."""
    faces = case.faces("cylinder")
    pressure = case.cells("kinematic_pressure")[:, faces.cells, 0]
    # With the part normal to the wall, as the solver's forces have it: without it the friction is
    # 5 % lower, and the drag 1 %.
    shear = viscosity * case.vectors("velocity")[:, faces.cells] / faces.depth[:, None]
    force = ((pressure[..., None] * faces.normals + shear) * faces.areas[:, None]).sum(axis=1)
    # The slab is 1 m thick.
    diameter = 2 * case.parameters["radius"]
    return float(reduce(force[:, axis] / (0.5 * mean_velocity**2 * diameter)))


def _strouhal_number(mean_velocity: float, case: CaseFields) -> float:
    """Read the frequency from probes in the wake."""
    time, radius = case.cloud.time, case.parameters["radius"]
    if time is None or len(time) < LEAST_STATES:
        return math.nan
    center = (case.parameters["center_x"], case.parameters["center_y"])
    found = shedding(case.cloud, radius=radius, center=center, start=float(time[0]))
    if math.isnan(found.fluctuation):
        return math.nan
    return (found.frequency or 0.0) * 2 * radius / mean_velocity
