"""Evaluate a trained run on a split, beside the references, into <run>/evaluation.json.

Errors are by component, case and step, over every window of every case, in one loop.
"""

import time
from datetime import UTC, datetime

import numpy as np
import torch

from courant.evaluation import record as records
from courant.evaluation.metrics import ALL, ErrorSums
from courant.evaluation.quantities import ensure_answers, measure_quantities, scaled_designs
from courant.evaluation.record import MODEL, Evaluation, MetricValues, Split
from courant.evaluation.references import references
from courant.prediction.surrogate import load
from courant.runs.directory import RunDirectory
from simgen.errors import InputError


def evaluate(run_url: str, split: Split = "test", dataset_url: str | None = None) -> Evaluation:
    """Measure the run and the references on every window of the split's cases (steady: every case).

    `dataset_url` is where the dataset of the training lies by now, if it was moved. A record of the
    same weights and split is returned as it is. InputError for a split without a case.
    """
    run = RunDirectory(run_url)
    if (known := records.read_evaluation(run, split)) is not None:
        return known
    run.check_writable()
    surrogate = load(run_url)
    dataset, problem = surrogate.open_dataset(dataset_url), surrogate.problem
    ids, components = dataset.cases(split), surrogate.channels
    if not ids:
        raise InputError(
            f"{dataset.url} {dataset.version} has no {split} case to evaluate on;"
            " generate more cases"
        )
    beside = references(problem, dataset)
    total = {name: ErrorSums(components) for name in (MODEL, *beside)}
    cases: dict[str, records.CaseErrors] = {}
    walls: list[float] = []
    processor: list[float] = []
    solved: list[float] = []
    # The first prediction also loads libraries, so it is not timed.
    surrogate.predict_case(dataset[ids[0]])
    for case in map(dataset.__getitem__, ids):
        sums = {name: ErrorSums(components) for name in total}
        mean = np.asarray(problem.normaliser.at(case.parameters).mean)
        for window in problem.windows(case):
            began, processor_began = time.perf_counter(), time.process_time()
            predicted = surrogate.predict_case(case, start_s=window.start_s)
            walls.append(time.perf_counter() - began)
            processor.append(time.process_time() - processor_began)
            sums[MODEL].add(predicted.reshape(window.truth.shape), window.truth, mean)
            for name, reference in beside.items():
                sums[name].add(reference.predict(case, window), window.truth, mean)
        # The solver's time for the share of a case that a prediction covers.
        solve = case.provenance.get("wall_time_s", {}).get("solve")
        if solve and (share := problem.share_of_solve(case)):
            solved.append(solve * share)
        cases[case.id] = records.CaseErrors(
            windows=len(sums[MODEL].windows),
            overall={name: MetricValues(of.total()) for name, of in sums.items()},
            nmae={name: of.nmae() for name, of in sums.items()},
        )
        for name, of in sums.items():
            total[name].windows += of.windows
    on_gpu = surrogate.device.type == "cuda"
    trained, designs = (scaled_designs(dataset, of) for of in (dataset.cases("train"), ids))
    beyond = ((designs < trained.min(axis=0)) | (designs > trained.max(axis=0))).any(axis=1)
    record = Evaluation(
        run=run.url,
        fingerprint=records.fingerprint(run, split),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        split=split,
        task=problem.kind,
        dataset={"url": dataset.url, "version": dataset.version, "family": dataset.schema.family},
        components=components,
        step_s=surrogate.step_s,
        num_windows=len(total[MODEL].windows),
        cases=cases,
        beyond=tuple(np.array(ids)[beyond].tolist()),
        overall={name: MetricValues(of.total(ALL)) for name, of in total.items()},
        by_component={
            name: {component: MetricValues(of.total(component)) for component in components}
            for name, of in total.items()
        },
        nmae={name: of.nmae() for name, of in total.items()},
        relative_l2={name: of.relative_l2() for name, of in total.items()},
        **measure_quantities(surrogate, dataset, ids, ensure_answers(surrogate, dataset)),
        timing=records.Timing(
            prediction_s=float(np.median(walls)),
            prediction_total_s=sum(walls),
            prediction_processor_s=float(np.median(walls if on_gpu else processor)),
            prediction_device=torch.cuda.get_device_name(surrogate.device) if on_gpu else "CPU",
            prediction_threads=torch.get_num_threads(),
            solver_s=float(np.mean(solved)) if solved else None,
            solver_host=str(dataset[ids[0]].provenance.get("host_class", "unknown")),
        ),
    )
    run.write_json(records.EVALUATION, record.model_dump(mode="json"))
    return record
