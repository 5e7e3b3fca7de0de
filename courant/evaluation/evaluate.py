"""A trained run on a split: errors by component, case and step, beside the references, in <run>/evaluation.json."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pydantic import ValidationError

import simgen
from courant.evaluation.evaluation import EvaluatedDataset, Evaluation, Split
from courant.evaluation.measure import measure
from courant.prediction.surrogate import load
from courant.runs.directory import RunDirectory
from courant.runs.weights import WEIGHTS, weights_digest
from simgen.errors import InputError, StoreError

EVALUATION = "evaluation.json"
#: Raised when the numbers of the same weights would come out differently, or hold other entries.
REVISION = 4
_OLDER = re.compile(rf"[0-9a-f]{{16}}-[a-z]+-(?!{REVISION}$)[0-9]+")


def evaluate(run_url: str, split: Split = "test") -> Evaluation:
    """Measure the run on every window of the split's cases (steady: on every case), the references beside it.

    The record is kept in the run; a record of the same weights and split is returned as it stands. Raises InputError
    where there is no such run, no case in the split, or no window that fits.
    """
    run = RunDirectory(run_url)
    record = read_evaluation(run, split)
    if record is not None:
        return record
    surrogate = load(run_url)
    dataset = simgen.open_dataset(surrogate.dataset["url"], surrogate.dataset["version"])
    cases = dataset.cases(split)
    if not cases:
        raise InputError(f"{dataset.url} {dataset.version} has no {split} case to evaluate on; generate more cases")
    record = Evaluation(
        run=run.url,
        fingerprint=_fingerprint(run, split),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        split=split,
        task=surrogate.problem.kind,
        dataset=EvaluatedDataset(url=dataset.url, version=dataset.version, family=dataset.schema.family),
        components=surrogate.channels,
        step_s=surrogate.step_s,
        **measure(surrogate, dataset, cases),
    )
    run.write_json(EVALUATION, record.model_dump(mode="json"))
    return record


def read_evaluation(run: RunDirectory, split: Split | None = None) -> Evaluation | None:
    """The run's record where it is of its present weights and of `split` (None: of whichever split it is).

    None as well for the record of an older release: it is measured again. StoreError for one that claims to be of this
    release and is not what it writes.
    """
    if not run.exists(EVALUATION) or not run.exists(WEIGHTS):
        return None
    content = run.read_object(EVALUATION)
    if _OLDER.fullmatch(str(content.get("fingerprint"))):
        return None
    try:
        record = Evaluation.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        raise StoreError(
            f"{run.url}/{EVALUATION} is not what this project writes ({where}: {first['msg']}); "
            "remove it and evaluate again"
        ) from error
    return record if record.fingerprint == _fingerprint(run, split or record.split) else None


def _fingerprint(run: RunDirectory, split: str) -> str:
    """Of what the record depends on: the weights, whose run names its dataset version, and the split."""
    return f"{weights_digest(run)[:16]}-{split}-{REVISION}"
