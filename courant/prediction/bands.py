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

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from scipy.optimize import nnls
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.stats import f as fisher
from scipy.stats import t as student

from courant.data_config import Frozen
from courant.field_model import Encodes
from courant.problems.transient import TIME_TOLERANCE
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS
from simgen.design_space import Parameter, scaled
from simgen.errors import InputError
from simgen.regression import GaussianProcess

if TYPE_CHECKING:
    from courant.data.batch import Batch
    from courant.prediction.surrogate import Surrogate
    from simgen.store.read import StoredCase


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


COMPONENTS = 8
LEAST_REACH = 1e-12
#: A prediction is within reach if its latents are as near to a training case's as this share of
#: the calibration cases' are.
REACH = 0.99
#: Comparing each design with each other one takes memory by their square.
MOST_CASES = 5_000


class Reach(Frozen):
    """Latents of training cases, to tell whether a prediction starts from anything like them.

    A latent state is reduced to the mean and the deviation over anchors, then to whitened
    principal components.
    """

    mean: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]
    known: tuple[tuple[float, ...], ...] = Field(min_length=1, max_length=MOST_CASES)
    limit: float = Field(gt=0)

    @model_validator(mode="after")
    def _fits(self) -> Reach:
        wide = {len(row) for row in self.components} <= {len(self.mean)}
        if not wide or {len(row) for row in self.known} != {len(self.components)}:
            raise ValueError("its sizes do not fit one another")
        return self

    def distance(self, latent: np.ndarray) -> float:
        """Return the distance of pooled latents (2 d,) from the nearest known ones."""
        reduced = np.asarray(self.components) @ (latent - np.asarray(self.mean))
        return float(np.linalg.norm(np.asarray(self.known) - reduced, axis=1).min())


def fit_reach(known: Sequence[np.ndarray]) -> Reach | None:
    """Learn the latents of training cases; None for a model that has none."""
    if len(known) < 3:
        return None
    mean = np.mean(known, axis=0)
    _, sizes, directions = np.linalg.svd(np.stack(known) - mean, full_matrices=False)
    kept = [n for n, size in enumerate(sizes[:COMPONENTS]) if size > 1e-6 * sizes[0]]
    components = directions[kept] / (sizes[kept, None] / np.sqrt(len(known)))
    return Reach(
        mean=tuple(mean.tolist()),
        components=tuple(map(tuple, components.tolist())),
        known=tuple(map(tuple, ((np.stack(known) - mean) @ components.T).tolist())),
        limit=LEAST_REACH,
    )


def ending_at(reach: Reach, limit: float) -> Reach:
    """Let the reach end at a distance; a model whose latents tell nothing of a case has no end."""
    return reach.model_copy(update={"limit": max(limit, LEAST_REACH)})


GAPS = 3.0
#: Of designs that are computed, not typed.
ROUNDING = 1e-6

Ranges = tuple[tuple[float, float], ...]
"""By parameter, of designs that are scaled to -1..1 over the ranges of the design space"""


def ranges_of(designs: np.ndarray) -> Ranges:
    """Return the ranges that designs (n, P) speak for, within those of the design space."""
    least, most = designs.min(axis=0), designs.max(axis=0)
    margin = GAPS * (most - least) / max(len(designs) - 1, 1)
    low = np.minimum(least, np.maximum(least - margin, -1.0))
    high = np.maximum(most, np.minimum(most + margin, 1.0))
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def shared_ranges(one: np.ndarray, other: np.ndarray) -> Ranges:
    """Return what two samples (n, P), (m, P) of designs both speak for; empty without parameters.

    Where both were drawn from one range, together they tell its ends more sharply than each alone.
    """
    if not one.shape[1]:
        return ()
    found = np.array([ranges_of(each) for each in (one, other, np.concatenate([one, other]))])
    low, high = found[..., 0].max(axis=0), found[..., 1].min(axis=0)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def is_outside(ranges: Ranges, design: np.ndarray) -> bool:
    """Tell whether a scaled design (P,) lies outside; never without ranges."""
    return any(not _inside(place, *ends) for place, ends in zip(design, ranges, strict=False))


