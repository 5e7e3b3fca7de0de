"""Define the references that a model has to beat: predictions that cost nothing.

persistence     transient: the initial field, held
training mean   transient: the mean flow of the training cases at the same place; steady: one number
                for each component, the mean over the training split
nearest design  the solution of the training case whose design parameters (each over its range) and
                given fields (in standard deviations) are nearest, at the case's points by nearest
                neighbour; transient: its rollout at the same times, whatever the initial state
POD + ...       the training fields' principal components, as many as the model has anchors and at
                least RANK; their coefficients are regressed on the design parameters; transient: of
                whole rollouts, where training cases have the same times (POD + GP alone), which
                no validation or test case outlasts
DMD             transient: the linear map of principal components from one step to the next that
                fits the training cases best

Meshes differ between cases. Each training field is taken by nearest neighbour at the points of one
training case, where components are computed, and at the points of a prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.spatial import cKDTree

from courant.data.normalisation import Channel, Normaliser
from courant.evaluation import record as names
from courant.experiment import TransientData
from courant.prediction.surrogate import FieldsOfDesign, Surrogate
from courant.problems import Problem, Window
from courant.problems.problem import read_states
from courant.problems.transient import TransientProblem, even_times
from courant.runs.directory import RunDirectory
from simgen.errors import InputError, SimgenError
from simgen.point_cloud import point_tree
from simgen.regression import Regression, gaussian_process, radial_basis
from simgen.store.read import Dataset, StoredCase

RANK = 64  # components that are kept, where training cases have so many and no more are wanted
SMALLEST = 1e-10  # variance of a component that is kept, over the first one's
MAX_PROBES = 4096  # points at which components are computed
MAX_PAIRS = 30  # steps of each training case that a DMD learns from, spread over its time
MAX_ROLLOUTS = 2**29  # values of whole rollouts that are kept, 2 GB
MAX_FIELDS = 64  # training fields that are taken at a case's points at once
MIN_DESIGNS = 3  # training cases that coefficients are regressed on
NUM_PROBES = 256  # minimum number of points where given fields are compared
NUM_READERS = 4  # cases read at the same time: reading waits for the store and decompression


Reference = Callable[[StoredCase, Window], np.ndarray]
"""A prediction (T, N, C), like the window's truth, that needs no network"""


def references(problem: Problem, dataset: Dataset) -> dict[str, Reference]:
    """Return the references of a kind of problem, by name; InputError without a training case."""
    dataset.required("train")
    normaliser = problem.normaliser
    has_designs = bool(normaliser.parameters or normaliser.given)
    made: dict[str, Reference] = {}
    if problem.kind == "transient":
        data = cast(TransientData, problem.experiment.data)
        made[names.PERSISTENCE] = persistence
        made[names.TRAINING_MEAN] = MeanFlow(dataset, normaliser.channels, data.start_s)
        made[names.DMD] = DynamicModes(dataset, normaliser, data.start_s, data.step_s)
    if has_designs:
        made[names.NEAREST_DESIGN] = NearestDesign(dataset, problem)
    if problem.kind == "steady":
        made[names.TRAINING_MEAN] = partial(mean_value, normaliser)
    return made | _regressions(problem, dataset)


def _regressions(problem: Problem, dataset: Dataset) -> dict[str, ProperOrthogonal]:
    """Return those that predict any design, where there are enough training cases, and alike."""
    # Coefficients are regressed on more designs than there are parameters.
    num_parameters = len(problem.normaliser.parameters)
    if not num_parameters or len(dataset.cases("train")) < max(MIN_DESIGNS, num_parameters + 2):
        return {}
    by: dict[str, Regression] = {names.POD_GP: gaussian_process}
    times = _common_times(dataset, problem)
    if problem.step_s is None:
        by[names.POD_RBF] = radial_basis
    elif times is None:
        return {}
    fields = shared(dataset, problem.normaliser, times)
    # As many as the model has anchors; a model with few does not weaken its reference.
    rank = max(RANK, getattr(problem.experiment.model, "num_anchors", 0))
    return {name: ProperOrthogonal(problem, fields, each, rank) for name, each in by.items()}


