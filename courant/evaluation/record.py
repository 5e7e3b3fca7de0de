"""Read the record of an evaluation in a run directory, if it is of the run's present weights.

Neither torch nor a model is needed for it.
"""

from __future__ import annotations

import re
import zlib

from courant.evaluation.evaluation import Evaluation, Split
from courant.evaluation.metrics import METRICS
from courant.runs.directory import RunDirectory
from courant.runs.weights import WEIGHTS, weights_digest
from simgen.errors import StoreError

EVALUATION = "evaluation.json"
#: Raise this when the same weights would give other numbers.
REVISION = 7
_FINGERPRINT = re.compile(r"[0-9a-f]{16}-[a-z]+-([0-9a-f-]+)")


def read_evaluation(run: RunDirectory, split: Split | None = None) -> Evaluation | None:
    """Read the run's record if it is of its present weights and of `split` (None: any split).

    Returns None as well for a record with other metrics, which is measured again. StoreError for an
    invalid record.
    """
    if not run.exists(EVALUATION) or not run.exists(WEIGHTS):
        return None
    try:
        record = run.read_record(EVALUATION, Evaluation, "remove it and evaluate again")
    except StoreError:
        kept = _FINGERPRINT.fullmatch(str(run.read_object(EVALUATION).get("fingerprint")))
        if kept is not None and kept[1] != _revision():
            return None
        raise
    return record if record.fingerprint == fingerprint(run, split or record.split) else None


def fingerprint(run: RunDirectory, split: str) -> str:
    """Hash what the record depends on: the weights (whose run names its dataset) and the split."""
    return f"{weights_digest(run)[:16]}-{split}-{_revision()}"


def _revision() -> str:
    """Name the entries of a record: a further metric is one more."""
    return f"{REVISION}-{zlib.crc32(','.join(METRICS).encode()):08x}"
