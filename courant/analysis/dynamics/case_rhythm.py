"""Read the rhythm of a stored case: what swings in its solution, and how fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from courant.analysis.dynamics.frequencies import peak_frequency
from courant.analysis.dynamics.probes import Rhythm, reference_rhythm
from courant.prediction.surrogate import Surrogate
from courant.problems.transient import read_states, time_tolerance
from simgen.store.read import StoredCase

STEADY = 0.05
"""A rhythm weaker than this share of the training's standard deviation counts as none"""


@dataclass(frozen=True)
class CaseRhythm:
    """The F snapshots of a solution from some time on, and the frequency at which they swing."""

    times: np.ndarray
    """(F,) s"""
    states: np.ndarray
    """(F, N, C)"""
    volumes: np.ndarray
    """(N,), ones where the dataset has none"""
    rhythm: Rhythm
    series: np.ndarray
    """What the rhythm is read from, (F, P)"""
    frequency: float
    """Hz, from all these snapshots"""

    def frames(self, wanted: np.ndarray) -> np.ndarray:
        """Return the numbers of the snapshots nearest to times (T,) in s."""
        return np.asarray(np.abs(self.times[None] - wanted[:, None]).argmin(axis=1))


def read_rhythm(surrogate: Surrogate, case: StoredCase, start: float) -> CaseRhythm | None:
    """Return the rhythm of a case from `start` s on; None for a flow that stands still."""
    assert case.time is not None
    late = np.flatnonzero(case.time >= start - time_tolerance(case.time))
    if len(late) < 2:
        return None
    states = read_states(case, surrogate.normaliser.channels, slice(int(late[0]), None))
    std = np.asarray(surrogate.normaliser.std, np.float32)
    volumes = case.volumes if case.dataset.schema.volumes else np.ones(case.num_points)
    rhythm = reference_rhythm(
        states, surrogate.channels, std, case.points, volumes, case.parameters
    )
    series = rhythm.read(states)
    if rhythm.strength(series) <= STEADY:
        return None
    times = np.asarray(case.time[late])
    frequency = mean_frequency(series, float(np.diff(times).mean()))
    return CaseRhythm(times, states, volumes, rhythm, series, frequency)


def mean_frequency(series: np.ndarray, interval_s: float) -> float:
    """Return the mean over series (T, P) of their dominant frequencies, Hz."""
    centred = series - series.mean(axis=0)
    return float(np.mean([peak_frequency(each, interval_s) for each in centred.T]))