def _common_times(dataset: Dataset, problem: Problem) -> np.ndarray | None:
    """Return the times (T,) of all training rollouts, s.

    None where they differ or are too many, or where a case to be predicted outlasts them.
    """
    if not isinstance(problem, TransientProblem):
        return None
    known, step_s, num = list[np.ndarray](), problem.step_s, 0
    for case in map(dataset.__getitem__, dataset.cases("train")):
        times, interval = even_times(case, problem.data.start_s)
        known.append(times[:: max(1, round(step_s / interval))])
        num += len(known[-1]) * case.num_points * len(problem.normaliser.channels)
    alike = len(known[0]) > 1 and all(
        len(of) == len(known[0]) and np.allclose(of, known[0]) for of in known
    )
    others = [dataset[each] for of in ("validation", "test") for each in dataset.cases(of)]
    ends = [problem.start(of) + step_s * problem.steps_to_end(of, None) for of in others]
    alike &= max(ends, default=0.0) <= known[0][-1] + step_s / 2
    return known[0] if alike and num <= MAX_ROLLOUTS else None


class Designed(NamedTuple):
    """A design as references read a case."""

    points: np.ndarray
    parameters: Mapping[str, float]
    id: str = ""


def of_designs(
    surrogate: Surrogate, place: str | Path | None, name: str | None = None
) -> tuple[str, FieldsOfDesign | None]:
    """Return what predicts the fields of any design, and its name; empty for the model.

    By default it is what the evaluation found clearly better, if it did and the dataset, at `place`
    if it was moved, is there. InputError for a `name` that is no such reference, nor "none".
    """
    asked = name
    if asked is None:
        evaluation = names.read_evaluation(RunDirectory(surrogate.url))
        name = evaluation.better_fields if evaluation else ""
    if name in ("", "none"):
        return "", None
    try:
        known = _regressions(surrogate.problem, surrogate.open_dataset(place))
    except SimgenError:
        if asked:
            raise
        return "", None
    if name not in known:
        least = "it takes two more training cases than parameters, of the same times"
        least = f"leave it out: {least}, which no other case outlasts"
        others = f"give {' or '.join(known)}" if known else least
        raise InputError(f"--reference {name}: {others}")
    return name, lambda points, of, times: known[name].at(Designed(points, of), times)


def _of_training_cases(dataset: Dataset, read: Callable[[StoredCase], Any]) -> list[Any]:
    """Read every training case, some at the same time."""
    with ThreadPoolExecutor(NUM_READERS) as readers:
        return list(readers.map(lambda case: read(dataset[case]), dataset.cases("train")))


def persistence(case: StoredCase, window: Window) -> np.ndarray:
    """Hold the initial state."""
    assert window.initial is not None
    return np.broadcast_to(window.initial, window.truth.shape)


def mean_value(normaliser: Normaliser, case: StoredCase, window: Window) -> np.ndarray:
    """Return the training split's mean of each component, everywhere, in the design's units."""
    return np.broadcast_to(np.asarray(normaliser.at(case.parameters).mean), window.truth.shape)


