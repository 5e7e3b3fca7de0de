"""Define the references that a model has to beat: predictions that cost nothing.

persistence     transient: the initial field, held. Hard to beat early, in steady wakes, and
                whenever a period has passed
training mean   transient: the mean flow of the training cases at the same place; steady: one number
                for each component, the mean over the training split
nearest design  steady: the solved field of the training case whose design parameters (each over
                its range) and given fields (in standard deviations) are nearest, carried to the
                case's points by nearest neighbour: what an engineer without a model would look up.
                transient: its rollout at the same times, whatever the initial state
POD + ...       steady: principal components of the training fields, with coefficients by Gaussian
                process or radial basis functions of the design parameters (`reduced_order`)
DMD             transient: a linear map of principal components, fitted to the training cases
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Protocol, cast

import numpy as np
from scipy.spatial import cKDTree

from courant.data.normalisation import Channel, Normaliser
from courant.data_config import TransientData
from courant.evaluation.evaluation import (
    DMD,
    NEAREST_DESIGN,
    PERSISTENCE,
    POD_GP,
    POD_RBF,
    TRAINING_MEAN,
)
from courant.evaluation.reduced_order import (
    RANK,
    DynamicModes,
    ProperOrthogonal,
    enough_designs,
    shared,
)
from courant.problems import Problem, Window
from courant.problems.steady import read_channels, read_solution
from courant.problems.transient import Span, read_states
from simgen.errors import InputError
from simgen.regression import gaussian_process, radial_basis
from simgen.store.read import Dataset, StoredCase

MEAN_SNAPSHOTS = 30
"""A time mean over this many snapshots (or one per rollout step, if these are more) differs from
the full one by less than a percent, at a tenth of the reading
"""
NUM_PROBES = 256
"""Minimum number of points where given fields are compared"""
NUM_READERS = 4
"""Cases read at the same time: reading waits for the store and for decompression, outside the
interpreter's lock
"""


class Reference(Protocol):
    """A prediction that needs no network."""

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        """Return (T, N, C), like the window's truth."""

    def note(self, case: StoredCase) -> str | None:
        """Return what the prediction was taken from, for the record."""


def references(problem: Problem, dataset: Dataset) -> dict[str, Reference]:
    """Return the references of a kind of problem, by name.

    InputError for a dataset without a training case.
    """
    if not dataset.cases("train"):
        raise InputError(f"{dataset.url} {dataset.version} has no training case to compare with")
    return _REFERENCES[problem.kind](problem, dataset)


class Persistence:
    """Hold the initial state."""

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        assert window.initial is not None
        return np.broadcast_to(window.initial, window.truth.shape)

    def note(self, case: StoredCase) -> None:
        return None


class MeanFlow:
    """The mean flow of the training cases, carried to other meshes.

    Each training case is averaged over its snapshots from `start_s` on. At a point of another case
    every training case contributes its nearest cell's mean, with less weight the farther that cell
    is: where a training case's body covers the point, its nearest cell lies at the body's surface
    and says little about the flow there.

    Raises InputError for a training case that ends before `start_s`.
    """

    def __init__(
        self, dataset: Dataset, channels: Sequence[Channel], start_s: float, step_s: float
    ) -> None:
        with ThreadPoolExecutor(NUM_READERS) as readers:
            cases = [dataset[case] for case in dataset.cases("train")]
            self._cases = list(
                readers.map(lambda case: _time_mean(case, channels, start_s, step_s), cases)
            )
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
    """The training split's mean of each component, everywhere, in the design's units."""

    def __init__(self, normaliser: Normaliser) -> None:
        self._normaliser = normaliser

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        mean = np.asarray(self._normaliser.at(case.parameters).mean)
        return np.broadcast_to(mean, window.truth.shape)

    def note(self, case: StoredCase) -> None:
        return None


