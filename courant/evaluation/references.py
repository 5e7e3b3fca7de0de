"""What a model has to beat: predictions that cost nothing.

persistence    the initial field, held: hard to beat early, in steady wakes, and whenever a period has just passed
training mean  the mean flow of the training cases at the same place: what is known without looking at the initial field
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.spatial import cKDTree

from courant.data.normalisation import Channel
from courant.data.trajectories import read_states
from simgen.errors import InputError
from simgen.store.reader import Dataset, StoredCase

MODEL = "model"
PERSISTENCE = "persistence"
TRAINING_MEAN = "training mean"
NEAREST_DESIGN = "nearest design"

#: A time mean over snapshots this far apart differs from the full one by less than a percent, at a tenth of the reading.
MEAN_EVERY_S = 10.0
#: Cases read at the same time: reading waits for the store and for decompression, outside the interpreter's lock.
NUM_READERS = 4


def persistence(states: np.ndarray, frame: int, steps: int) -> np.ndarray:
    """(T, N, C): the snapshot `frame` of states (F, N, C), repeated."""
    return np.broadcast_to(states[frame], (steps, *states[frame].shape))


class TrainingMean:
    """The mean flow of the training cases, carried to other meshes.

    Each training case is averaged over its snapshots from `start_s` on. At a point of another case every training case
    contributes its nearest cell's mean, weighed down where that cell is far away: where a training case's body covers
    the point, its nearest cell lies at the body's surface and has little to say.

    Raises InputError for a training case that ends before `start_s`.
    """

    def __init__(self, dataset: Dataset, channels: Sequence[Channel], start_s: float) -> None:
        with ThreadPoolExecutor(NUM_READERS) as readers:
            cases = [dataset[case] for case in dataset.cases("train")]
            self._cases = list(readers.map(lambda case: _time_mean(case, channels, start_s), cases))

    def at(self, points: np.ndarray) -> np.ndarray:
        """(N, 3) m -> (N, C)."""
        total, weights = 0.0, 0.0
        for tree, mean, spacing in self._cases:
            distance, nearest = tree.query(points)
            weight = np.exp(-((distance / spacing) ** 2)) + 1e-6
            total = total + weight[:, None] * mean[nearest]
            weights = weights + weight
        return np.asarray(total / np.asarray(weights)[:, None])


def _time_mean(case: StoredCase, channels: Sequence[Channel], start_s: float) -> tuple[cKDTree, np.ndarray, float]:
    """A tree over the case's points, its mean (N, C), and the width of its largest cells."""
    time = np.asarray(case.time)
    every = max(1, round(MEAN_EVERY_S / float(np.diff(time[:2])[0])))
    late = np.flatnonzero(time >= start_s)[::every]
    if not len(late):
        raise InputError(f"case {case.id} ends at {time[-1]:g} s: it has no mean from {start_s:g} s on")
    points = case.points
    tree = cKDTree(points)
    spacing = float(tree.query(points, k=2)[0][:, 1].max())
    # A chunk holds many snapshots, so the whole span is read and thinned in memory.
    states = read_states(case, channels, slice(int(late[0]), int(late[-1]) + 1))
    return tree, states[::every].mean(axis=0, dtype=np.float64), spacing
