"""Declare what is asked of a duct: its pressure loss, how the flow divides, and its peak speed."""

import numpy as np

from simgen.quantities import CaseFields, Quantity


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