class NearestDesign:
    """The field of the nearest training design; a training case is never its own reference."""

    def __init__(self, dataset: Dataset, normaliser: Normaliser) -> None:
        self._dataset, self._normaliser = dataset, normaliser
        self._ids = dataset.cases("train")
        probes = dataset[self._ids[0]].points
        self._probes = probes[:: max(1, len(probes) // NUM_PROBES)]
        with ThreadPoolExecutor(NUM_READERS) as readers:
            self._designs = np.stack(
                list(readers.map(lambda case: self._known(dataset[case]), self._ids))
            )
        self._field = lru_cache(maxsize=4)(self._read)

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        """Return the training split's mean where there is no other design."""
        nearest = self.note(case)
        if nearest is None:
            return MeanValue(self._normaliser).predict(case, window)
        tree, values = self._field(nearest)
        return values[tree.query(case.points)[1]][None] * self._normaliser.scale(case.parameters)

    def note(self, case: StoredCase) -> str | None:
        """Return the id of the nearest training design; None where there is no other."""
        distance = np.linalg.norm(self._designs - self._known(case), axis=1)
        order = [self._ids[number] for number in np.argsort(distance)]
        return next((candidate for candidate in order if candidate != case.id), None)

    def _known(self, case: StoredCase) -> np.ndarray:
        """Return what distinguishes designs: parameters, and given fields at a few points."""
        design = self._normaliser.design(case.parameters)
        if not self._normaliser.given:
            return design
        near = cKDTree(case.points).query(self._probes)[1]
        given = self._normaliser.standardise_given(self._given(case))
        return np.concatenate([design, given[near].ravel() / np.sqrt(given[near].size)])

    def _given(self, case: StoredCase) -> np.ndarray:
        """Read the given fields (N, G)."""
        return read_channels(case, self._normaliser.given)

    def _read(self, case: str) -> tuple[cKDTree, np.ndarray]:
        """Return a tree over a case's points, and its solution in the split's units."""
        stored = self._dataset[case]
        solution = read_solution(stored, self._normaliser)
        return cKDTree(stored.points), solution / self._normaliser.scale(stored.parameters)


class NearestRollout(NearestDesign):
    """The rollout of the nearest training design, at the times of the predicted states.

    Of a design that was solved at other times, the states that are nearest in time.
    """

    def __init__(self, dataset: Dataset, problem: Problem) -> None:
        super().__init__(dataset, problem.normaliser)
        self._problem = problem
        self._field = lru_cache(maxsize=1)(self._read)  # a trajectory is large

    def predict(self, case: StoredCase, window: Window) -> np.ndarray:
        """Return the training split's mean where there is no other design."""
        nearest = self.note(case)
        if nearest is None:
            return MeanValue(self._normaliser).predict(case, window)
        assert window.start_s is not None
        tree, states = self._field(nearest)
        asked = self._problem.times(window.start_s, len(window.truth))
        solved = np.asarray(self._dataset[nearest].time)
        frames = np.abs(solved[:, None] - asked).argmin(axis=0)
        return states[frames][:, tree.query(case.points)[1]]

    def _given(self, case: StoredCase) -> np.ndarray:
        """Read the given fields (N, G) of the first snapshot."""
        return read_states(case, self._normaliser.given, slice(0, 1))[0]

    def _read(self, case: str) -> tuple[cKDTree, np.ndarray]:
        """Return a tree over a case's points, and all of its states (F, N, C)."""
        stored = self._dataset[case]
        return cKDTree(stored.points), read_states(stored, self._normaliser.channels, slice(None))


def _mean_flow(problem: Problem, dataset: Dataset) -> MeanFlow:
    data = cast(TransientData, problem.experiment.data)
    return MeanFlow(dataset, problem.normaliser.channels, data.start_s, data.step_s)


def _of_transient(problem: Problem, dataset: Dataset) -> dict[str, Reference]:
    """Use the nearest design where there is anything to tell designs apart by."""
    data, normaliser = cast(TransientData, problem.experiment.data), problem.normaliser
    made: dict[str, Reference] = {
        PERSISTENCE: Persistence(),
        TRAINING_MEAN: _mean_flow(problem, dataset),
        DMD: DynamicModes(dataset, normaliser, data.start_s, data.step_s),
    }
    if normaliser.parameters or normaliser.given:
        made[NEAREST_DESIGN] = NearestRollout(dataset, problem)
    return made


def _of_steady(problem: Problem, dataset: Dataset) -> dict[str, Reference]:
    """Use the nearest design where there is anything to tell designs apart by."""
    normaliser = problem.normaliser
    made: dict[str, Reference] = {}
    if normaliser.parameters or normaliser.given:
        made[NEAREST_DESIGN] = NearestDesign(dataset, normaliser)
    made[TRAINING_MEAN] = MeanValue(normaliser)
    if enough_designs(dataset, normaliser):
        fields = shared(dataset, normaliser)
        # As many as the model has anchors; a model with few does not weaken its reference.
        rank = max(RANK, getattr(problem.experiment.model, "num_anchors", 0))
        made[POD_GP] = ProperOrthogonal(fields, gaussian_process, rank)
        made[POD_RBF] = ProperOrthogonal(fields, radial_basis, rank)
    return made


_REFERENCES: dict[str, Callable[[Problem, Dataset], dict[str, Reference]]] = {
    "transient": _of_transient,
    "steady": _of_steady,
}


def _time_mean(
    case: StoredCase, channels: Sequence[Channel], start_s: float, step_s: float
) -> tuple[cKDTree, np.ndarray, float]:
    """Return a tree over the case's points, its mean (N, C), and the width of its largest cells."""
    time = np.asarray(case.time)
    late = np.flatnonzero(time >= start_s)
    if not len(late):
        raise InputError(
            f"case {case.id} ends at {time[-1]:g} s: it has no mean from {start_s:g} s on"
        )
    # Snapshots of the start-up, which nothing reads, may lie at other distances.
    interval = Span.of(case, start_s).interval_s if len(late) > 1 else step_s
    per_step = round(step_s / interval)
    every = max(1, min(per_step, len(late) // MEAN_SNAPSHOTS))
    points = case.points
    tree = cKDTree(points)
    spacing = float(tree.query(points, k=2)[0][:, 1].max())
    # A chunk holds many snapshots, so the whole span is read and thinned in memory.
    states = read_states(case, channels, slice(int(late[0]), int(late[-1]) + 1))
    return tree, states[::every].mean(axis=0, dtype=np.float64), spacing
