"""Evaluate a trained run on a split, beside the references, into <run>/evaluation.json.

Errors are by component, case and step.
"""

from __future__ import annotations

from datetime import UTC, datetime

from courant.evaluation.evaluation import EvaluatedDataset, Evaluation, Split
from courant.evaluation.measure import measure
from courant.evaluation.record import EVALUATION, fingerprint, read_evaluation
from courant.prediction.surrogate import load
from courant.runs.directory import RunDirectory
from simgen.errors import InputError


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
