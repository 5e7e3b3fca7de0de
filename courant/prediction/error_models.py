"""Statistical models behind the bands: means, error sizes, field scales, mesh errors, regressions.

Designs are scaled to -1..1 over the ranges of their parameters.

- `KernelMean` averages a number over nearby designs, drawn towards its mean over all designs. Where
  data are few, or neighbours say nothing of one another, it is the mean of all.
- `ErrorSize` is the size that errors usually have near a design. Its logarithm is regressed on the
  design parameters and their squares, by ridge regression. How many of these terms count is decided
  by leave-one-out errors, which ridge regression gives in closed form.
- `FieldScale` is the scale of error at each point of a field, without truth: a band of equal width
  everywhere is as wide as the worst place needs. Errors are largest where the prediction changes
  most over a cell's neighbours, and where its values are large. A weighted sum of these, with
  weights that are not negative, is fitted to absolute errors on validation cases; in rollouts it
  grows with the step as errors do. It is in the model's normalised units.
- `GridError` is the error of the solver's own mesh in a quantity, by Richardson extrapolation: on
  cells of size h it is q(h) = q_0 + c h^p. The order p is fitted to all designs at once, q_0 and c
  to each. What a design's mesh adds to a quantity is then known as a share of it; its mean and
  spread over the designs give an interval for others. The order is known badly, so the interval is
  the hull of those for every order that the solutions do not contradict. Roache 1994, Perspective:
  A Method for Uniform Reporting of Grid Refinement Studies. A perfect surrogate has this error too.
- `Regressed` has quantities regressed on the design parameters alone: a few smooth numbers of a few
  parameters need no network. It is used beside the model's own answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, model_validator
from scipy.optimize import nnls
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.stats import f as fisher
from scipy.stats import t as student

from courant.data_config import Frozen
from simgen.errors import InputError
from simgen.regression import GaussianProcess

#: Weight of the mean of all designs, in designs.
PRIOR = 2.0
#: Lengths that are tried, for one parameter; distances grow with the root of their number.
LENGTHS = (0.25, 0.5, 1.0, np.inf)

Loss = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Loss of means (n,) against values (n,), (n,)"""


@dataclass(frozen=True)
class KernelMean:
    """A Gaussian kernel's average of values (n,) at designs (n, P)."""

    designs: np.ndarray
    values: np.ndarray
    length: float
    """Infinite: the same mean everywhere"""

    def at(self, designs: np.ndarray) -> np.ndarray:
        """Return the average near each of (k, P) designs, (k,)."""
        weights = self._weights(designs)
        mean = self.values.mean()
        return (PRIOR * mean + weights @ self.values) / (PRIOR + weights.sum(1))

    def left_out(self) -> np.ndarray:
        """Return the average near each of the designs, from all others, (n,)."""
        number = len(self.values)
        if number < 2:
            return np.full(number, np.nan)
        weights = self._weights(self.designs)
        np.fill_diagonal(weights, 0.0)
        mean = (self.values.sum() - self.values) / (number - 1)
        return (PRIOR * mean + weights @ self.values) / (PRIOR + weights.sum(1))

    def _weights(self, designs: np.ndarray) -> np.ndarray:
        return np.exp(-cdist(designs, self.designs, "sqeuclidean") / (2 * self.length**2))


def fit_kernel_mean(designs: np.ndarray, values: np.ndarray, loss: Loss) -> KernelMean:
    """Choose the length with the least leave-one-out loss; without locality where it is no less."""
    root = np.sqrt(max(1, designs.shape[1]))
    candidates = [KernelMean(designs, values, float(length * root)) for length in LENGTHS[::-1]]
    if len(values) < 2:
        return candidates[0]
    return min(candidates, key=lambda each: float(loss(each.left_out(), values).sum()))


