"""What a model has to beat: predictions that cost nothing.

persistence    the initial field, held: hard to beat early, in steady wakes, and whenever a period has just passed
training mean  the mean flow of the training cases at the same place: what is known without looking at the initial field
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree

from courant.data.normalisation import Channel
from simgen.store.reader import Dataset, StoredCase

PERSISTENCE = "persistence"
TRAINING_MEAN = "training mean"

#: A time mean over snapshots this far apart differs from the full one by less than a percent, at a tenth of the reading.
MEAN_EVERY_S = 10.0


def persistence(states: np.ndarray, frame: int, steps: int) -> np.ndarray:
    """(T, N, C): the snapshot `frame` of states (F, N, C), repeated."""
    return np.broadcast_to(states[frame], (steps, *states[frame].shape))


class TrainingMean:
    """The mean flow of the training cases, carried to other meshes.

    Each training case is averaged over its snapshots from `start_s` on. At a point of another case every training case
    contributes its nearest cell's mean, weighed down where that cell is far away: where a training case's body covers
    the point, its nearest cell lies at the body's surface and has little to say.
    """

    def __init__(self, dataset: Dataset, channels: Sequence[Channel], start_s: float) -> None:
        self._cases = [_time_mean(dataset[case], channels, start_s) for case in dataset.cases("train")]

    def at(self, points: np.ndarray) -> np.ndarray:
        """(N, 3) m -> (N, C)."""
        total, weights = 0.0, 0.0
        for tree, mean, spacing in self._cases:
            distance, nearest = tree.query(points)
            weight = np.exp(-((distance / spacing) ** 2)) + 1e-6
            total = total + weight[:, None] * mean[nearest]
            weights = weights + weight
        return np.asarray(total / np.asarray(weights)[:, None])


def read_channels(case: StoredCase, channels: Sequence[Channel]) -> np.ndarray:
    """(F, N, C): the modelled components of every snapshot, physical units."""
    fields = {name: np.asarray(case[name]) for name in {channel.field for channel in channels}}
    return np.stack([fields[channel.field][..., channel.column] for channel in channels], axis=-1)


def _time_mean(case: StoredCase, channels: Sequence[Channel], start_s: float) -> tuple[cKDTree, np.ndarray, float]:
    """A tree over the case's points, its mean (N, C), and the width of its largest cells."""
    time = np.asarray(case.time)
    every = max(1, round(MEAN_EVERY_S / float(np.diff(time[:2])[0])))
    late = np.flatnonzero(time >= start_s)[::every]
    if not len(late):
        raise ValueError(f"case {case.id} has no snapshot from {start_s:g} s on")
    points = case.points
    tree = cKDTree(points)
    spacing = float(tree.query(points, k=2)[0][:, 1].max())
    return tree, read_channels(case, channels)[late].mean(axis=0), spacing
