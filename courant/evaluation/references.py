"""What a model has to beat: predictions that cost nothing.

persistence     transient: the initial field, held. Hard to beat early, in steady wakes, and whenever a period has passed
training mean   transient: the mean flow of the training cases at the same place; steady: one number for each component,
                the mean over the training split
nearest design  steady: the solved field of the training case whose design parameters are nearest (each over its range),
                carried to the case's points by nearest neighbour: what an engineer without a model would look up
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Protocol, cast

import numpy as np
from scipy.spatial import cKDTree

from courant.data.normalisation import Channel, Normaliser
from courant.data.steady import read_solution
from courant.data.trajectories import read_states
from courant.experiment import TransientData
from courant.problems import Problem, Window
from simgen.errors import InputError
from simgen.store.reader import Dataset, StoredCase

PERSISTENCE = "persistence"
TRAINING_MEAN = "training mean"
NEAREST_DESIGN = "nearest design"

MEAN_SNAPSHOTS = 30
"""A time mean over this many snapshots, or one each rollout step if these are more, differs from the full one by less than
a percent, at a tenth of the reading."""
NUM_READERS = 4
"""Cases read at the same time: reading waits for the store and for decompression, outside the interpreter's lock."""


class Reference(Protocol):
    """A prediction that needs no network."""

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        """(T, N, C), as the window's truth."""

    def note(self, case: StoredCase) -> str | None:
        """What the prediction was taken from, for the record."""


def references(problem: Problem, dataset: Dataset) -> dict[str, Reference]:
    """The references of a kind of problem, by name; InputError for a dataset that has no training case."""
    if not dataset.cases("train"):
        raise InputError(f"{dataset.url} {dataset.version} has no training case to compare with")
    return {name: make(problem, dataset) for name, make in _REFERENCES[problem.kind].items()}


class Persistence:
    """The initial state, held."""

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        assert window.initial is not None
        return np.broadcast_to(window.initial, window.truth.shape)

    def note(self, case: StoredCase) -> None:
        return None


class MeanFlow:
    """The mean flow of the training cases, carried to other meshes.

    Each training case is averaged over its snapshots from `start_s` on. At a point of another case every training case
    contributes its nearest cell's mean, weighed down where that cell is far away: where a training case's body covers
    the point, its nearest cell lies at the body's surface and has little to say.

    Raises InputError for a training case that ends before `start_s`.
    """

    def __init__(self, dataset: Dataset, channels: Sequence[Channel], start_s: float, step_s: float) -> None:
        with ThreadPoolExecutor(NUM_READERS) as readers:
            cases = [dataset[case] for case in dataset.cases("train")]
            self._cases = list(readers.map(lambda case: _time_mean(case, channels, start_s, step_s), cases))
        self._at = lru_cache(maxsize=1)(self._carried)

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        return np.broadcast_to(self._at(case), window.truth.shape)

    def note(self, case: StoredCase) -> None:
        return None

    def _carried(self, case: StoredCase) -> np.ndarray:
        return self.at(case.points)

    def at(self, points: np.ndarray) -> np.ndarray:
        """(N, 3) m -> (N, C)."""
        total, weights = 0.0, 0.0
        for tree, mean, spacing in self._cases:
            distance, nearest = tree.query(points)
            weight = np.exp(-((distance / spacing) ** 2)) + 1e-6
            total = total + weight[:, None] * mean[nearest]
            weights = weights + weight
        return np.asarray(total / np.asarray(weights)[:, None])


class MeanValue:
    """The training split's mean of each component, everywhere."""

    def __init__(self, normaliser: Normaliser) -> None:
        self._mean = np.asarray(normaliser.mean)

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        return np.broadcast_to(self._mean, window.truth.shape)

    def note(self, case: StoredCase) -> None:
        return None


class NearestDesign:
    """The field of the nearest training design; a case that is itself one is not compared with itself."""

    def __init__(self, dataset: Dataset, normaliser: Normaliser) -> None:
        self._dataset, self._normaliser = dataset, normaliser
        self._ids = dataset.cases("train")
        self._designs = np.stack([normaliser.design(dataset[case].parameters) for case in self._ids])
        self._field = lru_cache(maxsize=4)(self._read)

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        """The mean of the training split where there is no other design."""
        nearest = self.note(case)
        if nearest is None:
            return MeanValue(self._normaliser).predict(case, window)
        tree, values = self._field(nearest)
        return values[tree.query(case.points)[1]][None]

    def note(self, case: StoredCase) -> str | None:
        """The id of the nearest training design; None where there is no other."""
        distance = np.linalg.norm(self._designs - self._normaliser.design(case.parameters), axis=1)
        order = [self._ids[number] for number in np.argsort(distance)]
        return next((candidate for candidate in order if candidate != case.id), None)

    def _read(self, case: str) -> tuple[cKDTree, np.ndarray]:
        stored = self._dataset[case]
        return cKDTree(stored.points), read_solution(stored, self._normaliser)


def _mean_flow(problem: Problem, dataset: Dataset) -> MeanFlow:
    data = cast(TransientData, problem.experiment.data)
    return MeanFlow(dataset, problem.normaliser.channels, data.start_s, data.step_s)


_REFERENCES: dict[str, dict[str, Callable[[Problem, Dataset], Reference]]] = {
    "transient": {
        PERSISTENCE: lambda problem, dataset: Persistence(),
        TRAINING_MEAN: _mean_flow,
    },
    "steady": {
        NEAREST_DESIGN: lambda problem, dataset: NearestDesign(dataset, problem.normaliser),
        TRAINING_MEAN: lambda problem, dataset: MeanValue(problem.normaliser),
    },
}


def _time_mean(
    case: StoredCase, channels: Sequence[Channel], start_s: float, step_s: float
) -> tuple[cKDTree, np.ndarray, float]:
    """A tree over the case's points, its mean (N, C), and the width of its largest cells."""
    time = np.asarray(case.time)
    late = np.flatnonzero(time >= start_s)
    if not len(late):
        raise InputError(f"case {case.id} ends at {time[-1]:g} s: it has no mean from {start_s:g} s on")
    per_step = round(step_s / float(np.diff(time[:2])[0]))
    every = max(1, min(per_step, len(late) // MEAN_SNAPSHOTS))
    points = case.points
    tree = cKDTree(points)
    spacing = float(tree.query(points, k=2)[0][:, 1].max())
    # A chunk holds many snapshots, so the whole span is read and thinned in memory.
    states = read_states(case, channels, slice(int(late[0]), int(late[-1]) + 1))
    return tree, states[::every].mean(axis=0, dtype=np.float64), spacing