def outside(ranges: Ranges, parameters: Sequence[Parameter], design: Mapping[str, float]) -> str:
    """Say by which parameters a design lies outside of ranges; empty if it does not.

    Without ranges, as in calibrations of older releases, nothing lies outside.
    """
    places = scaled(parameters, design).tolist()
    told = [
        f"{each.name.replace('_', ' ')} = {design[each.name]:g}{_unit(each)} lies outside of"
        f" {_restored(each, low):.4g} to {_restored(each, high):.4g}{_unit(each)}"
        for each, place, (low, high) in zip(parameters, places, ranges, strict=False)
        if not _inside(place, low, high)
    ]
    if not told:
        return ""
    return f"{', '.join(told)}, the designs that the model was trained and calibrated on"


def _inside(place: float, low: float, high: float) -> bool:
    return low - ROUNDING <= place <= high + ROUNDING


def _restored(parameter: Parameter, place: float) -> float:
    return parameter.low + (place + 1) / 2 * (parameter.high - parameter.low)


def _unit(parameter: Parameter) -> str:
    return "" if parameter.unit == "1" else f" {parameter.unit}"


Design = tuple[float, ...]
"""Scaled to -1..1 over the ranges of the design space"""


class Outcomes(Frozen):
    """Which designs have an accepted solution."""

    designs: tuple[Design, ...] = Field(min_length=1, max_length=MOST_CASES)
    unsolved: tuple[bool, ...]

    @model_validator(mode="after")
    def _fits(self) -> Outcomes:
        if len(self.designs) != len(self.unsolved):
            raise ValueError("it has not one outcome for each design")
        return self

    @cached_property
    def _near(self) -> KernelMean:
        # Fitted once for many designs: its time grows with the square of their number.
        values = np.asarray(self.unsolved, dtype=float)
        return fit_kernel_mean(np.asarray(self.designs), values, share_loss)

    def unsolved_near(self, design: np.ndarray) -> float:
        """Return the share of designs near one that have no accepted solution."""
        return float(self._near.at(design[None])[0])


LEVEL = 0.9

Error = Annotated[float, Field(ge=0)]


class FieldErrors(Frozen):
    """How far predicted fields were off."""

    scale: FieldScale
    largest: tuple[Error, ...]
    """By calibration case: the largest error at any point, step and component, over the scale"""


class Span(Frozen):
    """The rollouts that quantities of a transient model were calibrated on."""

    start_s: float
    steps: int


class Bands(Frozen):
    """The calibration of a run; designs are scaled to -1..1 over the ranges of the parameters."""

    weights: str
    """Digest of the weights that were calibrated"""
    version: str
    """Of the dataset whose calibration split was predicted"""
    cases: tuple[str, ...] = Field(min_length=1, max_length=MOST_CASES)
    designs: tuple[Design, ...]
    quantities: dict[str, tuple[Error | None, ...]]
    """Absolute errors by case; None where a case has none"""
    span: Span | None = None
    field: FieldErrors
    reach: Reach | None = None
    ranges: Ranges
    """Within which training and calibration designs lie; empty without parameters"""
    outcomes: Outcomes
    grid: dict[str, GridError] = Field(default_factory=dict)
    """By quantity, where the mesh was studied"""
    no_grid: dict[str, str] = Field(default_factory=dict)
    """Quantities that the study told nothing of, with the reason"""
    regressed: Regressed | None = None
    """Quantities by the design parameters alone"""

    @model_validator(mode="after")
    def _fits(self) -> Bands:
        columns = [self.designs, self.field.largest, *self.quantities.values()]
        if self.regressed is not None:
            columns += [each.errors for each in self.regressed.quantities.values()]
        widths = {len(design) for design in (*self.designs, *self.outcomes.designs)}
        widths |= {len(self.ranges)} if self.ranges else set()
        if {len(column) for column in columns} != {len(self.cases)} or len(widths) != 1:
            raise ValueError("it has not one value for each case")
        return self

    def quantity(self, name: str, design: np.ndarray, level: float = LEVEL) -> float:
        """Return a quantity's half-width; infinite with too few calibration cases."""
        return self._around(self.quantities[name], design, level)

    def by_regression(
        self, design: np.ndarray, level: float = LEVEL
    ) -> dict[str, tuple[float, float]]:
        """Return value and half-width of each regressed quantity that has a band.

        None has one outside of the designs that were trained on and calibrated.
        """
        if self.regressed is None or is_outside(self.ranges, design):
            return {}
        widths = {
            name: self._around(each.errors, design, level)
            for name, each in self.regressed.quantities.items()
        }
        values = self.regressed.values_at(design)
        return {name: (values[name], width) for name, width in widths.items() if width < math.inf}

    def _around(self, errors: Sequence[float | None], design: np.ndarray, level: float) -> float:
        known = [number for number, error in enumerate(errors) if error is not None]
        sizes = np.array([errors[number] for number in known], dtype=float)
        return half_width(np.asarray(self.designs)[known], sizes, design, level)

    def unguarded(self) -> Bands:
        """Return these bands for designs unlike the calibration's too, where they hold no more."""
        return self.model_copy(update={"reach": None, "ranges": ()})

    def over_scale(self, design: np.ndarray, level: float = LEVEL) -> float:
        """Return the field's half-width over its scale."""
        errors = np.asarray(self.field.largest)
        return half_width(np.asarray(self.designs), errors, design, level)


