"""Summarise runs as lines of a table, from the run directories alone, and pack one into a file.

A packed run has all that predicting needs (`NEEDED`) and the records that there are (`RECORDS`);
`courant.load` takes it as a run, and `unzip` makes it a run directory again.
"""

import io
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from courant.runs import record
from courant.runs.directory import SUFFIX, RunDirectory
from courant.runs.weights import WEIGHTS, count_weights
from simgen.errors import InputError, SimgenError, StoreError

READERS = 8
EVALUATION = "evaluation.json"
NEEDED = (record.EXPERIMENT, record.DATASET, record.NORMALISER, WEIGHTS)
RECORDS = (
    *(record.ENVIRONMENT, record.METRICS, record.STATUS),
    *(EVALUATION, record.ANSWERS, record.BANDS, record.MONITOR),
)
_DATE = (1980, 1, 1, 0, 0, 0)
"""The first date that archives know; without one the bytes would differ each time"""


@dataclass(frozen=True)
class RunSummary:
    """One run; None for figures that it has not reached."""

    name: str
    url: str
    settings: dict[str, Any]
    """experiment.json unparsed: the modules of models of one's own need not be there"""
    dataset: str
    version: str
    snapshot_id: str
    state: str
    """As in status.json, or `waiting`, or `interrupted` where no process works on it any more"""
    epoch: int
    epochs: int
    best_epoch: int | None
    validation_nmae: float | None  # NMAE of the weights that the run keeps
    test_nmae: float | None
    """NMAE over the rollout on the test split, if it was evaluated since the last start"""
    test_cases: int  # Number of cases that it is of
    left_s: float | None  # Estimated seconds for the remaining epochs
    samples_per_s: float | None  # Speed in the last epoch
    train_s: float  # Seconds of training so far, without reading, validation and checkpoints
    samples: float  # Number of samples trained on so far
    started: str | None  # Time of the last start, ISO 8601, UTC
    revision: str | None
    num_parameters: int | None


def read_run(run: RunDirectory) -> RunSummary:
    """Read one run; InputError for a folder that holds none, StoreError for a damaged one."""

    def read(name: str) -> dict[str, Any]:
        # A run that is just being set up lacks some of its files.
        return run.read_object(name) if run.exists(name) else {}

    record.check_trained(run, has_weights=False)
    settings, dataset, environment = map(
        read, (record.EXPERIMENT, record.DATASET, record.ENVIRONMENT)
    )
    evaluation: dict[str, Any] = read(EVALUATION)
    try:
        epochs = int(settings["training"]["epochs"])
        is_test = evaluation.get("split") == "test"
        # Since a later start its weights may be other ones.
        is_test &= str(evaluation.get("date")) >= str(environment.get("started", ""))
        test_nmae = float(evaluation["overall"]["model"]["nmae"]) if is_test else None
        test_cases = len(evaluation["cases"]) if is_test else 0
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StoreError(
            f"{run.url}: {record.EXPERIMENT} or {EVALUATION} is damaged ({error}); train and"
            " evaluate the run again"
        ) from error
    records = record.read_records(run)
    last, best = records[-1] if records else None, record.best_record(records)
    return RunSummary(
        name=run.name,
        url=run.url,
        settings=settings,
        dataset=str(dataset.get("url", "")),
        version=str(dataset.get("version", "")),
        snapshot_id=str(dataset.get("snapshot_id", "")),
        state=record.run_state(run),
        epoch=last.epoch if last else 0,
        epochs=epochs,
        best_epoch=best.epoch if best else None,
        validation_nmae=best.validation_nmae if best else None,
        test_nmae=test_nmae,
        test_cases=test_cases,
        left_s=last.eta_s if last else None,
        samples_per_s=last.samples_per_s if last else None,
        train_s=sum(each.seconds for each in records),
        samples=sum(each.seconds * each.samples_per_s for each in records),
        started=str(environment["started"]) if "started" in environment else None,
        revision=str(environment.get("source_revision") or "") or None,
        num_parameters=count_weights(run) if run.exists(WEIGHTS) else None,
    )


def list_runs(url: str) -> tuple[list[RunSummary], list[SimgenError]]:
    """List the runs directly under a place in the order of their start, and what is unreadable."""
    folder = RunDirectory(url)

    def read(name: str) -> RunSummary | SimgenError | None:
        try:
            run = RunDirectory(f"{folder.url}/{name}")
            return read_run(run) if run.exists(record.EXPERIMENT) else None
        except SimgenError as error:
            return error

    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(read, folder.names()))
    runs = [run for run in found if isinstance(run, RunSummary)]
    unreadable = [error for error in found if isinstance(error, SimgenError)]
    return sorted(runs, key=lambda run: (run.started or "", run.name)), unreadable


def differing_settings(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    """Map `section.key` to its value in each run, where they differ; "" where a run has none."""
    flat = [flatten(run.settings) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    rows = {key: [settings.get(key, "") for settings in flat] for key in keys}
    return {key: row for key, row in rows.items() if any(value != row[0] for value in row)}


def flatten(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten `{"data": {"step_s": 1}}` to `{"data.step_s": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        nested = isinstance(value, dict)
        flat |= flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def pack_run(run: RunDirectory, out: str) -> str:
    """Write the run into the file `out` (a path or s3:// URL), replacing it; return its URL.

    The same run gives the same bytes. InputError where the run has no weights yet, or is damaged,
    and for another suffix than .zip.
    """
    folder, _, name = out.rpartition("/")
    if not name.endswith(SUFFIX) or name == SUFFIX:
        raise InputError(f"{out}: a packed run is a zip archive; name the file {name or 'run'}.zip")
    record.check_trained(run)
    count_weights(run)
    record.read_dataset_record(run)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for each in (*NEEDED, *filter(run.exists, RECORDS)):
            # Weights are noise to a compressor, and the records are small.
            place = zipfile.ZipInfo(f"{run.name.removesuffix(SUFFIX)}/{each}", _DATE)
            archive.writestr(place, run.read_bytes(each, limit=run.size(each)))
    RunDirectory(folder or ".").write_bytes(name, packed.getvalue())
    return out
