"""What a steady model has to beat: predictions that cost nothing.

training mean   one number per component, the mean over the training split: what is known without looking at the case
nearest design  the solved field of the training case whose design parameters are nearest (each over its range), carried to the case's
                points by nearest neighbour: what an engineer without a model would look up
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.spatial import cKDTree

from courant.data.normalisation import Normaliser
from courant.data.steady import read_solution
from simgen.errors import InputError
from simgen.store.reader import Dataset, StoredCase


class NearestDesign:
    """Looks up training cases; a case that is itself one is not compared with itself."""

    def __init__(self, dataset: Dataset, normaliser: Normaliser) -> None:
        self._dataset, self._normaliser = dataset, normaliser
        self._ids = dataset.cases("train")
        if not self._ids:
            raise InputError(f"{dataset.url} {dataset.version} has no training case to compare with")
        self._designs = np.stack([normaliser.design(dataset[case].parameters) for case in self._ids])
        self._field = lru_cache(maxsize=4)(self._read)

    def of(self, case: StoredCase) -> str | None:
        """The id of the nearest training design; None where there is no other."""
        distance = np.linalg.norm(self._designs - self._normaliser.design(case.parameters), axis=1)
        order = [self._ids[number] for number in np.argsort(distance)]
        return next((candidate for candidate in order if candidate != case.id), None)

    def at(self, case: StoredCase) -> np.ndarray:
        """(N, C) at the case's points; the training mean where there is no other design."""
        nearest = self.of(case)
        if nearest is None:
            return training_mean(self._normaliser, case.num_points)
        tree, values = self._field(nearest)
        return values[tree.query(case.points)[1]]

    def _read(self, case: str) -> tuple[cKDTree, np.ndarray]:
        stored = self._dataset[case]
        return cKDTree(stored.points), read_solution(stored, self._normaliser)


def training_mean(normaliser: Normaliser, num_points: int) -> np.ndarray:
    """(N, C): the training split's mean of each component, everywhere."""
    return np.broadcast_to(np.asarray(normaliser.mean), (num_points, len(normaliser.mean)))
