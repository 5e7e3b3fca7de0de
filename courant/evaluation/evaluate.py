"""A trained run on a split: errors by component, case and rollout step, beside the references, in <run>/evaluation.json."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import simgen
from courant.evaluation.record import check_record
from courant.evaluation.rollout_errors import measure_rollouts
from courant.evaluation.steady_errors import measure_cases
from courant.run_directory import RunDirectory
from courant.steady_surrogate import SteadySurrogate
from courant.surrogate import Surrogate, load
from courant.weights import WEIGHTS, weights_digest
from simgen.errors import InputError
from simgen.store.reader import Dataset

EVALUATION = "evaluation.json"
#: Raised when the numbers of the same weights would come out differently, or hold other entries.
REVISION = 3


def evaluate(run_url: str, split: str = "test") -> dict[str, Any]:
    """Measure the run on every window of the split's cases (steady: on every case), the references beside it; writes and returns the record.

    A record of the same weights and split is returned as it stands. Raises InputError where there is no such run, no case in
    the split, or no window that fits.
    """
    run = RunDirectory(run_url)
    record = read_evaluation(run, split)
    if record is not None:
        return record
    surrogate = load(run_url)
    dataset = simgen.open_dataset(surrogate.dataset["url"], surrogate.dataset["version"])
    record = {
        "run": run.url,
        "fingerprint": _fingerprint(run, split),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "split": split,
        **_measure(surrogate, dataset, split),
    }
    run.write_json(EVALUATION, record)
    return record


def read_evaluation(run: RunDirectory, split: str | None = None) -> dict[str, Any] | None:
    """The run's record where it is of its present weights and of `split` (None: of whichever split it is)."""
    if not run.exists(EVALUATION) or not run.exists(WEIGHTS):
        return None
    record = check_record(run, run.read_object(EVALUATION))
    return record if record["fingerprint"] == _fingerprint(run, split or record["split"]) else None


def _fingerprint(run: RunDirectory, split: str) -> str:
    """Of what the record depends on: the weights, whose run names its dataset version, and the split."""
    return f"{weights_digest(run)[:16]}-{split}-{REVISION}"


def _measure(surrogate: Surrogate | SteadySurrogate, dataset: Dataset, split: str) -> dict[str, Any]:
    cases = dataset.cases(split)
    if not cases:
        raise InputError(f"{dataset.url} {dataset.version} has no {split} case to evaluate on; generate more cases")
    if isinstance(surrogate, SteadySurrogate):
        measured = measure_cases(surrogate, dataset, cases)
    else:
        measured = measure_rollouts(surrogate, dataset, cases)
    return {
        "task": surrogate.experiment.task,
        "dataset": {"url": dataset.url, "version": dataset.version, "family": dataset.schema.family},
        "channels": [asdict(channel) for channel in surrogate.normaliser.channels],
        **measured,
    }
