"""Tell to which side wall the jet behind the inlet plates leans: either is a solution."""

from __future__ import annotations

import numpy as np

from simgen.cases.branched_pipe.geometry import PLATES_X
from simgen.quantities import CaseFields, State

#: m: the jet is looked at in the trunk behind the inlet plates, off the middle of the section.
JET_X, JET_Z = (PLATES_X + 0.025, PLATES_X + 0.125), 0.008


def jet_lean(points: np.ndarray, velocity: np.ndarray) -> float:
    """Return u_x on the trunk's half of branch 1 less that on the other half, in m/s.

    Of cells (N, 3) in m with velocities (N, 3) in m/s.
    """
    (x, _, z), along = np.asarray(points).T, np.asarray(velocity)[:, 0]
    inside = (x > JET_X[0]) & (x < JET_X[1])
    upper, lower = along[inside & (z > JET_Z)], along[inside & (z < -JET_Z)]
    return float(upper.mean() - lower.mean()) if len(upper) and len(lower) else float("nan")


def _is_upper(case: CaseFields) -> bool | None:
    lean = jet_lean(case.cloud.points, case.vectors("velocity"))
    return None if np.isnan(lean) else lean > 0


PIPE_STATES = (
    State(
        "jet_towards_branch1",
        "the jet behind the inlet plates runs along the side wall of branch 1",
        _is_upper,
        ("velocity.x",),
    ),
)
