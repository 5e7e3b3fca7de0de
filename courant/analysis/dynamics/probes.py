"""Read the rhythm of a flow: at probes in a cylinder's wake, elsewhere from its leading mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from simgen.wake import PROBES

PART = 4_000_000
"""Values of the states that are copied at a time"""

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


@dataclass(frozen=True)
class Rhythm:
    """What shows the rhythm of a flow, read in the same way from a solution and a prediction."""

    name: str
    read: Callable[[np.ndarray], np.ndarray]
    """(T, N, C) -> (T, P)"""
    usual: float
    """The standard deviation, over the training, of what it reads"""
    places: np.ndarray | None = None
    """(P, d) m of the probes; None where it reads no places"""

    def strength(self, series: np.ndarray) -> float:
        """Return the root mean square of series (T, P) about their means, over what is usual."""
        return float(np.sqrt(series.var(axis=0).mean())) / self.usual


def reference_rhythm(
    states: np.ndarray,
    channels: Sequence[str],
    std: np.ndarray,
    points: np.ndarray,
    volumes: np.ndarray,
    parameters: Mapping[str, float],
) -> Rhythm:
    """Return what shows the rhythm of a solution, states (T, N, C) of channels with `std` (C,).

    These are the transverse velocity at the wake's probes where there is a cylinder, and else the
    coefficient of the solution's leading POD mode, of fields over their standard deviations.
    """
    cells = wake_probes(parameters, points)
    if len(cells) and "velocity.y" in channels:
        column = list(channels).index("velocity.y")
        return Rhythm(
            "wake probes",
            lambda of: of[:, cells, column].astype(float),
            float(std[column]),
            points[cells],
        )
    scale = np.sqrt(volumes / volumes.sum())[:, None] / np.asarray(std)
    mean = states.mean(axis=0, dtype=np.float64)
    mode = _leading_mode(states, mean, scale)

    def coefficient(of: np.ndarray) -> np.ndarray:
        found = np.zeros((len(of), 1))
        for part in _parts(of):
            found[:, 0] += np.tensordot((of[:, part] - mean[part]) * scale[part], mode[part], 2)
        return found

    return Rhythm("leading POD mode", coefficient, 1.0)


def _leading_mode(states: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the direction (N, C), of norm one, in which scaled states (T, N, C) vary most.

    From the snapshots' Gram matrix, so that only a part of the points is copied at a time.
    """
    gram = np.zeros((len(states), len(states)))
    for part in _parts(states):
        deviation = ((states[:, part] - mean[part]) * scale[part]).reshape(len(states), -1)
        gram += deviation @ deviation.T
    leading = np.linalg.eigh(gram)[1][:, -1]
    mode = np.concatenate(
        [
            np.tensordot(leading, (states[:, part] - mean[part]) * scale[part], 1)
            for part in _parts(states)
        ]
    )
    norm = np.linalg.norm(mode)
    return mode / norm if norm else mode


def _parts(states: np.ndarray) -> Iterator[slice]:
    """Yield parts of the points of (T, N, C), of some millions of values each."""
    size = max(1, PART // (len(states) * states.shape[-1]))
    for start in range(0, states.shape[1], size):
        yield slice(start, start + size)
