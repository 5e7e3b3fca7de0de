"""Check a run's bands on cases that were used for nothing: how often do they hold?

coverage     share of the cases whose error is within the band; to be the band's level, and more
             for the field of a transient case, of whose windows one is scored
worst eighth the least coverage in an eighth of the design space: the cases are halved three
             times, by the medians of the parameters that errors over the band depend on most
width        half-width of the bands over the mean error; 2.3 to 3 where errors have one size
"""

from collections.abc import Callable
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel

from courant.evaluation.calibrate import check_settings, newest
from courant.evaluation.quantities import Pair, score_quantities, solved_and_predicted, true_values
from courant.prediction.bands import LEVEL, Bands, quantity_bands
from courant.prediction.surrogate import Surrogate, load
from courant.runs.directory import RunDirectory
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase

COVERAGE = "coverage.json"
FIELD = "field"
HALVINGS = 3


class BandScore(BaseModel, frozen=True):
    """The coverage and the width of one band."""

    num_cases: int  # cases with a band and a known error
    coverage: float
    worst_eighth: float | None  # None with too few cases
    width: float  # mean half-width over mean error; of fields where errors over bands are largest
    error: float | None = None  # of a quantity: absolute errors over absolute values
    null_error: float | None = None  # of the null


class Coverage(BaseModel, frozen=True):
    """The bands of a run on a split."""

    weights: str
    version: str
    split: str
    level: float
    num_cases: int
    without: dict[str, str]  # cases for whose field no band holds, with the reason
    bands: dict[str, BandScore]  # by quantity, and of the field


class _Held(NamedTuple):
    """One case's error beside the half-width of a band."""

    design: np.ndarray  # (P,) scaled
    error: float
    width: float


def measure_coverage(
    run_url: str,
    split: str = "test",
    dataset_url: str | None = None,
    level: float = LEVEL,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Coverage:
    """Compare the bands with the solved cases of a split of the newest version; keep the result.

    A run that is not calibrated has the left-out bands of its quantities alone, of the level that
    its cases give. InputError where there is neither band, or no case of the split.
    """
    run = RunDirectory(run_url)
    run.check_writable()
    surrogate = load(run_url)
    bands = surrogate.bands
    if bands is None and not surrogate.answers.processes:
        raise InputError(f"{run.url} has no bands of these weights: courant calibrate {run.url}")
    if bands is None:
        known = min(len(each.scores) for each in surrogate.answers.quantities.values())
        level = min(level, known / (known + 1))
    dataset, trained_on = newest(surrogate, dataset_url), surrogate.open_dataset(dataset_url)
    cases = dataset.required(split)
    check_settings(dataset, cases, trained_on)
    without: dict[str, str] = {}
    found: dict[str, list[_Held]] = {}
    pairs: dict[str, Pair] = {}
    for number, case in enumerate(map(dataset.__getitem__, cases)):
        progress(number, len(cases))
        pairs[case.id] = solved_and_predicted(surrogate, dataset, case)
        of_case, no_field = compare_case(surrogate, bands, dataset, case, pairs[case.id], level)
        without |= {case.id: no_field} if no_field else {}
        for name, each in of_case.items():
            found.setdefault(name, []).append(each)
    scores = score_quantities(surrogate.answers, dataset, pairs, trained_on.cases("train"))
    scored = {}
    for name, of in found.items():
        designs, errors, widths = map(np.array, zip(*of, strict=True))
        score = scores.get(name)
        scored[name] = BandScore(
            num_cases=len(of),
            coverage=float((errors <= widths).mean()),
            worst_eighth=worst_eighth(designs, errors / np.maximum(widths, 1e-300)),
            width=float(widths.mean() / max(errors.mean(), 1e-300)),
            error=score.error if score else None,
            null_error=score.null_error if score else None,
        )
    coverage = Coverage(
        weights=surrogate.weights,
        version=dataset.version,
        split=split,
        level=level,
        num_cases=len(cases),
        without=without,
        bands=scored,
    )
    run.write_json(COVERAGE, coverage.model_dump(mode="json"))
    return coverage


def compare_case(
    surrogate: Surrogate,
    bands: Bands | None,
    dataset: Dataset,
    case: StoredCase,
    quantities: Pair,
    level: float,
) -> tuple[dict[str, _Held], str]:
    """Return a case's errors (of the field the worst) beside their bands, and why it has none."""
    # A transient case's field is that of one window, its quantities those of the rollout to its
    # end: either may be without a band alone.
    problem, design = surrogate.problem, surrogate.scaled(case.parameters)
    start = problem.shown_start(case)
    prepared = surrogate.prepare_case(case, start)
    values = surrogate.predict_prepared(prepared)
    around = surrogate.bands_around(
        prepared, values, case.points, case.parameters, start, level, bands
    )
    found: dict[str, _Held] = {}
    if around.field is not None:
        times = None if start is None else problem.times(start, len(values))
        truth = problem.solutions(case, times)
        if truth is None or np.isnan(truth).any():
            raise InputError(
                f"case {case.id} has no solution at a predicted time, every {problem.step_s} s from"
                f" {start} s on; solve it with snapshots as those of the training"
            )
        error = np.abs(values - truth)
        worst = np.unravel_index((error / around.field).argmax(), error.shape)
        found[FIELD] = _Held(design, float(error[worst]), float(around.field[worst]))
    begin, none = problem.start(case), around.no_field
    if bands is None:
        none = ""
    elif begin is not None:
        none = bands.out_of_reach(surrogate.pooled_latents(surrogate.prepare_case(case, begin)))
        if bands.rollout and problem.steps_to_end(case, begin) != bands.rollout.steps:
            none = "it is another rollout than was calibrated"
    named = {name: np.array([value]) for name, value in quantities[1].items()}
    answered = surrogate.answers.at(design[None], named, not none, apart=True)
    found_of = {name: float(of[0]) for name, of in answered.items()}
    widths = quantity_bands(surrogate.answers, bands, design, found_of, not none, level)
    for name, band in widths.items():
        wrong = abs(found_of[name] - float(true_values(dataset, name, {case.id: quantities})[0]))
        if np.isfinite(wrong) and band.kind == ("calibrated" if bands else "left out"):
            found[name] = _Held(design, wrong, band.half_width)
    return found, around.no_field


def worst_eighth(designs: np.ndarray, ratios: np.ndarray) -> float | None:
    """Return the least share of ratios <= 1 in an eighth of designs (n, P); None for too few."""
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
        halved = []
        for group in groups:
            order = group[np.argsort(designs[group, parameter], kind="stable")]
            halved += [order[: len(order) // 2], order[len(order) // 2 :]]
        groups = halved
    return float(min((ratios[group] <= 1).mean() for group in groups))
