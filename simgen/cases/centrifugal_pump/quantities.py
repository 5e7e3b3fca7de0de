"""Declare what is asked of a pump: head, shaft power and efficiency.

The moment on the impeller is that of the pressure in the cells at its walls, and of the wall's
friction, some hundredth of it. The solver takes the friction from a wall function; here it is the
logarithmic law's, from the speed in the cell and the cell's distance from the wall, without the
turbulent energy, which is not stored.
"""

import math

import numpy as np

from simgen.quantities import CaseFields, Quantity

VISCOSITY, DENSITY, GRAVITY = 1e-6, 998.2, 9.81
KAPPA, ROUGHNESS = 0.41, 9.8  # The law of the wall's constants, as OpenFOAM has them
_ITERATIONS = 30


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
    """Turn against pressure and friction, the kinematic wall shear of the logarithmic law."""
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
