"""A steady model on a split: errors by component and case, beside the training mean and the nearest design."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from courant.data.steady import read_solution
from courant.evaluation.metrics import ErrorSums
from courant.evaluation.references import MODEL, NEAREST_DESIGN, TRAINING_MEAN
from courant.evaluation.steady_references import NearestDesign, training_mean
from courant.evaluation.timing import timing
from courant.steady_surrogate import SteadySurrogate
from simgen.store.reader import Dataset, StoredCase

PREDICTORS = (MODEL, NEAREST_DESIGN, TRAINING_MEAN)


def measure_cases(surrogate: SteadySurrogate, dataset: Dataset, cases: Sequence[str]) -> dict[str, Any]:
    """Errors over every point of the cases, by component and case."""
    nearest = NearestDesign(dataset, surrogate.normaliser)
    total = {name: ErrorSums(surrogate.channels) for name in PREDICTORS}
    by_case: dict[str, Any] = {}
    seconds: list[float] = []
    surrogate.predict_case(dataset[cases[0]])  # the first call also loads libraries: it is no measure of the time
    for name in cases:
        case = dataset[name]
        truth = read_solution(case, surrogate.normaliser)
        began = time.perf_counter()
        predicted = surrogate.predict_case(case)
        seconds.append(time.perf_counter() - began)
        of_case = {key: ErrorSums(surrogate.channels) for key in PREDICTORS}
        of_case[MODEL].add(predicted[None], truth[None])
        of_case[NEAREST_DESIGN].add(nearest.at(case)[None], truth[None])
        of_case[TRAINING_MEAN].add(training_mean(surrogate.normaliser, len(truth))[None], truth[None])
        by_case[name] = {"nearest_design": nearest.of(case), **{key: of_case[key].total() for key in PREDICTORS}}
        for key in PREDICTORS:
            total[key].merge(of_case[key])
    overall = {name: total[name].total() for name in PREDICTORS}
    return {
        "num_windows": len(cases),
        "cases": by_case,
        "nmae": {name: total[name].nmae() for name in PREDICTORS},
        "relative_l2": {name: total[name].relative_l2() for name in PREDICTORS},
        "overall": overall,
        "by_component": {
            name: {channel: total[name].total(channel) for channel in surrogate.channels} for name in PREDICTORS
        },
        "beats": {name: bool(overall[MODEL]["nmae"] < overall[name]["nmae"]) for name in PREDICTORS[1:]},
        "timing": _timing(surrogate, [dataset[case] for case in cases], seconds),
    }


def _timing(surrogate: SteadySurrogate, cases: Sequence[StoredCase], seconds: Sequence[float]) -> dict[str, Any]:
    """One case's prediction beside the solver's time for a case."""
    walls = [case.provenance.get("wall_time_s", {}).get("solve") for case in cases]
    known = [wall for wall in walls if wall]
    return timing(surrogate, cases, seconds, float(np.mean(known)) if known else None)
