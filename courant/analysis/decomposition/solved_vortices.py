"""Find the vortex cores of a stored solution along a rollout of its case."""

from __future__ import annotations

import numpy as np

from courant.analysis.decomposition.vortices import swirl, velocity_gradients, vortex_cores
from courant.prediction.surrogate import Surrogate
from simgen.store.access.stored_case import StoredCase

RADIUS = 0.5
"""Of a core's surroundings, in spacings of the anchors: they cannot tell nearer ones apart"""


def solved_cores(
    surrogate: Surrogate, case: StoredCase, start_s: float, spacing_m: float
) -> list[np.ndarray] | None:
    """Return the cores (n, d) m at each step of a rollout of the training's length.

    None where the velocity is not modelled in all directions of the domain, or the case has no
    solution at one of the times.
    """
    dimension = case.dataset.schema.dimension
    names = [f"velocity.{axis}" for axis in "xyz"[:dimension]]
    times = surrogate.times(start_s)
    if times is None or dimension < 2 or not set(names) <= set(surrogate.channels):
        return None
    columns = [surrogate.channels.index(name) for name in names]
    points = case.points[:, :dimension]
    found = []
    for time in times.tolist():
        state = surrogate.problem.solution(case, time)
        if state is None:
            return None
        strength = swirl(velocity_gradients(points, state[:, columns]))
        found.append(vortex_cores(points, strength, RADIUS * spacing_m))
    return found