@dataclass(frozen=True)
class DesignBands:
    """The bands of one prediction, in physical units."""

    level: float
    quantities: Mapping[str, float]
    """Half-widths; infinite where there are too few calibration cases"""
    field: np.ndarray | None
    """Half-widths, shaped like the prediction; None where none holds"""
    unsolved: float
    """Share of designs near this one that had no accepted solution"""
    refusal: str = ""
    """Why no band holds, in words"""
    no_quantities: str = ""
    """Why quantities have none, in words"""
    by_regression: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Value and half-width of quantities by the design parameters alone"""


def half_width(designs: np.ndarray, errors: np.ndarray, design: np.ndarray, level: float) -> float:
    """Return the half-width of a band at a design, from errors (n,) at designs (n, P)."""
    if len(errors) < 2 or not errors.any():
        return math.inf if len(errors) < 2 else 0.0
    usual = fit_error_size(designs, errors)
    quantile = conformal_quantile(errors / usual.left_out, level)
    return quantile * float(usual.at(design[None])[0])


def conformal_quantile(scores: np.ndarray, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n scores; infinite where there is none."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return math.inf if rank > len(scores) else float(np.sort(scores)[rank - 1])


def least_cases(level: float) -> int:
    """Return how many calibration cases a level needs."""
    return math.ceil(level / (1 - level) - 1e-9)


def read_bands(run: RunDirectory, weights: str) -> Bands | None:
    """Return the run's bands; None where it was not calibrated with weights of this digest."""
    if not run.exists(BANDS):
        return None
    bands = run.read_record(BANDS, Bands, "remove it and calibrate again")
    return bands if bands.weights == weights else None


def apply_bands(
    surrogate: Surrogate,
    bands: Bands,
    prepared: Batch,
    values: np.ndarray,
    *,
    points: np.ndarray,
    parameters: Mapping[str, float],
    start_s: float | None = None,
    level: float = LEVEL,
) -> DesignBands:
    """Return the bands of a prediction; none where nothing like it was trained on or calibrated.

    values (T, N, C) of a transient model's rollout from `start_s`, (N, C) of a steady one, at
    points (N, 3) m, as predicted from `prepared`.
    """
    design = scaled_design(surrogate, parameters)
    unsolved = bands.outcomes.unsolved_near(design)
    refusal = refused(surrogate, bands, parameters, prepared)
    if not refusal and len(bands.cases) < least_cases(level):
        refusal = (
            f"a level of {level:.0%} needs {least_cases(level)} calibration cases, the run has"
            f" {len(bands.cases)}"
        )
    by_regression = bands.by_regression(design, level)
    if refusal:
        return DesignBands(level, {}, None, unsolved, refusal, refusal, by_regression)
    no_quantities = _other_rollout(bands, values, start_s, surrogate.step_s)
    quantities = (
        {}
        if no_quantities
        else {name: bands.quantity(name, design, level) for name in bands.quantities}
    )
    field = None
    steps = values.reshape(-1, *values.shape[-2:])
    calibrated = len(bands.field.scale.growth)
    if len(steps) <= calibrated:
        normaliser = surrogate.normaliser.at(parameters)
        scale = bands.field.scale.at(points, normaliser.standardise(steps))
        scale = scale * np.asarray(normaliser.std)
        field = (bands.over_scale(design, level) * scale).reshape(values.shape)
    else:
        refusal = f"bands are calibrated for {calibrated} steps, {len(steps)} were asked for"
    return DesignBands(level, quantities, field, unsolved, refusal, no_quantities, by_regression)


