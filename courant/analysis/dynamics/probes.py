"""Read the rhythm of a flow: at probes in a cylinder's wake, elsewhere from its leading mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.spatial import cKDTree

from courant.analysis.dynamics.modes import pod
from simgen.wake import PROBES

CYLINDER = ("radius", "center_x", "center_y")
"""Design parameters that say where the wake is"""
NEAR_DIAMETERS = 0.5
"""A probe farther than this from every point lies outside the channel"""


def wake_probes(parameters: Mapping[str, float], points: np.ndarray) -> np.ndarray:
    """Return the numbers of the points nearest to the probes (1D, +-1D) and (3D, 0).

    Probes outside the domain are left out; empty where the parameters are not a cylinder's.
    """
    if not set(CYLINDER) <= set(parameters):
        return np.zeros(0, dtype=int)
    diameter = 2 * parameters["radius"]
    centre = np.array([parameters["center_x"], parameters["center_y"]])
    places = centre + diameter * np.array(PROBES)
    distance, nearest = cKDTree(points[:, :2]).query(places)
    return np.asarray(nearest)[distance < NEAR_DIAMETERS * diameter]


def reference_series(
    states: np.ndarray,
    channels: Sequence[str],
    points: np.ndarray,
    volumes: np.ndarray,
    parameters: Mapping[str, float],
) -> tuple[np.ndarray, str]:
    """Return time series (T, P) of states (T, N, C) that show the flow's rhythm, and their name.

    These are the transverse velocity at the wake's probes where there is a cylinder, and else the
    coefficient of the leading POD mode.
    """
    cells = wake_probes(parameters, points)
    if len(cells) and "velocity.y" in channels:
        return states[:, cells, list(channels).index("velocity.y")].astype(float), "wake probes"
    return pod(states.astype(float), volumes, rank=1).coefficients, "leading POD mode"
