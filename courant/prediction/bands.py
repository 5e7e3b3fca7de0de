"""Bands of error around predictions, from cases that nothing else has seen.

Split conformal prediction: `courant calibrate` predicts the cases of the calibration split and
keeps their errors. A new case's error is, with the probability of the band's level, no larger than
the corresponding quantile of theirs, as long as it is drawn like them; nothing is assumed of the
model. Errors are first divided by what is usual near a design, the deviation of a regression or an
`ErrorSize`, and in fields at a place (`FieldScale`). Vovk et al. 2005, Algorithmic Learning in a
Random World; Lei et al. 2018, Distribution-Free Predictive Inference for Regression, section 5.2.
The band of a field is simultaneous: with that probability it holds at all points, steps and
components at once. Without enough calibration cases a quantity's band is found from the errors of
its regression at cases that were left out of it (cross-conformal prediction: Vovk 2015; Barber et
al. 2021, Predictive Inference with the Jackknife+).

No band holds for a design outside of those that were trained on and calibrated (`ranges`), nor for
a prediction whose latents are unlike those of all training cases (`Reach`). Designs are scaled
to -1..1 over the ranges of their parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, model_validator
from scipy.optimize import nnls
from scipy.special import fdtri, stdtrit

from courant.experiment import Frozen
from courant.prediction.answers import SAME_DESIGN, Answers
from simgen.design_space import Parameter, scaled
from simgen.errors import InputError
from simgen.point_cloud import point_tree
from simgen.regression import GaussianProcess

LEVEL = 0.9
#: Comparing each design with each other one takes memory by their square.
MOST_CASES = 5_000

NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Design = tuple[float, ...]
Ranges = tuple[tuple[float, float], ...]


def conformal_quantile(scores: np.ndarray, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n scores; infinite where there is none."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return float(np.sort(scores)[rank - 1]) if 0 < rank <= len(scores) else math.inf


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
    """The usual size of errors near a design: exp(terms @ weights)."""

    degree: int
    """0: the same everywhere; 1: parameters; 2: their squares too"""
    weights: np.ndarray
    left_out: np.ndarray
    """(n,) sizes near each design, from all others"""

    def at(self, designs: np.ndarray) -> np.ndarray:
        """Return the usual size near (k, P) designs, (k,)."""
        return np.exp(_terms(designs, self.degree) @ self.weights)


def _terms(designs: np.ndarray, degree: int) -> np.ndarray:
    powers = [np.ones((len(designs), 1)), designs, designs**2 - 1 / 3]
    return np.concatenate(powers[: degree + 1], axis=1)


def fit_error_size(designs: np.ndarray, errors: np.ndarray) -> ErrorSize:
    """Fit sizes to errors (n,) that are not negative, of which one at least is positive.

    The logarithm is regressed on the parameters and their squares. Leave-one-out errors, which
    ridge regression gives in closed form, decide how many of these terms count.
    """
    sizes = np.maximum(errors, LEAST_SIZE * float(np.median(errors[errors > 0])))
    logs, best, least = np.log(sizes), None, math.inf
    for degree, ridge in ((0, 0.0), *((degree, ridge) for degree in (1, 2) for ridge in RIDGES)):
        terms = _terms(designs, degree)
        penalty = ridge * np.eye(terms.shape[1])
        penalty[0, 0] = 0.0
        solved = np.linalg.solve(terms.T @ terms + penalty, terms.T)
        weights = solved @ logs
        leverage = np.minimum((terms * solved.T).sum(axis=1), 1 - 1e-6)
        left_out = np.exp(logs - (logs - terms @ weights) / (1 - leverage))
        # The mean of a logarithm is not the logarithm of the mean.
        factor = float((sizes / left_out).mean())
        weights[0] += np.log(factor)
        fitted = ErrorSize(degree, weights, factor * left_out)
        # The negative log-likelihood of exponentially distributed sizes, left out.
        loss = float((np.log(fitted.left_out) + sizes / fitted.left_out).sum())
        if best is None or loss < least:
            best, least = fitted, loss - (LEAST_GAIN if degree == 0 else 0.0)
    assert best is not None
    return best


def half_width(
    designs: np.ndarray,
    errors: np.ndarray,
    design: np.ndarray,
    level: float,
    process: GaussianProcess | None = None,
) -> float:
    """Return the half-width of a band at a design, from errors (n,) at designs (n, P).

    It grows with the deviation of a process, if there is one, and else as errors near by do.
    Errors that are NaN are left out; it is infinite where they are too few for the level.
    """
    known = np.isfinite(errors)
    designs, errors = designs[known], errors[known]
    if len(errors) < 2 or not errors.any():
        return conformal_quantile(errors, level)
    if process is None:
        usual = fit_error_size(designs, errors)
        sizes, here = usual.left_out, usual.at(design[None])[0]
    else:
        deviations = process.deviation(np.array([*designs, design]))[:, 0]
        sizes, here = deviations[:-1], deviations[-1]
    return conformal_quantile(errors / sizes, level) * float(here)


NEIGHBOURS = 8
#: The least scale anywhere, over the mean absolute error: elsewhere a band could shrink to nothing.
FLOOR = 0.2
MAX_FITTED = 200_000
_ROUNDS = 4


class Predicted(NamedTuple):
    """A prediction (T, N, C) on points (N, d), and its absolute errors (T, N, C)."""

    points: np.ndarray
    values: np.ndarray
    errors: np.ndarray


class FieldScale(Frozen):
    """The scale of error at each point of a field, without truth, in normalised units.

    It is a sum of features, the prediction's change over a cell's neighbours and its size, with
    weights (C, F), at least the floors (C,), times the growth (T,) over the steps of a rollout.
    """

    weights: tuple[tuple[NotNegative, NotNegative, NotNegative, NotNegative], ...]
    floors: tuple[Positive, ...] = Field(min_length=1, max_length=1000)
    growth: tuple[Positive, ...] = Field(min_length=1, max_length=100_000)

    def at(self, points: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return (T, N, C) for a prediction (T, N, C), at most as many steps as were fitted."""
        by_channel = zip(_features(points, values), np.asarray(self.weights), strict=True)
        scales = np.stack([features @ weights for features, weights in by_channel], axis=-1)
        growth = np.asarray(self.growth)[: len(values), None, None]
        return np.maximum(scales, np.asarray(self.floors)) * growth