def bands_of_case(
    surrogate: Surrogate,
    case: StoredCase,
    values: np.ndarray,
    start_s: float | None = None,
    level: float = LEVEL,
) -> DesignBands | None:
    """Return the bands of a predicted stored case; None for a run that is not calibrated.

    `values` are those of `predict_case` from `start_s` (None where training windows begin).
    """
    if surrogate.bands is None:
        return None
    begin = surrogate.problem.start(case, start_s)
    prepared = surrogate.prepare_case(case, begin)
    return apply_bands(
        surrogate,
        surrogate.bands,
        prepared,
        values,
        points=np.asarray(case.points),
        parameters=case.parameters,
        start_s=begin,
        level=level,
    )


def scaled_design(surrogate: Surrogate, parameters: Mapping[str, float]) -> np.ndarray:
    """Return (P,) design parameters of the training's dataset, -1..1 over their ranges."""
    return scaled(space_of(surrogate), parameters)


def space_of(surrogate: Surrogate) -> list[Parameter]:
    """Return the design parameters of the training's dataset."""
    return [Parameter(**each) for each in surrogate.dataset["parameters"]]


def pooled_latents(surrogate: Surrogate, prepared: Batch) -> np.ndarray | None:
    """Return the mean and the deviation over anchors of a request's latents, (2 d,).

    None for a model without latents.
    """
    if not isinstance(surrogate.model, Encodes):
        return None
    inputs, _ = prepared.for_model(surrogate.model.config)
    with torch.inference_mode():
        latents = surrogate.model.encode(inputs)[0].float()
    pooled = torch.cat([latents.mean(dim=0), latents.std(dim=0, unbiased=False)])
    return pooled.cpu().numpy().astype(np.float64)


def refused(
    surrogate: Surrogate, bands: Bands, parameters: Mapping[str, float], prepared: Batch
) -> str:
    """Say why no band holds for a request, by its parameters or by its latents; else empty."""
    return out_of_ranges(surrogate, bands, parameters) or out_of_reach(surrogate, bands, prepared)


def out_of_ranges(surrogate: Surrogate, bands: Bands, parameters: Mapping[str, float]) -> str:
    """Say by which parameters a design lies outside of those that are known; else empty."""
    return outside(bands.ranges, space_of(surrogate), parameters)


def out_of_reach(surrogate: Surrogate, bands: Bands, prepared: Batch) -> str:
    """Say why no band holds for a request whose latents are like no training case's; else empty."""
    reach, latents = bands.reach, pooled_latents(surrogate, prepared)
    if reach is None or latents is None or len(latents) != len(reach.mean):
        return ""
    distance = reach.distance(latents)
    if distance <= reach.limit:
        return ""
    return (
        f"its latent state is {distance / reach.limit:.1f} times farther from those of the"
        " training cases than the calibration cases are"
    )


def _other_rollout(
    bands: Bands, values: np.ndarray, start_s: float | None, step_s: float | None
) -> str:
    """Say why quantities of a rollout have no band, if it is another one than was calibrated."""
    span = bands.span
    if span is None or start_s is None:
        return ""
    same = abs(span.start_s - start_s) <= TIME_TOLERANCE * (step_s or 1.0)
    if same and values.ndim == 3 and span.steps == len(values):
        return ""
    return f"quantities are calibrated for rollouts of {span.steps} steps from {span.start_s:g} s"
