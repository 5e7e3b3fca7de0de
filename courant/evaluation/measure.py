"""The one measuring loop: a model and its references on every window of every case."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from courant.evaluation.evaluation import MODEL, CaseErrors, Score, Timing
from courant.evaluation.metrics import ALL, ErrorSums
from courant.evaluation.references import Reference, references
from courant.prediction.surrogate import Surrogate
from simgen.store.reader import Dataset, StoredCase


def measure(surrogate: Surrogate, dataset: Dataset, ids: Sequence[str]) -> dict[str, Any]:
    """The measured fields of an `Evaluation`; InputError where no window fits into a case."""
    beside = references(surrogate.problem, dataset)
    total = {name: ErrorSums(surrogate.channels) for name in (MODEL, *beside)}
    cases: dict[str, CaseErrors] = {}
    seconds: list[float] = []
    # The first prediction also loads libraries: it is no measure of the time.
    surrogate.predict_case(dataset[ids[0]])
    for case in map(dataset.__getitem__, ids):
        sums, took = _measure_case(surrogate, case, beside)
        seconds += took
        cases[case.id] = CaseErrors(
            windows=sums[MODEL].num_windows,
            overall={name: _score(sums[name]) for name in sums},
            nmae={name: _steps(sums[name].nmae()) for name in sums},
            notes={name: note for name, each in beside.items() if (note := each.note(case))},
        )
        for name in total:
            total[name].merge(sums[name])
    return {
        "num_windows": total[MODEL].num_windows,
        "cases": cases,
        "overall": {name: _score(sums) for name, sums in total.items()},
        "by_component": {
            name: {component: _score(sums, component) for component in surrogate.channels}
            for name, sums in total.items()
        },
        "nmae": {name: _steps(sums.nmae()) for name, sums in total.items()},
        "relative_l2": {name: _steps(sums.relative_l2()) for name, sums in total.items()},
        "timing": _timing(surrogate, [dataset[case] for case in ids], seconds),
    }


def _measure_case(
    surrogate: Surrogate, case: StoredCase, beside: Mapping[str, Reference]
) -> tuple[dict[str, ErrorSums], list[float]]:
    """Error sums of one case by predictor, and the seconds that each of the model's predictions took."""
    sums = {name: ErrorSums(surrogate.channels) for name in (MODEL, *beside)}
    seconds = []
    for window in surrogate.problem.windows(case):
        began = time.perf_counter()
        predicted = surrogate.predict_case(case, start_s=window.start_s)
        seconds.append(time.perf_counter() - began)
        sums[MODEL].add(predicted.reshape(window.truth.shape), window.truth)
        for name, reference in beside.items():
            sums[name].add(reference.predict(case, window), window.truth)
    return sums, seconds


def _score(sums: ErrorSums, component: str = ALL) -> Score:
    return Score(**sums.total(component))


def _steps(by_name: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(values) for name, values in by_name.items()}


def _timing(surrogate: Surrogate, cases: Sequence[StoredCase], seconds: Sequence[float]) -> Timing:
    """One prediction beside the solver's mean time for as much of a case."""
    walls = [
        (case.provenance.get("wall_time_s", {}).get("solve"), surrogate.problem.share_of_solve(case)) for case in cases
    ]
    solved = [wall * share for wall, share in walls if wall and share]
    on_gpu = surrogate.device.type == "cuda"
    return Timing(
        prediction_s=float(np.median(seconds)),
        prediction_total_s=sum(seconds),
        prediction_device=torch.cuda.get_device_name(surrogate.device) if on_gpu else "CPU",
        prediction_threads=torch.get_num_threads(),
        solver_s=float(np.mean(solved)) if solved else None,
        solver_host=str(cases[0].provenance.get("host_class", "unknown")),
    )