def share_loss(means: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """Return the loss of shares of outcomes that are 0 or 1: the Bernoulli distribution's."""
    shares = np.clip(means, 1e-6, 1 - 1e-6)
    return -np.where(outcomes > 0, np.log(shares), np.log(1 - shares))


RIDGES = (0.3, 3.0, 30.0)
#: Gain in log-likelihood from which on parameters count.
LEAST_GAIN = 2.0
#: The least size that is told apart, over the median: logarithms of smaller errors say nothing.
LEAST_SIZE = 0.02


@dataclass(frozen=True)
class ErrorSize:
    """Sizes exp(terms @ weights), (n,) at the designs that they were fitted to."""

    degree: int
    """0: the same everywhere; 1: parameters; 2: their squares too"""
    weights: np.ndarray
    left_out: np.ndarray
    """(n,) sizes near each design, from all others"""

    def at(self, designs: np.ndarray) -> np.ndarray:
        """Return the usual size near (k, P) designs, (k,)."""
        return np.exp(_terms(designs, self.degree) @ self.weights)


def fit_error_size(designs: np.ndarray, errors: np.ndarray) -> ErrorSize:
    """Fit sizes to errors (n,) that are not negative, of which one at least is positive."""
    floor = LEAST_SIZE * float(np.median(errors[errors > 0]))
    sizes = np.maximum(errors, floor)
    best = fit_of_degree(designs, sizes, 0, 0.0)
    least = _loss(best, sizes) - LEAST_GAIN
    for degree in (1, 2):
        for ridge in RIDGES:
            fitted = fit_of_degree(designs, sizes, degree, ridge)
            if (loss := _loss(fitted, sizes)) < least:
                best, least = fitted, loss
    return best


def _terms(designs: np.ndarray, degree: int) -> np.ndarray:
    powers = [np.ones((len(designs), 1)), designs, designs**2 - 1 / 3]
    return np.concatenate(powers[: degree + 1], axis=1)


def fit_of_degree(designs: np.ndarray, sizes: np.ndarray, degree: int, ridge: float) -> ErrorSize:
    """Fit sizes (n,) that are positive by a ridge regression of one degree."""
    terms, logs = _terms(designs, degree), np.log(sizes)
    penalty = ridge * np.eye(terms.shape[1])
    penalty[0, 0] = 0.0
    solved = np.linalg.solve(terms.T @ terms + penalty, terms.T)
    weights = solved @ logs
    leverage = np.minimum((terms * solved.T).sum(axis=1), 1 - 1e-6)
    left_out = np.exp(logs - (logs - terms @ weights) / (1 - leverage))
    # The mean of a logarithm is not the logarithm of the mean.
    factor = float((sizes / left_out).mean())
    weights[0] += np.log(factor)
    return ErrorSize(degree, weights, factor * left_out)


def _loss(fitted: ErrorSize, sizes: np.ndarray) -> float:
    """Return the negative log-likelihood of exponentially distributed sizes, left out."""
    return float((np.log(fitted.left_out) + sizes / fitted.left_out).sum())


NEIGHBOURS = 8
NUM_FEATURES = 4
#: The least scale anywhere, over the mean absolute error: elsewhere a band could shrink to nothing.
FLOOR = 0.2
MAX_FITTED = 200_000
_ROUNDS = 4


class Predicted(NamedTuple):
    """A prediction on N points, and its absolute errors."""

    points: np.ndarray
    """(N, d)"""
    values: np.ndarray
    """(T, N, C)"""
    errors: np.ndarray
    """(T, N, C)"""


class FieldScale(Frozen):
    """The fitted scale: weights (C, F) of the features, floors (C,) and growth (T,)."""

    weights: tuple[tuple[float, ...], ...] = Field(min_length=1, max_length=1000)
    floors: tuple[float, ...]
    growth: tuple[float, ...] = Field(min_length=1, max_length=100_000)

    @model_validator(mode="after")
    def _fits(self) -> FieldScale:
        sizes = {len(row) for row in self.weights}
        if sizes != {NUM_FEATURES} or len(self.floors) != len(self.weights):
            raise ValueError("its weights do not fit its features and channels")
        if min(map(min, self.weights)) < 0 or min(self.floors) <= 0 or min(self.growth) <= 0:
            raise ValueError("its weights, floors and growth must not be negative")
        return self

    def at(self, points: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return (T, N, C) for a prediction (T, N, C), at most as many steps as were fitted."""
        scales = np.stack(
            [
                state @ weights
                for state, weights in zip(
                    _by_channel(points, values), np.asarray(self.weights), strict=True
                )
            ],
            axis=-1,
        )
        scales = np.maximum(scales, np.asarray(self.floors))
        return scales * np.asarray(self.growth)[: len(values), None, None]


def fit_scale(predicted: Sequence[Predicted]) -> FieldScale:
    """Fit the scale to the errors of some predictions of equally many steps."""
    num_channels = predicted[0].values.shape[-1]
    each = max(1, MAX_FITTED // len(predicted))
    features, errors = zip(*(_sampled(one, each) for one in predicted), strict=True)
    size = np.concatenate(errors, axis=1).mean(axis=(0, 1))  # of each channel
    floors = np.where(size > 0, FLOOR * size, 1e-12)
    weights = [
        _weights(
            np.concatenate([each[..., c, :].reshape(-1, NUM_FEATURES) for each in features]),
            np.concatenate([each[..., c].reshape(-1) for each in errors]),
            float(floors[c]),
        )
        for c in range(num_channels)
    ]
    flat = FieldScale(
        weights=tuple(map(tuple, weights)),
        floors=tuple(floors.tolist()),
        growth=(1.0,) * len(predicted[0].values),
    )
    of_step = sum(
        (one.errors / flat.at(one.points, one.values)).mean(axis=(1, 2)) for one in predicted
    ) / len(predicted)
    growth = np.maximum(of_step, 1e-6 * max(float(np.max(of_step)), 1e-300))
    return flat.model_copy(update={"growth": tuple(growth.tolist())})


def _sampled(one: Predicted, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features (T, n, C, F) and errors (T, n, C) at some points."""
    features = np.stack(list(_by_channel(one.points, one.values)), axis=2)
    kept = max(1, most // len(one.values))
    chosen = np.random.default_rng(0).permutation(len(one.points))[:kept]
    return features[:, chosen], one.errors[:, chosen]


def neighbour_variation(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the deviation of values (T, N, C) over each point and its neighbours: (T, N, C)."""
    near = cKDTree(points).query(points, min(NEIGHBOURS, len(points)))[1].reshape(len(points), -1)
    return np.stack([state[near].std(axis=1) for state in values])


def _by_channel(points: np.ndarray, values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the features (T, N, F) of each channel."""
    variation = neighbour_variation(points, values)
    overall = np.sqrt((variation**2).mean(axis=-1))
    ones = np.ones_like(overall)
    for c in range(values.shape[-1]):
        yield np.stack([ones, variation[..., c], overall, np.abs(values[..., c])], axis=-1)


def _weights(features: np.ndarray, errors: np.ndarray, floor: float) -> np.ndarray:
    """Fit weights; each error counts by its relative deviation from the scale."""
    scale = np.full(len(errors), max(float(errors.mean()), floor))
    weights = np.zeros(NUM_FEATURES)
    for _ in range(_ROUNDS):
        weights = nnls(features / scale[:, None], errors / scale)[0]
        scale = np.maximum(features @ weights, floor)
    return weights


LEAST_DESIGNS = 3
LEVEL = 0.9
ORDERS = np.linspace(0.5, 4.0, 71)
#: Those of usual schemes, taken where two mesh sizes do not tell one.
USUAL_ORDERS = (1.0, 2.0)
#: Least size of a quantity relative to its size in other designs, and on other meshes: of what is
#: nearly zero, the mesh's error is no share.
LEAST_SHARE, LEAST_OF_FINEST = 0.01, 0.1


class GridError(Frozen):
    """Where a quantity would be on an infinitely fine mesh, as a share of its value here."""

    order: float
    """That fits best; the lowest of the usual ones where it is not known"""
    low: float
    high: float
    """An interval with a probability of 90 %: (fine - here) / here"""
    num_designs: int = Field(ge=LEAST_DESIGNS)
    sizes: tuple[float, ...]

    def fine(self, value: float) -> tuple[float, float]:
        """Return the interval in which a quantity lies on an infinitely fine mesh."""
        ends = value * (1 + self.low), value * (1 + self.high)
        return min(ends), max(ends)


def fit_grid_error(sizes: np.ndarray, values: np.ndarray, here: float) -> GridError:
    """Fit to values (D, S) of designs on meshes of S sizes, for the mesh size `here`.

    InputError for fewer than three designs, meshes of fewer than two sizes, and a quantity that is
    nearly zero for some design, or on this mesh alone.
    """
    if len(values) < LEAST_DESIGNS or len(set(sizes.tolist())) < 2:
        raise InputError(
            f"a study of the mesh needs {LEAST_DESIGNS} designs solved with two mesh sizes or more;"
            f" there are {len(values)} with {len(set(sizes.tolist()))}"
        )
    orders = _possible_orders(sizes, values)
    intervals = np.array([_interval(sizes, values, here, order) for order in orders])
    return GridError(
        order=orders[0],
        low=float(intervals[:, 0].min()),
        high=float(intervals[:, 1].max()),
        num_designs=len(values),
        sizes=tuple(sizes.tolist()),
    )


def _possible_orders(sizes: np.ndarray, values: np.ndarray) -> list[float]:
    """Return the orders that the values do not contradict, the likeliest first.

    Those within the confidence region of the fit, by the F test of one parameter.
    """
    if len(sizes) < 3:
        return list(USUAL_ORDERS)
    misfits = np.array([_misfit(sizes, values, order)[0] for order in ORDERS])
    free = len(values) * (len(sizes) - 2) - 1
    most = misfits.min() * (1 + float(fisher.ppf(LEVEL, 1, free)) / free)
    by_fit = np.argsort(misfits, kind="stable")
    return [float(ORDERS[n]) for n in by_fit if misfits[n] <= most]


def _interval(
    sizes: np.ndarray, values: np.ndarray, here: float, order: float
) -> tuple[float, float]:
    """Return the interval of another design's (fine - here) / here, for an order."""
    _, fine, slopes, rest = _misfit(sizes, values, order)
    on_this = fine + slopes * here**order
    usual, largest = np.median(np.abs(on_this)), np.abs(values).max(axis=1)
    if (np.abs(on_this) <= np.maximum(LEAST_SHARE * usual, LEAST_OF_FINEST * largest)).any():
        raise InputError(
            "it is nearly zero for some design or on some mesh, so the mesh's error is no share of"
            " it"
        )
    shares = (fine - on_this) / on_this
    noise = np.abs(rest).mean(axis=1) / np.abs(on_this)
    number = len(values)
    spread = np.hypot(shares.std(ddof=1), np.sqrt((noise**2).mean())) * np.sqrt(1 + 1 / number)
    reach = float(student.ppf((1 + LEVEL) / 2, number - 1) * spread)
    mean = float(shares.mean())
    return mean - reach, mean + reach


def _misfit(
    sizes: np.ndarray, values: np.ndarray, order: float
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the relative misfit, q_0 (D,), c (D,) and residuals (D, S) of an order."""
    terms = np.stack([np.ones_like(sizes), sizes**order], axis=1)
    (fine, slopes) = np.linalg.lstsq(terms, values.T, rcond=None)[0]
    rest = values - fine[:, None] - slopes[:, None] * sizes**order
    scale = np.maximum(np.abs(values).mean(axis=1, keepdims=True), 1e-300)
    return float(((rest / scale) ** 2).sum()), fine, slopes, rest


MOST_DESIGNS = 500
"""A fit takes memory by the square of their number, and time by its cube"""

Error = Annotated[float, Field(ge=0)]


class RegressedQuantity(Frozen):
    """One quantity's fit, and how far it was off."""

    values: tuple[float | None, ...]
    """By training design, as the solver measured it; None where it is not on record"""
    logs: tuple[float, ...]
    """Logarithms of the length of each parameter, and of the noise over the variance"""
    errors: tuple[Error | None, ...]
    """By calibration case, absolute; None where the truth is not on record"""


class Regressed(Frozen):
    """The fits of a family's quantities to the designs of the training cases."""

    designs: tuple[tuple[float, ...], ...] = Field(min_length=1, max_length=MOST_DESIGNS)
    """Scaled to -1..1 over the ranges of the parameters"""
    quantities: dict[str, RegressedQuantity]

    @model_validator(mode="after")
    def _fits(self) -> Regressed:
        wide = {len(design) for design in self.designs}
        for name, each in self.quantities.items():
            known = sum(value is not None for value in each.values)
            if len(each.values) != len(self.designs) or wide != {len(each.logs) - 1} or not known:
                raise ValueError(f"the regression of {name} does not fit the designs")
        return self

    def values_at(self, design: np.ndarray) -> dict[str, float]:
        """Return each quantity at a scaled design (P,)."""
        return {name: float(fit(design[None])[0, 0]) for name, fit in self._processes.items()}

    @cached_property
    def _processes(self) -> Mapping[str, GaussianProcess]:
        designs = np.asarray(self.designs)
        found = {}
        for name, each in self.quantities.items():
            known = [number for number, value in enumerate(each.values) if value is not None]
            values = np.array([each.values[number] for number in known], dtype=float)
            logs = np.asarray(each.logs)
            found[name] = GaussianProcess.of(designs[known], values[:, None], logs)
        return found
