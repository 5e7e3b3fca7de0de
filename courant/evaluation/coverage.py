"""Find the part of the design space in which bands hold least often."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np
from pydantic import BaseModel, ConfigDict

from courant.evaluation.calibrate import absolute_errors, check_settings, newest
from courant.evaluation.quantities import Pair, recorded, score_quantities, solved_and_predicted
from courant.evaluation.record import QuantityScore
from courant.prediction.bands import (
    LEVEL,
    Bands,
    DesignBands,
    apply_bands,
    out_of_ranges,
    out_of_reach,
    refused,
    scaled_design,
)
from courant.prediction.surrogate import Surrogate, load
from courant.runs.directory import RunDirectory
from simgen.design_space import Parameter
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase

HALVINGS = 3


def worst_eighth(designs: np.ndarray, ratios: np.ndarray) -> float | None:
    """Return the least share of ratios <= 1 in an eighth of the designs (n, P).

    The designs are halved three times: by the parameters with the largest effect, over again where
    there are fewer. None where an eighth would have fewer than five cases, or nothing varies.
    """
    if len(designs) < 5 * 2**HALVINGS or designs.shape[1] < 1:
        return None
    upper = designs > np.median(designs, axis=0)
    effects = {
        number: abs(ratios[side].mean() - ratios[~side].mean())
        for number, side in enumerate(upper.T)
        if side.any()  # a parameter that does not vary has no halves
    }
    if not effects:
        return None
    by_effect = sorted(effects, key=effects.__getitem__, reverse=True)
    groups = [np.arange(len(designs))]
    for parameter in islice(cycle(by_effect), HALVINGS):
        groups = [half for group in groups for half in _halves(designs[:, parameter], group)]
    return float(min((ratios[group] <= 1).mean() for group in groups if len(group)))


def _halves(values: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split the members of a group by the median of their values."""
    order = group[np.argsort(values[group], kind="stable")]
    return order[: len(order) // 2], order[len(order) // 2 :]


Box = Mapping[str, tuple[float, float]]
"""By parameter, the ends of its range in its unit; others are free"""


class OutsideScore(BaseModel):
    """How one band did outside of the box."""

    model_config = ConfigDict(frozen=True)
    num_cases: int
    exceeding: int
    """Cases whose error is larger than the band would be"""
    by_ranges: int
    """Of these, refused because of the design parameters"""
    by_latents: int
    """Of these, refused because of the latents, whatever the ranges say"""
    by_either: int


@dataclass(frozen=True)
class Unguarded:
    """A case outside of the box: errors and bands as if nothing were refused."""

    errors: Mapping[str, tuple[float, float]]
    """Error and half-width by band"""
    by_ranges: bool
    by_latents: bool


def check_box(box: Box, parameters: Sequence[Parameter]) -> None:
    """Raise InputError for a parameter that there is not, and for an empty range."""
    names = [each.name for each in parameters]
    for name, (low, high) in box.items():
        if name not in names:
            raise InputError(f"--inside {name}: the parameters are {', '.join(names)}")
        if not low < high:
            raise InputError(f"--inside {name}={low:g}:{high:g}: the first end has to be the lower")


def is_inside(box: Box, design: Mapping[str, float]) -> bool:
    return all(low <= design[name] <= high for name, (low, high) in box.items())


def score_outside(cases: Sequence[Unguarded]) -> dict[str, OutsideScore]:
    """Count by band."""
    names = dict.fromkeys(name for case in cases for name in case.errors)
    return {
        name: _score_outside([case for case in cases if name in case.errors], name)
        for name in names
    }


def _score_outside(cases: Sequence[Unguarded], name: str) -> OutsideScore:
    wrong = [case for case in cases if case.errors[name][0] > case.errors[name][1]]
    return OutsideScore(
        num_cases=len(cases),
        exceeding=len(wrong),
        by_ranges=sum(case.by_ranges for case in wrong),
        by_latents=sum(case.by_latents for case in wrong),
        by_either=sum(case.by_ranges or case.by_latents for case in wrong),
    )


COVERAGE = "coverage.json"
FIELD = "field"
BY_REGRESSION = " by regression"
"""At the end of the name of a quantity that follows from the design parameters alone"""


class BandScore(BaseModel):
    """How one band did."""

    model_config = ConfigDict(frozen=True)
    num_cases: int
    """Cases with a band and a known error"""
    coverage: float
    worst_eighth: float | None
    """None with too few cases"""
    width: float
    """Mean half-width over the mean error; of the field both where the error over the band is the
    largest
    """
    error: float | None = None
    """Of a quantity, over all cases: the sum of absolute errors over the sum of absolute values"""
    null_error: float | None = None
    """The same of the null: a Gaussian process on the training designs' parameters; None in the
    rows `by regression`, whose error it is"""


class Coverage(BaseModel):
    """The bands of a run on a split."""

    model_config = ConfigDict(frozen=True)
    weights: str
    version: str
    split: str
    level: float
    num_cases: int
    refused: dict[str, str]
    """Cases for which no band holds, with the reason"""
    bands: dict[str, BandScore]
    """By quantity, of the field, and `<quantity> by regression`"""
    outside: dict[str, OutsideScore] = {}
    """The same of cases outside of a box that was given; they are left out of all other figures"""


def measure_coverage(
    run_url: str,
    split: str = "test",
    dataset_url: str | None = None,
    level: float = LEVEL,
    told: Callable[[int, int], None] | None = None,
    inside: Box | None = None,
) -> Coverage:
    """Hold the bands against the solved cases of a split of the newest version; keep the result.

    Cases outside of the box `inside` are scored apart: are they refused? InputError where the run
    is not calibrated, or the split has no case inside.
    """
    run = RunDirectory(run_url)
    run.check_writable()
    surrogate = load(run_url)
    bands = surrogate.bands
    if bands is None:
        raise InputError(f"{run.url} has no bands of these weights: courant calibrate {run.url}")
    dataset = newest(surrogate, dataset_url)
    check_box(inside or {}, dataset.schema.parameters)
    trained_on = surrogate.open_dataset(dataset_url)
    check_settings(dataset, dataset.cases(split), trained_on)
    cases, beyond = _divided(dataset, split, inside or {})
    if not cases:
        where = " inside of the box" if beyond else ""
        raise InputError(f"{dataset.url} {dataset.version} has no {split} case{where}")
    without: dict[str, str] = {}
    found: dict[str, list[tuple[np.ndarray, float, float]]] = {}
    pairs: dict[str, Pair] = {}
    for number, case in enumerate(map(dataset.__getitem__, cases)):
        if told is not None:
            told(number, len(cases) + len(beyond))
        pairs[case.id] = solved_and_predicted(surrogate, dataset, case)
        of_case, around = _hold(surrogate, bands, pairs[case.id], case, level)
        if around.refusal:
            without[case.id] = around.refusal
        design = scaled_design(surrogate, case.parameters)
        for name, (error, width) in of_case.items():
            found.setdefault(name, []).append((design, error, width))
    scores = score_quantities(surrogate, dataset, pairs, trained_on.cases("train"))
    rows = {name: _score(each, scores.get(name)) for name, each in found.items()}
    rows |= _of_regression(surrogate, bands, dataset, cases, level)
    coverage = Coverage(
        weights=surrogate.weights,
        version=dataset.version,
        split=split,
        level=level,
        num_cases=len(cases),
        refused=without,
        bands=rows,
        outside=score_outside(
            [
                _unguarded(surrogate, bands, dataset, case, level)
                for case in map(dataset.__getitem__, beyond)
            ]
        ),
    )
    run.write_json(COVERAGE, coverage.model_dump(mode="json"))
    return coverage


def _divided(dataset: Dataset, split: str, inside: Box) -> tuple[list[str], list[str]]:
    """Return a split's cases inside and outside of a box."""
    cases = dataset.cases(split)
    rows = dataset.design.loc[cases, list(inside)].to_numpy(float).tolist()
    held = [is_inside(inside, dict(zip(inside, row, strict=True))) for row in rows]
    return (
        [case for case, within in zip(cases, held, strict=True) if within],
        [case for case, within in zip(cases, held, strict=True) if not within],
    )


def _unguarded(
    surrogate: Surrogate, bands: Bands, dataset: Dataset, case: StoredCase, level: float
) -> Unguarded:
    """Take a case's errors and bands as if nothing were refused, and what would refuse it."""
    free = bands.unguarded()
    pair = solved_and_predicted(surrogate, dataset, case)
    errors, _ = _hold(surrogate, free, pair, case, level)
    alone = {}
    for name, (value, width) in free.by_regression(
        scaled_design(surrogate, case.parameters), level
    ).items():
        truth = float(recorded(dataset, name, [case.id])[0])
        if np.isfinite(truth):
            alone[f"{name}{BY_REGRESSION}"] = abs(value - truth), width
    prepared = surrogate.prepare_case(case, surrogate.problem.shown_start(case))
    return Unguarded(
        {**errors, **alone},
        bool(out_of_ranges(surrogate, bands, case.parameters)),
        bool(out_of_reach(surrogate, bands, prepared)),
    )


def _hold(
    surrogate: Surrogate, bands: Bands, quantities: Pair, case: StoredCase, level: float
) -> tuple[Mapping[str, tuple[float, float]], DesignBands]:
    """Return error and half-width by quantity, and of the field at its worst place.

    A transient case's field is that of one window, its quantities those of the rollout to its end:
    either may be refused alone.
    """
    start = surrogate.problem.shown_start(case)
    prepared = surrogate.prepare_case(case, start)
    values = surrogate.predict_prepared([prepared])[0]
    around = apply_bands(
        surrogate,
        bands,
        prepared,
        values,
        points=np.asarray(case.points),
        parameters=case.parameters,
        start_s=start,
        level=level,
    )
    found: dict[str, tuple[float, float]] = {}
    if around.field is not None:
        truth = _truth(surrogate, case, start, values)
        error = np.abs(values - truth)
        worst = np.unravel_index((error / around.field).argmax(), error.shape)
        found[FIELD] = float(error[worst]), float(around.field[worst])
    if _has_no_quantities(surrogate, bands, case, around):
        return found, around
    design = scaled_design(surrogate, case.parameters)
    for name, wrong in absolute_errors(*quantities).items():
        width = bands.quantity(name, design, level)
        if wrong is not None and np.isfinite(width):
            found[name] = wrong, width
    return found, around


def _has_no_quantities(
    surrogate: Surrogate, bands: Bands, case: StoredCase, around: DesignBands
) -> bool:
    """Tell whether the quantities of a case's whole rollout have no band."""
    start = surrogate.problem.start(case)
    if start is None:
        return bool(around.refusal)
    span = bands.span
    if span is not None and surrogate.problem.steps_to_end(case, start) != span.steps:
        return True
    prepared = surrogate.prepare_case(case, start)
    return bool(refused(surrogate, bands, case.parameters, prepared))


def _of_regression(
    surrogate: Surrogate, bands: Bands, dataset: Dataset, cases: Sequence[str], level: float
) -> dict[str, BandScore]:
    """Score the bands of quantities that follow from the design parameters alone."""
    designs = [scaled_design(surrogate, dataset[case].parameters) for case in cases]
    around = [bands.by_regression(design, level) for design in designs]
    scores = {}
    for name in dict.fromkeys(name for each in around for name in each):
        truth = recorded(dataset, name, cases)
        finite = np.flatnonzero(np.isfinite(truth)).tolist()
        if known := [number for number in finite if name in around[number]]:
            values = np.array([around[number][name][0] for number in known])
            errors = np.abs(values - truth[known]).tolist()
            rows = [
                (designs[number], error, around[number][name][1])
                for number, error in zip(known, errors, strict=True)
            ]
            size = float(np.abs(truth[known]).sum())
            score = _score(rows, None)
            relative = sum(errors) / size if size else None
            scores[f"{name}{BY_REGRESSION}"] = score.model_copy(update={"error": relative})
    return scores


def _truth(
    surrogate: Surrogate, case: StoredCase, start: float | None, values: np.ndarray
) -> np.ndarray:
    """Return the solved states of a prediction, shaped like it."""
    problem = surrogate.problem
    if start is None:
        return np.asarray(problem.solution(case, None))
    times = problem.times(start, len(values))
    assert times is not None
    return np.stack([np.asarray(problem.solution(case, at)) for at in times.tolist()])


def _score(
    rows: Sequence[tuple[np.ndarray, float, float]], quantity: QuantityScore | None
) -> BandScore:
    designs = np.stack([row[0] for row in rows])
    errors, widths = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
    return BandScore(
        num_cases=len(rows),
        coverage=float((errors <= widths).mean()),
        worst_eighth=worst_eighth(designs, errors / np.maximum(widths, 1e-300)),
        width=float(widths.mean() / max(errors.mean(), 1e-300)),
        error=None if quantity is None else quantity.error,
        null_error=None if quantity is None else quantity.null_error,
    )
