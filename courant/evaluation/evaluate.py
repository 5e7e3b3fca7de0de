"""Evaluate a trained run on a split, beside the references, into a record in the run.

Errors are by component, case and step, over every window of every case. The fields that are given,
the network's or clearly better ones, are compared with the validation cases as well.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
import torch

from courant.evaluation import record as records
from courant.evaluation.metrics import ErrorSums
from courant.evaluation.quantities import ensure_answers, measure_quantities, scaled_designs
from courant.evaluation.record import MODEL, Evaluation, MetricValues, Split
from courant.evaluation.references import references
from courant.prediction.surrogate import load
from courant.runs.directory import RunDirectory


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
    ids, components = dataset.required(split), surrogate.channels
    beside = references(problem, dataset)
    total = {name: ErrorSums(components) for name in (MODEL, *beside)}
    on_gpu = surrogate.device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    spent: dict[str, list[float]] = {name: [] for name in total}

    def compare(id_: str, total: Mapping[str, ErrorSums]) -> records.CaseErrors:
        """Compare predictions with a case's every window; those of the first are timed."""
        case, sums = dataset[id_], {name: ErrorSums(components) for name in total}
        mean = np.asarray(problem.normaliser.at(case.parameters).mean)
        for window in problem.windows(case):
            for name, of in sums.items():
                began = clock()
                if name == MODEL:
                    found = surrogate.predict_case(case, start_s=window.start_s)
                else:
                    found = beside[name](case, window)
                if not of.windows:  # in a case's later windows a regression is known
                    spent[name].append(clock() - began)
                of.add(found.reshape(window.truth.shape), window.truth, mean)
        for name, of in sums.items():
            total[name].windows += of.windows
        return records.CaseErrors(
            design=", ".join(
                each.stated(case.parameters[each.name]) for each in dataset.schema.parameters
            ),
            windows=len(next(iter(sums.values())).windows),
            overall={name: MetricValues(of.total()) for name, of in sums.items()},
            nmae={name: of.by_step("nmae") for name, of in sums.items()},
        )

    # The first prediction also loads libraries, so it is not timed.
    surrogate.predict_case(dataset[ids[0]])
    cases = {id_: compare(id_, total) for id_ in ids}
    overall = {name: MetricValues(of.total()) for name, of in total.items()}
    given = records.better_fields(overall) or MODEL
    others = [] if split == "validation" else dataset.cases("validation")
    unseen = {id_: compare(id_, {given: ErrorSums(components)}) for id_ in others}
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
        validation=unseen,
        beyond=tuple(np.array(ids)[beyond].tolist()),
        overall=overall,
        by_component={
            name: {component: MetricValues(of.total(component)) for component in components}
            for name, of in total.items()
        },
        nmae={name: of.by_step("nmae") for name, of in total.items()},
        relative_l2={name: of.by_step("relative_l2") for name, of in total.items()},
        **measure_quantities(surrogate, dataset, ids, ensure_answers(surrogate, dataset)),
        timing=records.Timing(
            prediction_processor_s=float(np.median(spent[MODEL])),
            given_processor_s=float(np.median(spent[given][len(ids) :])) if unseen else None,
            prediction_device=torch.cuda.get_device_name(surrogate.device) if on_gpu else "CPU",
            prediction_threads=torch.get_num_threads(),
            solver_host=str(dataset[ids[0]].provenance.get("host_class", "unknown")),
        ),
    )
    run.write_json(records.record_of(split), record.model_dump(mode="json"))
    return record