def _features(points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return (C, T, N, F): one, deviation over neighbours, that of all channels, and size."""
    near = point_tree(points).query(points, min(NEIGHBOURS, len(points)))[1]
    near = near.reshape(len(points), -1)
    variation = np.stack([state[near].std(axis=1) for state in values])
    overall = np.broadcast_to(np.sqrt((variation**2).mean(axis=-1, keepdims=True)), values.shape)
    found = np.stack([np.ones_like(overall), variation, overall, np.abs(values)], axis=-1)
    return np.ascontiguousarray(np.moveaxis(found, 2, 0))


def fit_scale(predicted: Sequence[Predicted]) -> FieldScale:
    """Fit the scale to the errors of some predictions of equally many steps."""
    num_steps = len(predicted[0].values)
    kept = max(1, max(1, MAX_FITTED // len(predicted)) // num_steps)
    sampled = []
    for one in predicted:
        chosen = np.random.default_rng(0).permutation(len(one.points))[:kept]
        sampled.append((_features(one.points, one.values)[:, :, chosen], one.errors[:, chosen]))
    size = np.concatenate([errors for _, errors in sampled], axis=1).mean(axis=(0, 1))
    floors, weights = np.where(size > 0, FLOOR * size, 1e-12), []
    for c, floor in enumerate(floors.tolist()):
        features = np.concatenate([each[c].reshape(-1, each.shape[-1]) for each, _ in sampled])
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
    """The difference of a quantity on an infinitely fine mesh, as a share of its value here."""

    order: float
    """That fits best; the lowest of the usual ones where it is not known"""
    low: float
    """With `high` an interval with a probability of 90 %: (fine - here) / here"""
    high: float
    num_designs: int = Field(ge=LEAST_DESIGNS)
    sizes: tuple[float, ...]

    def fine(self, value: float) -> tuple[float, float]:
        """Return the interval in which a quantity lies on an infinitely fine mesh."""
        ends = value * (1 + self.low), value * (1 + self.high)
        return min(ends), max(ends)


def fit_grid_error(sizes: np.ndarray, values: np.ndarray, here: float) -> GridError:
    """Fit to values (D, S) of designs on meshes of S sizes, for the mesh size `here`.

    By Richardson extrapolation: on cells of size h a quantity is q(h) = q_0 + c h^p, of one order
    for all designs; mean and spread of the shares give an interval for other designs. It is the
    hull of those for every order that the solutions do not contradict. Roache 1994, Perspective: A
    Method for Uniform Reporting of Grid Refinement Studies. InputError for fewer than three designs
    or two sizes, and for a quantity that is nearly zero for some design, or on this mesh alone.
    """
    number = len(values)
    if number < LEAST_DESIGNS or len(set(sizes.tolist())) < 2:
        raise InputError(
            f"a study of the mesh needs {LEAST_DESIGNS} designs solved with two mesh sizes or more;"
            f" there are {number} with {len(set(sizes.tolist()))}"
        )
    fits = []
    for order in ORDERS.tolist() if len(sizes) > 2 else USUAL_ORDERS:
        terms = np.stack([np.ones_like(sizes), sizes**order], axis=1)
        fine, slopes = np.linalg.lstsq(terms, values.T, rcond=None)[0]
        rest = values - fine[:, None] - slopes[:, None] * sizes**order
        relative = rest / np.maximum(np.abs(values).mean(axis=1, keepdims=True), 1e-300)
        fits.append((float((relative**2).sum()), order, fine, slopes, rest))
    if len(sizes) > 2:
        # The confidence region of the fit, by the F test of one parameter, the likeliest first.
        fits.sort(key=lambda fit: fit[0])
        free = number * (len(sizes) - 2) - 1
        most = fits[0][0] * (1 + float(fdtri(1, free, LEVEL)) / free)
        fits = [fit for fit in fits if fit[0] <= most]
    ends = []
    for _, order, fine, slopes, rest in fits:
        on_this = fine + slopes * here**order
        usual, largest = np.median(np.abs(on_this)), np.abs(values).max(axis=1)
        if (np.abs(on_this) <= np.maximum(LEAST_SHARE * usual, LEAST_OF_FINEST * largest)).any():
            raise InputError(
                "it is nearly zero for some design or on some mesh, so the mesh's error is no share"
                " of it"
            )
        shares = (fine - on_this) / on_this
        noise = np.abs(rest).mean(axis=1) / np.abs(on_this)
        spread = np.hypot(shares.std(ddof=1), np.sqrt((noise**2).mean())) * np.sqrt(1 + 1 / number)
        reach = float(stdtrit(number - 1, (1 + LEVEL) / 2) * spread)
        ends.append((float(shares.mean()) - reach, float(shares.mean()) + reach))
    return GridError(
        order=fits[0][1],
        low=min(low for low, _ in ends),
        high=max(high for _, high in ends),
        num_designs=number,
        sizes=tuple(sizes.tolist()),
    )


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


def shared_ranges(*samples: np.ndarray) -> Ranges:
    """Return the ranges that samples (n, P) of designs share; empty without parameters.

    The end of the range that n designs were drawn from lies a mean gap beyond the outermost, in 19
    of 20 samples within three. Samples of one range give its ends more sharply together.
    """
    if not samples[0].shape[1]:
        return ()
    lows, highs = [], []
    for designs in (*samples, np.concatenate(samples)):
        least, most = designs.min(axis=0), designs.max(axis=0)
        margin = GAPS * (most - least) / max(len(designs) - 1, 1)
        lows.append(np.minimum(least, np.maximum(least - margin, -1.0)))
        highs.append(np.maximum(most, np.minimum(most + margin, 1.0)))
    low, high = np.max(lows, axis=0), np.min(highs, axis=0)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def outside(ranges: Ranges, design: np.ndarray) -> list[int]:
    """Return the numbers of the parameters in which a design (P,) lies outside of ranges."""
    return [
        number
        for number, (place, (low, high)) in enumerate(zip(design, ranges, strict=False))
        if not low - 2 * SAME_DESIGN <= place <= high + 2 * SAME_DESIGN
    ]


def out_of_ranges(
    ranges: Ranges, space: Sequence[Parameter], parameters: Mapping[str, float]
) -> str:
    """Return the parameters in which a design lies outside of ranges; else empty."""
    found = []
    for number in outside(ranges, scaled(space, parameters)):
        each = space[number]
        unit = "" if each.unit == "1" else f" {each.unit}"
        low, high = (each.low + (end + 1) / 2 * (each.high - each.low) for end in ranges[number])
        found.append(
            f"{each.name.replace('_', ' ')} = {parameters[each.name]:g}{unit} lies outside of"
            f" {low:.4g} to {high:.4g}{unit}"
        )
    of = "the designs that the model was trained and calibrated on"
    return f"{', '.join(found)}, {of}" if found else ""


def is_remote(known: np.ndarray, design: np.ndarray) -> bool:
    """Return whether a design (P,) is farther from its P + 1 nearest of (n, P) than any of these.

    Errors of designs that were left out say little of it: too few bands hold there.
    """
    apart, near = np.linalg.norm(known[:, None] - [*known, design], axis=-1), len(design) + 1
    apart.sort(axis=0)
    usual, here = apart[1 : near + 1, :-1].mean(axis=0).max(), apart[:near, -1].mean()
    return bool(here > usual * (1 + ROUNDING))


class FieldErrors(Frozen):
    """The scale of errors, and each case's largest at any point, step and component over it."""

    scale: FieldScale
    largest: tuple[NotNegative, ...]


class CalibratedRollout(Frozen):
    """The rollouts that quantities of a transient model were calibrated on."""

    start_s: float
    steps: int


class QuantityBand(Frozen):
    """The band around the answer for a quantity of one design."""

    half_width: float
    kind: str
    """`calibrated` by calibration cases, or by the regression's own, each `left out` of it"""
    level: float
    """Probability with which it holds"""
    num_cases: int

    def __str__(self) -> str:
        return f"{self.level:.0%} {self.kind}, {self.num_cases} cases"


@dataclass(frozen=True)
class DesignBands:
    """The bands of one prediction, in physical units."""

    level: float
    """Of the field"""
    field: np.ndarray | None
    """Half-widths, shaped like the prediction; None where none holds"""
    unsolved: float
    """Share of designs near this one that had no accepted solution; 0 without an evaluation"""
    no_field: str = ""
    """Why the field has none"""
    no_quantities: str = ""
    """Why the fields have no part in quantities; those of the regression alone have their bands"""
    quantities: Mapping[str, QuantityBand] = field_of(default_factory=dict)
    """Without those that have none"""


class Bands(Frozen):
    """The calibration of a run."""

    weights: str
    """Digest of the weights that were calibrated, on this version of the dataset"""
    version: str
    cases: tuple[str, ...] = Field(min_length=1, max_length=MOST_CASES)
    designs: tuple[Design, ...]
    solved: dict[str, tuple[float | None, ...]]
    """Quantities by case, as the solver measured them; None where a case has none"""
    of_fields: dict[str, tuple[float | None, ...]]
    """The same of the predicted fields"""
    rollout: CalibratedRollout | None = None
    field: FieldErrors
    reach: Reach | None = None
    """None of a model without latents"""
    ranges: Ranges
    """Within which training and calibration designs lie; empty without parameters"""
    grid: dict[str, GridError] = Field(default_factory=dict)
    """By quantity, where the mesh was studied"""
    no_grid: dict[str, str] = Field(default_factory=dict)
    """Why the study gave no error, by quantity"""

    @model_validator(mode="after")
    def _fits(self) -> Bands:
        columns = [self.designs, self.field.largest]
        columns += [*self.solved.values(), *self.of_fields.values()]
        if {len(column) for column in columns} != {len(self.cases)}:
            raise ValueError("it has not one value for each case")
        return self

    def errors(self, answers: Answers, usable: bool = True) -> dict[str, np.ndarray]:
        """Return the answers' absolute errors (n,) by case; NaN where one is not known.

        Where fields are not `usable`, of the quantities that are regressed alone.
        """
        named = {name: np.array(of, dtype=float) for name, of in self.of_fields.items()}
        found = answers.at(np.asarray(self.designs), named, usable)
        return {
            name: np.abs(found[name] - np.array(truth, dtype=float))
            for name, truth in self.solved.items()
            if name in (found if usable else answers.quantities)
        }

    def chosen(self, answers: Answers) -> Answers:
        """Return the answers without fields where the regression alone has the narrower band."""
        kept, known, both = dict(answers.quantities), np.array(self.designs), self.errors(answers)
        for name, alone in self.errors(answers, False).items():
            at = known[0], LEVEL, answers.processes[name]
            if half_width(known, alone, *at) < half_width(known, both[name], *at):
                kept[name] = kept[name].model_copy(update={"share": 0.0})
        return answers.model_copy(update={"quantities": kept})

    def out_of_reach(self, latents: np.ndarray | None) -> str:
        """Return by how much pooled latents (2 d,) are unlike any training case's; else empty."""
        if self.reach is None or latents is None or len(latents) != len(self.reach.mean):
            return ""
        distance, limit = self.reach.distance(latents), self.reach.limit
        far = f"its latent state is {distance / limit:.1f} times farther from those of the training"
        return "" if distance <= limit else f"{far} cases than the calibration cases are"


def known_ranges(answers: Answers, bands: Bands | None) -> Ranges:
    """Return the ranges in which bands hold: of a calibration, or of the regressed designs."""
    return bands.ranges if bands else shared_ranges(np.array(answers.designs or [()]))


def quantity_bands(
    answers: Answers,
    bands: Bands | None,
    design: np.ndarray,
    values: Mapping[str, float],
    usable: bool = True,
    level: float = LEVEL,
) -> dict[str, QuantityBand]:
    """Return the bands around the answers `values` for a scaled design (P,), where there are any.

    They are found from the errors of the calibration cases, if these are enough for the level.
    Else from the scores of the regression's own cases, at the highest level that so many give; how
    far the fields are off is not known then, so the band reaches from the answer around that of
    the regression. `usable` is whether the fields have a part in the answers.
    """
    found, errors = dict[str, QuantityBand](), bands.errors(answers, usable) if bands else {}
    for name, value in ({} if outside(known_ranges(answers, bands), design) else values).items():
        process, of, at = answers.processes.get(name), errors.get(name, np.zeros(0)), design[None]
        kind, most, number, width = "calibrated", level, int(np.isfinite(of).sum()), math.inf
        if bands is not None and name in errors:
            width = half_width(np.asarray(bands.designs), of, design, level, process)
        if process is not None and width == math.inf:
            scores = np.array(answers.quantities[name].scores)
            kind, number = "left out", len(scores)
            most = min(level, number / (number + 1))
            width = conformal_quantile(scores, most) * float(process.deviation(at)[0, 0])
            width += abs(value - float(process(at)[0, 0]))
        if math.isfinite(width + value):
            found[name] = QuantityBand(half_width=width, kind=kind, level=most, num_cases=number)
    return found
