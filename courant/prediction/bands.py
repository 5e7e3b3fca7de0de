"""Bands of error around predictions, from cases that nothing else has seen.

Split conformal prediction: `courant calibrate` predicts the cases of the calibration split and
keeps their errors. A new case's error is, with the probability of the band's level, no larger than
the corresponding quantile of theirs, as long as it is drawn like them; nothing is assumed of the
model. Errors are first divided by what is usual near a design (`ErrorSize`), and in fields at a
place (`FieldScale`), so that bands are wide where errors are large. Vovk et al. 2005, Algorithmic
Learning in a Random World; Lei et al. 2018, Distribution-Free Predictive Inference for Regression,
section 5.2. The band of a field is simultaneous: with that probability it holds at all points,
steps and components of the prediction at once.

No band holds for a design outside of those that were trained on and calibrated (`ranges_of`), nor
for a prediction whose latents are unlike those of all training cases (`Reach`). `Outcomes` has the
share of the designs near by that the solver rejected. `GridError` is the error of the solver's own
mesh, which a perfect surrogate has too; `Regressed` has quantities by the design parameters alone.

Designs are scaled to -1..1 over the ranges of their parameters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, model_validator
from scipy.optimize import nnls
from scipy.spatial import cKDTree
from scipy.special import fdtri, stdtrit

from courant.data_config import Frozen
from courant.runs.directory import RunDirectory
from courant.runs.record import BANDS
from simgen.design_space import Parameter, scaled
from simgen.errors import InputError
from simgen.regression import GaussianProcess

LEVEL = 0.9
#: Comparing each design with each other one takes memory by their square.
MOST_CASES = 5_000

NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Design = tuple[float, ...]
"""Scaled to -1..1 over the ranges of the design space"""
Ranges = tuple[tuple[float, float], ...]
"""By parameter, of scaled designs"""


def conformal_quantile(scores: np.ndarray, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n scores; infinite where there is none."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return math.inf if rank > len(scores) else float(np.sort(scores)[rank - 1])


def least_cases(level: float) -> int:
    """Return how many calibration cases a level needs."""
    return math.ceil(level / (1 - level) - 1e-9)


RIDGES = (0.3, 3.0, 30.0)
#: Gain in log-likelihood from which on parameters count.
LEAST_GAIN = 2.0
#: The least size that is distinguished, over the median: logarithms of smaller errors are noise.
LEAST_SIZE = 0.02


@dataclass(frozen=True)
class ErrorSize:
    """The usual size of errors near a design: exp(terms @ weights).

    Its logarithm is regressed on the parameters and their squares by ridge regression. Leave-one-
    out errors, which ridge regression gives in closed form, decide how many of these terms count.
    """

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
    sizes = np.maximum(errors, LEAST_SIZE * float(np.median(errors[errors > 0])))

    def loss(fitted: ErrorSize) -> float:
        # The negative log-likelihood of exponentially distributed sizes, left out.
        return float((np.log(fitted.left_out) + sizes / fitted.left_out).sum())

    best = fit_of_degree(designs, sizes, 0, 0.0)
    least = loss(best) - LEAST_GAIN
    for degree in (1, 2):
        for ridge in RIDGES:
            fitted = fit_of_degree(designs, sizes, degree, ridge)
            if (found := loss(fitted)) < least:
                best, least = fitted, found
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


def half_width(designs: np.ndarray, errors: np.ndarray, design: np.ndarray, level: float) -> float:
    """Return the half-width of a band at a design, from errors (n,) at designs (n, P)."""
    if len(errors) < 2 or not errors.any():
        return math.inf if len(errors) < 2 else 0.0
    usual = fit_error_size(designs, errors)
    quantile = conformal_quantile(errors / usual.left_out, level)
    return quantile * float(usual.at(design[None])[0])


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
    """The scale of error at each point of a field, without truth, in normalised units.

    Errors are largest where the prediction changes most over a cell's neighbours, and where its
    values are large. The scale is a sum of these features with weights (C, F) that are not
    negative, at least the floors (C,), times the growth (T,) over the steps of a rollout.
    """

    weights: tuple[tuple[NotNegative, NotNegative, NotNegative, NotNegative], ...]
    floors: tuple[Positive, ...] = Field(min_length=1, max_length=1000)
    growth: tuple[Positive, ...] = Field(min_length=1, max_length=100_000)

    @model_validator(mode="after")
    def _fits(self) -> FieldScale:
        if len(self.floors) != len(self.weights):
            raise ValueError("its weights do not fit its channels")
        return self

    def at(self, points: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return (T, N, C) for a prediction (T, N, C), at most as many steps as were fitted."""
        by_channel = zip(_features(points, values), np.asarray(self.weights), strict=True)
        scales = np.stack([features @ weights for features, weights in by_channel], axis=-1)
        scales = np.maximum(scales, np.asarray(self.floors))
        return scales * np.asarray(self.growth)[: len(values), None, None]