class MeanFlow:
    """The mean flow of the training cases.

    Each is averaged over its snapshots from `start_s` on. At a point of another case every training
    case contributes its nearest cell's mean, with less weight the farther that cell is, since it
    may lie at the surface of a body that covers the point. InputError for a case that ends before.
    """

    def __init__(self, dataset: Dataset, channels: Sequence[Channel], start_s: float) -> None:
        def read(case: StoredCase) -> tuple[cKDTree, np.ndarray, float]:
            """Return a tree over the points, the mean (N, C), and the largest cells' width."""
            time = np.asarray(case.time)
            late = np.flatnonzero(time >= start_s)
            if not len(late):
                raise InputError(
                    f"case {case.id} ends at {time[-1]:g} s: it has no mean from {start_s:g} s on"
                )
            tree = point_tree(case.points)
            width = float(tree.query(case.points, k=2)[0][:, 1].max())
            states = read_states(case, channels, slice(int(late[0]), int(late[-1]) + 1))
            return tree, states.mean(axis=0, dtype=np.float64), width

        self._cases = _of_training_cases(dataset, read)
        self._at = lru_cache(maxsize=1)(self._combine)

    def __call__(self, case: StoredCase, window: Window) -> np.ndarray:
        return np.broadcast_to(self._at(case), window.truth.shape)

    def _combine(self, case: StoredCase) -> np.ndarray:
        total, weights = np.zeros(1), np.zeros(1)
        for tree, mean, width in self._cases:
            distance, nearest = tree.query(case.points)
            weight = np.exp(-((distance / width) ** 2))[:, None] + 1e-6
            total, weights = total + weight * mean[nearest], weights + weight
        return total / weights


