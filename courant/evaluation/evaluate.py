"""Evaluate a trained run on a split, beside the references, into <run>/evaluation.json.

Errors are by component, case and step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import torch

from courant.evaluation.metrics import ALL, ErrorSums
from courant.evaluation.quantities import measure_quantities
from courant.evaluation.record import (
    EVALUATION,
    MODEL,
    CaseErrors,
    EvaluatedDataset,
    Evaluation,
    Score,
    Split,
    Timing,
    fingerprint,
    read_evaluation,
)
from courant.evaluation.references import Reference, references
from courant.prediction.surrogate import Surrogate, load
from courant.runs.directory import RunDirectory
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase


def evaluate(run_url: str, split: Split = "test", dataset_url: str | None = None) -> Evaluation:
    """Measure the run and the references on every window of the split's cases (steady: every case).

    `dataset_url` is where the dataset of the training lies by now, if it was moved. The record is
    kept in the run; a record of the same weights and split is returned as it is.
    Raises InputError where there is no such run, no case in the split, or no window that fits.
    """
    run = RunDirectory(run_url)
    record = read_evaluation(run, split)
    if record is not None:
        return record
    run.check_writable()
    surrogate = load(run_url)
    dataset = surrogate.open_dataset(dataset_url)
    cases = dataset.cases(split)
    if not cases:
        raise InputError(
            f"{dataset.url} {dataset.version} has no {split} case to evaluate on;"
            " generate more cases"
        )
    record = Evaluation(
        run=run.url,
        fingerprint=fingerprint(run, split),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        split=split,
        task=surrogate.problem.kind,
        dataset=EvaluatedDataset(
            url=dataset.url, version=dataset.version, family=dataset.schema.family
        ),
        components=surrogate.channels,
        step_s=surrogate.step_s,
        **measure(surrogate, dataset, cases),
    )
    run.write_json(EVALUATION, record.model_dump(mode="json"))
    return record


class Taken(NamedTuple):
    """The time of one prediction."""

    wall_s: float
    processor_s: float


def measure(surrogate: Surrogate, dataset: Dataset, ids: Sequence[str]) -> dict[str, Any]:
    """Return the measured fields of an `Evaluation`; InputError where no window fits a case."""
    beside = references(surrogate.problem, dataset)
    total = {name: ErrorSums(surrogate.channels) for name in (MODEL, *beside)}
    cases: dict[str, CaseErrors] = {}
    times: list[Taken] = []
    # The first prediction also loads libraries, so it is not timed.
    surrogate.predict_case(dataset[ids[0]])
    for case in map(dataset.__getitem__, ids):
        sums, took = _measure_case(surrogate, case, beside)
        times += took
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
        **measure_quantities(surrogate, dataset, ids),
        "timing": _timing(surrogate, [dataset[case] for case in ids], times),
    }


def _measure_case(
    surrogate: Surrogate, case: StoredCase, beside: Mapping[str, Reference]
) -> tuple[dict[str, ErrorSums], list[Taken]]:
    """Sum one case's errors by predictor, and time each of the model's predictions."""
    sums = {name: ErrorSums(surrogate.channels) for name in (MODEL, *beside)}
    mean = np.asarray(surrogate.problem.normaliser.at(case.parameters).mean)
    times = []
    for window in surrogate.problem.windows(case):
        began, processor_began = time.perf_counter(), time.process_time()
        predicted = surrogate.predict_case(case, start_s=window.start_s)
        wall, processor = time.perf_counter() - began, time.process_time() - processor_began
        times.append(Taken(wall, wall if surrogate.device.type == "cuda" else processor))
        sums[MODEL].add(predicted.reshape(window.truth.shape), window.truth, mean)
        for name, reference in beside.items():
            sums[name].add(reference.predict(case, window), window.truth, mean)
    return sums, times


def _score(sums: ErrorSums, component: str = ALL) -> Score:
    return Score(sums.total(component))


def _steps(by_name: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(values) for name, values in by_name.items()}


def _timing(surrogate: Surrogate, cases: Sequence[StoredCase], times: Sequence[Taken]) -> Timing:
    """Compare one prediction with the solver's mean time for the same share of a case."""
    walls = [
        (
            case.provenance.get("wall_time_s", {}).get("solve"),
            surrogate.problem.share_of_solve(case),
        )
        for case in cases
    ]
    solved = [wall * share for wall, share in walls if wall and share]
    on_gpu = surrogate.device.type == "cuda"
    return Timing(
        prediction_s=float(np.median([each.wall_s for each in times])),
        prediction_total_s=sum(each.wall_s for each in times),
        prediction_processor_s=float(np.median([each.processor_s for each in times])),
        prediction_device=torch.cuda.get_device_name(surrogate.device) if on_gpu else "CPU",
        prediction_threads=torch.get_num_threads(),
        solver_s=float(np.mean(solved)) if solved else None,
        solver_host=str(cases[0].provenance.get("host_class", "unknown")),
    )