def _features(points: np.ndarray, values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield of each channel (T, N, F): one, deviation over neighbours, that of all, and size."""
    near = cKDTree(points).query(points, min(NEIGHBOURS, len(points)))[1].reshape(len(points), -1)
    variation = np.stack([state[near].std(axis=1) for state in values])
    overall = np.sqrt((variation**2).mean(axis=-1))
    ones = np.ones_like(overall)
    for c in range(values.shape[-1]):
        yield np.stack([ones, variation[..., c], overall, np.abs(values[..., c])], axis=-1)


def fit_scale(predicted: Sequence[Predicted]) -> FieldScale:
    """Fit the scale to the errors of some predictions of equally many steps."""
    num_steps = len(predicted[0].values)
    kept = max(1, max(1, MAX_FITTED // len(predicted)) // num_steps)
    sampled = []
    for one in predicted:
        chosen = np.random.default_rng(0).permutation(len(one.points))[:kept]
        features = np.stack(list(_features(one.points, one.values)), axis=2)
        sampled.append((features[:, chosen], one.errors[:, chosen]))
    size = np.concatenate([errors for _, errors in sampled], axis=1).mean(axis=(0, 1))
    floors = np.where(size > 0, FLOOR * size, 1e-12)
    weights = []
    for c, floor in enumerate(floors.tolist()):
        features = np.concatenate(
            [each[..., c, :].reshape(-1, NUM_FEATURES) for each, _ in sampled]
        )
        errors = np.concatenate([each[..., c].reshape(-1) for _, each in sampled])
        # Each error counts by its relative deviation from the scale.
        scale, fitted = np.full(len(errors), max(float(errors.mean()), floor)), np.zeros(0)
        for _ in range(_ROUNDS):
            fitted = nnls(features / scale[:, None], errors / scale)[0]
            scale = np.maximum(features @ fitted, floor)
        weights.append(fitted.tolist())
    fits = {"weights": weights, "floors": floors.tolist(), "growth": (1.0,) * num_steps}
    flat = FieldScale.model_validate(fits)
    of_step = sum(
        (one.errors / flat.at(one.points, one.values)).mean(axis=(1, 2)) for one in predicted
    ) / len(predicted)
    growth = np.maximum(of_step, 1e-6 * max(float(np.max(of_step)), 1e-300))
    return flat.model_copy(update={"growth": tuple(growth.tolist())})


LEAST_DESIGNS = 3
ORDERS = np.linspace(0.5, 4.0, 71)
#: Those of usual schemes, taken where two mesh sizes do not determine one.
USUAL_ORDERS = (1.0, 2.0)
#: Least size of a quantity relative to its size in other designs, and on other meshes: of what is
#: nearly zero, the mesh's error is no share.
LEAST_SHARE, LEAST_OF_FINEST = 0.01, 0.1


class GridError(Frozen):
    """The difference of a quantity on an infinitely fine mesh, as a share of its value here.

    By Richardson extrapolation: on cells of size h a quantity is q(h) = q_0 + c h^p. The order p is
    fitted to all designs at once, q_0 and c to each; the mean and the spread of the shares give an
    interval for other designs. The order is known badly, so the interval is the hull of those for
    every order that the solutions do not contradict. Roache 1994, Perspective: A Method for
    Uniform Reporting of Grid Refinement Studies.
    """

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
    orders = list(USUAL_ORDERS)
    if len(sizes) > 2:
        # The confidence region of the fit, by the F test of one parameter, the likeliest first.
        misfits = np.array([_richardson(sizes, values, order)[0] for order in ORDERS])
        free = len(values) * (len(sizes) - 2) - 1
        most = misfits.min() * (1 + float(fdtri(1, free, LEVEL)) / free)
        by_fit = np.argsort(misfits, kind="stable")
        orders = [float(ORDERS[n]) for n in by_fit if misfits[n] <= most]
    intervals = np.array([_interval(sizes, values, here, order) for order in orders])
    return GridError(
        order=orders[0],
        low=float(intervals[:, 0].min()),
        high=float(intervals[:, 1].max()),
        num_designs=len(values),
        sizes=tuple(sizes.tolist()),
    )


def _interval(
    sizes: np.ndarray, values: np.ndarray, here: float, order: float
) -> tuple[float, float]:
    """Return the interval of another design's (fine - here) / here, for an order."""
    _, fine, slopes, rest = _richardson(sizes, values, order)
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
    reach = float(stdtrit(number - 1, (1 + LEVEL) / 2) * spread)
    mean = float(shares.mean())
    return mean - reach, mean + reach


def _richardson(
    sizes: np.ndarray, values: np.ndarray, order: float
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the relative misfit, q_0 (D,), c (D,) and residuals (D, S) of an order."""
    terms = np.stack([np.ones_like(sizes), sizes**order], axis=1)
    (fine, slopes) = np.linalg.lstsq(terms, values.T, rcond=None)[0]
    rest = values - fine[:, None] - slopes[:, None] * sizes**order
    scale = np.maximum(np.abs(values).mean(axis=1, keepdims=True), 1e-300)
    return float(((rest / scale) ** 2).sum()), fine, slopes, rest


#: A regression takes memory by the square of their number, and time by its cube.
MOST_DESIGNS = 500


class RegressedQuantity(Frozen):
    """The Gaussian process of one quantity, and its errors."""

    values: tuple[float | None, ...]
    """By training design, as the solver measured it; None where it is not on record"""
    logs: tuple[float, ...]
    """Logarithms of the length of each parameter, and of the noise over the variance"""
    errors: tuple[NotNegative | None, ...]
    """By calibration case, absolute; None where the truth is not on record"""


class Regressed(Frozen):
    """A family's quantities, regressed on the parameters of the training designs alone."""

    designs: tuple[Design, ...] = Field(min_length=1, max_length=MOST_DESIGNS)
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
        found = {}
        for name, each in self.quantities.items():
            known = [number for number, value in enumerate(each.values) if value is not None]
            values = np.array([each.values[number] for number in known], dtype=float)
            designs = np.asarray(self.designs)[known]
            found[name] = GaussianProcess.of(designs, values[:, None], np.asarray(each.logs))
        return found


COMPONENTS = 8
LEAST_REACH = 1e-12
#: A prediction is within reach if its latents are as near to a training case's as this share of
#: the calibration cases' are.
REACH = 0.99


def pooled(latents: np.ndarray) -> np.ndarray:
    """Reduce latents (..., L, d) to the mean and the deviation over anchors, (..., 2 d)."""
    wide = latents.astype(np.float64)
    return np.concatenate([wide.mean(axis=-2), wide.std(axis=-2)], axis=-1)


def whitening(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and whitening principal components (K, 2 d) of pooled latents (n, 2 d)."""
    mean = states.mean(axis=0)
    _, sizes, directions = np.linalg.svd(states - mean, full_matrices=False)
    sizes = sizes[:COMPONENTS] / np.sqrt(len(states))
    kept = sizes > 1e-6 * max(sizes[0], 1e-300)
    return mean, directions[: len(sizes)][kept] / sizes[kept, None]


class Reach(Frozen):
    """Pooled latents of training cases, and whitened principal components of them."""

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

    def distance(self, latents: np.ndarray) -> float:
        """Return the distance of pooled latents (2 d,) from the nearest known ones."""
        reduced = np.asarray(self.components) @ (latents - np.asarray(self.mean))
        return float(np.linalg.norm(np.asarray(self.known) - reduced, axis=1).min())


def fit_reach(known: Sequence[np.ndarray]) -> Reach | None:
    """Fit to the pooled latents of training cases; None for a model that has none."""
    if len(known) < 3:
        return None
    states = np.stack(known)
    mean, components = whitening(states)
    return Reach(
        mean=tuple(mean.tolist()),
        components=tuple(map(tuple, components.tolist())),
        known=tuple(map(tuple, ((states - mean) @ components.T).tolist())),
        limit=LEAST_REACH,
    )


GAPS = 3.0
#: Of designs that are computed, not typed.
ROUNDING = 1e-6


def ranges_of(designs: np.ndarray) -> Ranges:
    """Return the ranges that designs (n, P) represent, within those of the design space.

    They may fill a part of it alone. The outermost of n designs is not the end of the range that
    they were drawn from: this lies a mean gap farther out, and in 19 of 20 samples within three.
    """
    least, most = designs.min(axis=0), designs.max(axis=0)
    margin = GAPS * (most - least) / max(len(designs) - 1, 1)
    low = np.minimum(least, np.maximum(least - margin, -1.0))
    high = np.maximum(most, np.minimum(most + margin, 1.0))
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def shared_ranges(one: np.ndarray, other: np.ndarray) -> Ranges:
    """Return the ranges that two samples (n, P), (m, P) of designs share; empty without parameters.

    Where both were drawn from one range, together they give its ends more sharply than each alone.
    """
    if not one.shape[1]:
        return ()
    found = np.array([ranges_of(each) for each in (one, other, np.concatenate([one, other]))])
    low, high = found[..., 0].max(axis=0), found[..., 1].min(axis=0)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def outside(ranges: Ranges, design: np.ndarray) -> list[int]:
    """Return the numbers of the parameters in which a design (P,) lies outside of ranges."""
    return [
        number
        for number, (place, (low, high)) in enumerate(zip(design, ranges, strict=False))
        if not low - ROUNDING <= place <= high + ROUNDING
    ]


NEAREST = 10
#: Weight of the share of all designs, in designs.
PRIOR = 2.0


class Outcomes(Frozen):
    """Which designs have an accepted solution."""

    designs: tuple[Design, ...] = Field(min_length=1, max_length=MOST_CASES)
    unsolved: tuple[bool, ...]

    @model_validator(mode="after")
    def _fits(self) -> Outcomes:
        if len(self.designs) != len(self.unsolved):
            raise ValueError("it has not one outcome for each design")
        return self

    def unsolved_near(self, design: np.ndarray) -> float:
        """Return the share near a design without accepted solution, drawn towards that of all."""
        away = np.linalg.norm(np.asarray(self.designs) - design, axis=1)
        unsolved = np.asarray(self.unsolved, dtype=float)
        near = unsolved[np.argsort(away, kind="stable")[:NEAREST]]
        return float((near.sum() + PRIOR * unsolved.mean()) / (len(near) + PRIOR))


class FieldErrors(Frozen):
    """The scale of the errors of fields, and the largest of each case over it."""

    scale: FieldScale
    largest: tuple[NotNegative, ...]
    """By calibration case: the largest error at any point, step and component, over the scale"""


class CalibratedRollout(Frozen):
    """The rollouts that quantities of a transient model were calibrated on."""

    start_s: float
    steps: int


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
    no_field: str = ""
    """Why the field has none, in words"""
    no_quantities: str = ""
    """Why quantities have none, in words"""
    by_regression: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Value and half-width of quantities by the design parameters alone"""


class Bands(Frozen):
    """The calibration of a run."""

    weights: str
    """Digest of the weights that were calibrated"""
    version: str
    """Of the dataset whose calibration split was predicted"""
    cases: tuple[str, ...] = Field(min_length=1, max_length=MOST_CASES)
    designs: tuple[Design, ...]
    quantities: dict[str, tuple[NotNegative | None, ...]]
    """Absolute errors by case; None where a case has none"""
    rollout: CalibratedRollout | None = None
    """None of a steady model"""
    field: FieldErrors
    reach: Reach | None = None
    """None of a model without latents"""
    ranges: Ranges
    """Within which training and calibration designs lie; empty without parameters"""
    outcomes: Outcomes
    grid: dict[str, GridError] = Field(default_factory=dict)
    """By quantity, where the mesh was studied"""
    no_grid: dict[str, str] = Field(default_factory=dict)
    """Quantities for which the study gave no error, with the reason"""
    regressed: Regressed | None = None

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
        """Return value and half-width of each regressed quantity; empty outside of `ranges`."""
        if self.regressed is None or outside(self.ranges, design):
            return {}
        values = self.regressed.values_at(design)
        widths = {
            name: self._around(each.errors, design, level)
            for name, each in self.regressed.quantities.items()
        }
        return {name: (values[name], width) for name, width in widths.items() if width < math.inf}

    def _around(self, errors: Sequence[float | None], design: np.ndarray, level: float) -> float:
        known = [number for number, error in enumerate(errors) if error is not None]
        sizes = np.array([errors[number] for number in known], dtype=float)
        return half_width(np.asarray(self.designs)[known], sizes, design, level)

    def unguarded(self) -> Bands:
        """Return these bands for designs unlike the calibration's too, where they hold no more."""
        return self.model_copy(update={"reach": None, "ranges": ()})

    def out_of_ranges(self, space: Sequence[Parameter], parameters: Mapping[str, float]) -> str:
        """Return the parameters in which a design lies outside of the known ones; else empty."""
        found = []
        for number in outside(self.ranges, scaled(space, parameters)):
            each = space[number]
            unit = "" if each.unit == "1" else f" {each.unit}"
            low, high = (
                each.low + (end + 1) / 2 * (each.high - each.low) for end in self.ranges[number]
            )
            found.append(
                f"{each.name.replace('_', ' ')} = {parameters[each.name]:g}{unit} lies outside of"
                f" {low:.4g} to {high:.4g}{unit}"
            )
        of = "the designs that the model was trained and calibrated on"
        return f"{', '.join(found)}, {of}" if found else ""

    def out_of_reach(self, latents: np.ndarray | None) -> str:
        """Return by how much pooled latents (2 d,) are unlike any training case's; else empty."""
        reach = self.reach
        if reach is None or latents is None or len(latents) != len(reach.mean):
            return ""
        distance = reach.distance(latents)
        if distance <= reach.limit:
            return ""
        return (
            f"its latent state is {distance / reach.limit:.1f} times farther from those of the"
            " training cases than the calibration cases are"
        )

    def field_widths(
        self, points: np.ndarray, values: np.ndarray, design: np.ndarray, level: float = LEVEL
    ) -> np.ndarray:
        """Return half-widths (T, N, C) of predicted fields (T, N, C), both in normalised units."""
        largest = np.asarray(self.field.largest)
        over_scale = half_width(np.asarray(self.designs), largest, design, level)
        return over_scale * self.field.scale.at(points, values)


def read_bands(run: RunDirectory, weights: str) -> Bands | None:
    """Return the run's bands; None where it was not calibrated with weights of this digest."""
    if not run.exists(BANDS):
        return None
    bands = run.read_record(BANDS, Bands, "remove it and calibrate again")
    return bands if bands.weights == weights else None