class NearestDesign:
    """The solution of the nearest training design; a training case is never its own reference.

    Of a transient case its rollout, at the solved times nearest to those of the predicted states.
    """

    def __init__(self, dataset: Dataset, problem: Problem) -> None:
        self._dataset, self._problem, self._normaliser = dataset, problem, problem.normaliser
        self._ids = dataset.cases("train")
        probes = dataset[self._ids[0]].points
        self._probes = probes[:: max(1, len(probes) // NUM_PROBES)]
        self._designs = np.stack(_of_training_cases(dataset, self._known))
        self._field = lru_cache(maxsize=1)(self._read)  # a trajectory is large

    def __call__(self, case: StoredCase, window: Window) -> np.ndarray:
        """Return the training split's mean where there is no other design."""
        nearest = self.nearest(case)
        if nearest is None:
            return mean_value(self._normaliser, case, window)
        tree, values = self._field(nearest)
        if window.start_s is not None:
            predicted = self._problem.times(window.start_s, len(window.truth))
            solved = np.asarray(self._dataset[nearest].time)
            values = values[np.abs(solved[:, None] - predicted).argmin(axis=0)]
        return values[:, tree.query(case.points)[1]] * self._normaliser.scale(case.parameters)

    def nearest(self, case: StoredCase) -> str | None:
        """Return the id of the nearest training design; None where there is no other."""
        distance = np.linalg.norm(self._designs - self._known(case), axis=1)
        order = [self._ids[number] for number in np.argsort(distance)]
        return next((candidate for candidate in order if candidate != case.id), None)

    def _known(self, case: StoredCase) -> np.ndarray:
        """Return what distinguishes designs: parameters, and given fields at a few points."""
        design, channels = self._normaliser.design(case.parameters), self._normaliser.given
        if not channels:
            return design
        steady = case.time is None
        given = read_states(case, channels) if steady else read_states(case, channels, slice(1))[0]
        near = point_tree(case.points).query(self._probes)[1]
        found = self._normaliser.standardise_given(given)[near]
        return np.concatenate([design, found.ravel() / np.sqrt(found.size)])

    def _read(self, case: str) -> tuple[cKDTree, np.ndarray]:
        """Return a tree over a case's points, and all states (F, N, C) in the split's units."""
        stored, own = self._dataset[case], self._normaliser
        if stored.time is None:
            states = read_states(stored, own.channels)[None]
        else:
            states = read_states(stored, own.channels, slice(None))
        return point_tree(stored.points), states / own.scale(stored.parameters)


class TrainingFields:
    """The training cases' solved fields, standardised, each on its own mesh: (N, C) or (N, T, C).

    The latter at the given times (T,), which all of them have.
    """

    def __init__(
        self, dataset: Dataset, normaliser: Normaliser, times: np.ndarray | None = None
    ) -> None:
        self.normaliser, self.ids = normaliser, tuple(dataset.cases("train"))
        self.times = times

        def read(case: StoredCase) -> tuple[np.ndarray, cKDTree, np.ndarray]:
            own = normaliser.at(case.parameters)
            if times is None:
                states = read_states(case, own.channels)
            else:
                frames = np.abs(np.asarray(case.time)[:, None] - times).argmin(axis=0)
                span = slice(frames[0], frames[-1] + 1, max(1, *np.diff(frames)))
                states = read_states(case, own.channels, span).swapaxes(0, 1)
            values = own.standardise(states)
            return normaliser.design(case.parameters), point_tree(case.points), values

        designs, *of_cases = zip(*_of_training_cases(dataset, read), strict=True)
        self.designs, self._fields = np.stack(designs), list(zip(*of_cases, strict=True))
        probes = _probes(dataset[self.ids[0]].points, 1 if times is None else len(times))
        at_probes = [values[tree.query(probes)[1]].ravel() for tree, values in self._fields]
        self.snapshots = np.stack(at_probes).astype(np.float64)

    def combine(self, weights: np.ndarray, case: StoredCase | Designed) -> np.ndarray:
        """Return the weighted sum of training fields at a case's points, in its units."""
        total = np.zeros((len(case.points), *self._fields[0][1].shape[1:]))
        for weight, (tree, values) in zip(weights, self._fields, strict=True):
            if weight:
                total += weight * values[tree.query(case.points)[1]]
        return self.normaliser.at(case.parameters).restore(total)

    def at(self, points: np.ndarray, without: str, most: int = MAX_FIELDS) -> np.ndarray:
        """Return `most` training fields (n, N, C) at points, standardised, none of `without`."""
        others = [of for name, of in zip(self.ids, self._fields, strict=True) if name != without]
        chosen = others[:: max(1, -(-len(others) // most))]
        found = np.zeros((len(chosen), len(points), len(self.normaliser.channels)), np.float32)
        for values, (tree, field) in zip(found, chosen, strict=True):
            values[:] = field[tree.query(points)[1]]
        return found


def shared(
    dataset: Dataset, normaliser: Normaliser, times: np.ndarray | None = None
) -> Callable[[], TrainingFields]:
    """Return a function that reads the training fields once, when they are first asked for."""
    return lru_cache(maxsize=1)(lambda: TrainingFields(dataset, normaliser, times))


class ProperOrthogonal:
    """POD with regressed coefficients; a training case is predicted from the others."""

    def __init__(
        self,
        problem: Problem,
        fields: Callable[[], TrainingFields],
        regression: Regression,
        rank: int,
    ) -> None:
        self._problem, self._fields = problem, fields
        self._regression, self._rank = regression, rank
        self._last: tuple[StoredCase | Designed | None, np.ndarray] = None, np.empty(0)

    def __call__(self, case: StoredCase, window: Window) -> np.ndarray:
        start = window.start_s
        times = None if start is None else self._problem.times(start, len(window.truth))
        return self.at(case, times)

    def at(self, case: StoredCase | Designed, times: np.ndarray | None) -> np.ndarray:
        """Return (T, N, C) at times (T,), or (1, N, C); InputError for times after the last."""
        fields = self._fields()
        if self._last[0] is not case:  # a rollout has many windows
            self._last = case, fields.combine(self.weights(case), case)
        found = self._last[1]
        if times is None or fields.times is None:
            return found[None]
        if times[-1] > (last := fields.times[-1]) + (self._problem.step_s or 0.0) / 2:
            raise InputError(
                f"the training rollouts end at {last:g} s, and with them what is regressed on them;"
                " lower --steps, or take --reference none"
            )
        return found[:, np.abs(fields.times[:, None] - times).argmin(axis=0)].swapaxes(0, 1)

    def weights(self, case: StoredCase | Designed) -> np.ndarray:
        """Return the part of each training field in the prediction, which combines them."""
        fields = self._fields()
        others = np.array([number for number, each in enumerate(fields.ids) if each != case.id])
        centred = fields.snapshots[others] - fields.snapshots[others].mean(0)
        components, variances = principal(centred, self._rank)
        parts = np.zeros(len(others))
        if len(variances):  # otherwise all training fields are the same
            roots = np.sqrt(variances)
            predictor = self._regression(fields.designs[others], components * roots)
            design = fields.normaliser.design(case.parameters)[None]
            parts = components @ (predictor(design)[0] / roots)
        weights = np.zeros(len(fields.ids))
        weights[others] = parts + (1 - parts.sum()) / len(others)
        return weights


class DynamicModes:
    """DMD, advanced from the initial state; what its modes do not span stays as it is.

    Modes that would grow are held at their size: a rollout leaves the data otherwise.
    """

    def __init__(
        self, dataset: Dataset, normaliser: Normaliser, start_s: float, step_s: float
    ) -> None:
        self._normaliser = normaliser
        self._probes = _probes(dataset[dataset.cases("train")[0]].points)
        pairs = _of_training_cases(dataset, lambda case: self._pairs(case, start_s, step_s))
        before, after = (np.concatenate(each) for each in zip(*pairs, strict=True))
        if not len(before):
            raise InputError(
                f"{dataset.url} {dataset.version}: no training case has two states {step_s:g} s"
                f" apart from {start_s:g} s on; lower data.start_s or data.step_s, or solve longer"
            )
        self._mean = before.mean(0)
        components, variances = principal(before - self._mean, RANK)
        self._modes = (before - self._mean).T @ components / np.sqrt(variances)  # (M C, r)
        self._map = np.linalg.lstsq(
            (before - self._mean) @ self._modes, (after - self._mean) @ self._modes, rcond=1e-8
        )[0]
        if self._map.size:
            values, vectors = np.linalg.eig(self._map)
            values = values / np.maximum(1.0, np.abs(values))
            self._map = np.real(vectors @ np.diag(values) @ np.linalg.pinv(vectors))
        self._tree = point_tree(self._probes)

    def __call__(self, case: StoredCase, window: Window) -> np.ndarray:
        assert window.initial is not None
        initial = self._normaliser.standardise(window.initial)
        near = point_tree(case.points).query(self._probes)[1]
        start = (initial[near].ravel() - self._mean) @ self._modes
        back = self._tree.query(case.points)[1]
        shape = (len(self._probes), len(self._normaliser.channels), len(start))
        modes = self._modes.reshape(shape)[back]  # (N, C, r)
        states, z = [], start
        for _ in range(len(window.truth)):
            z = z @ self._map
            states.append(initial + modes @ (z - start))
        return self._normaliser.restore(np.stack(states))

    def _pairs(
        self, case: StoredCase, start_s: float, step_s: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return states and their successors at the probes, (K, M C) each."""
        times, interval = even_times(case, start_s)
        ahead, span = round(step_s / interval), slice(-len(times), None)
        states = read_states(case, self._normaliser.channels, span)
        starts = np.arange(0, len(states) - ahead, max(1, (len(states) - ahead) // MAX_PAIRS))
        near = point_tree(case.points).query(self._probes)[1]
        # Sizes in full: a case shorter than a step has no pair.
        shape = (len(starts), len(near) * len(self._normaliser.channels))
        standardise = self._normaliser.standardise
        first, second = (
            standardise(states[frames][:, near]).reshape(shape).astype(np.float64)
            for frames in (starts, starts + ahead)
        )
        return first, second


def principal(centred: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first eigenvectors (n, r) and eigenvalues (r,) of the Gram matrix of n rows."""
    # On the smaller side of the matrix: thousands of states may have few values each.
    tall = centred.shape[0] > centred.shape[1]
    values, vectors = np.linalg.eigh(centred.T @ centred if tall else centred @ centred.T)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = int((values[:rank] > SMALLEST * values[0]).sum())
    values, vectors = values[:kept], vectors[:, :kept]
    return (centred @ vectors / np.sqrt(values) if tall else vectors), values


def _probes(points: np.ndarray, times: int = 1) -> np.ndarray:
    return points[:: -(-len(points) // max(NUM_PROBES, MAX_PROBES // times))]
