"""Summarise runs as lines of a table, from the run directories alone, and pack one into a file.

A line shows what was trained on what, how well, and how long. A packed run has all that predicting
needs; `courant.load` takes it as a run, and `unzip` makes it a run directory again:

    <run>.zip    <run>/experiment.json dataset.json normaliser.json model.safetensors
                 and the records of its training and evaluation, where there are any
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from courant.runs.directory import SUFFIX, RunDirectory
from courant.runs.record import (
    BANDS,
    DATASET,
    EXPERIMENT,
    METRICS,
    MONITOR,
    STATUS,
    best_record,
    check_trained,
    read_dataset_record,
    read_records,
    run_state,
)
from courant.runs.weights import WEIGHTS, count_weights
from simgen.errors import InputError, SimgenError, StoreError

READERS = 8
MOST_SHOWN = 16
"""Entries of a setting that are shown one by one"""
EVALUATION = "evaluation.json"
NEEDED = (EXPERIMENT, DATASET, "normaliser.json", WEIGHTS)
RECORDS = ("environment.json", METRICS, "timings.json", STATUS, EVALUATION, BANDS, MONITOR)
_DATE = (1980, 1, 1, 0, 0, 0)
"""The first date that archives know; without one the bytes would differ each time"""


@dataclass(frozen=True)
class RunProgress:
    """How far a run is; None for figures that it has not reached."""

    name: str
    url: str
    experiment: str
    dataset: str
    state: str
    """As in status.json, or `waiting`, or `interrupted` where no process works on it any more"""
    epoch: int
    """Number of epochs trained so far"""
    epochs: int
    best_epoch: int | None
    validation_nmae: float | None
    """NMAE of the weights that the run keeps"""
    left_s: float | None
    """Estimated seconds for the remaining epochs"""
    samples_per_s: float | None
    """Speed in the last epoch"""
    data_wait_share: float | None
    train_s: float
    """Seconds of training so far, without reading, validation and checkpoints"""
    samples: float
    """Number of samples trained on so far"""


@dataclass(frozen=True)
class RunSummary(RunProgress):
    """One run; None for figures that it has not reached."""

    settings: dict[str, Any]
    """experiment.json unparsed: the modules of models of one's own need not be there"""
    version: str
    snapshot_id: str
    started: str | None
    """Time of the last start, ISO 8601, UTC"""
    revision: str | None
    """Source revision"""
    num_parameters: int | None
    """Number of stored weights"""
    test_nmae: float | None
    """NMAE over the rollout on the test split, if the last evaluation is of it"""


@dataclass(frozen=True)
class Unreadable:
    """A run directory that is damaged, and why, in one line."""

    url: str
    reason: str


def read_run_progress(run: RunDirectory) -> RunProgress | None:
    """Read how far a run is; None for a folder that holds none, StoreError for a damaged one."""
    if not run.exists(EXPERIMENT):
        return None
    experiment = run.read_object(EXPERIMENT)
    name, training = experiment.get("name"), experiment.get("training")
    epochs = training.get("epochs") if isinstance(training, dict) else None
    if not isinstance(name, str) or not isinstance(epochs, int):
        raise StoreError(
            f"{run.url}/{EXPERIMENT} has no name or no training.epochs; the run is damaged, train"
            " it again"
        )
    # A run that is just being set up lacks some of its files.
    dataset = run.read_object(DATASET) if run.exists(DATASET) else {}
    records = read_records(run)
    last, best = records[-1] if records else None, best_record(records)
    return RunProgress(
        name=run.name,
        url=run.url,
        experiment=name,
        dataset=str(dataset.get("url", "")),
        state=run_state(run),
        epoch=last.epoch if last else 0,
        epochs=epochs,
        best_epoch=best.epoch if best else None,
        validation_nmae=best.validation_nmae if best else None,
        left_s=last.eta_s if last else None,
        samples_per_s=last.samples_per_s if last else None,
        data_wait_share=last.data_wait_share if last else None,
        train_s=sum(each.seconds for each in records),
        samples=sum(each.seconds * each.samples_per_s for each in records),
    )


def read_run(url: str) -> RunSummary:
    """Read one run; InputError where there is none."""
    run = RunDirectory(url)
    progress = read_run_progress(run)
    if progress is None:
        raise InputError(
            f"{url} has no {EXPERIMENT}; give the folder of a run, <runs>/<name>-<hash>"
        )
    dataset = read_dataset_record(run) if run.exists(DATASET) else {}
    environment = run.read_object("environment.json") if run.exists("environment.json") else {}
    started, revision = environment.get("started"), environment.get("source_revision")
    evaluation: Any = run.read_object(EVALUATION) if run.exists(EVALUATION) else {}
    test_nmae = evaluation if evaluation.get("split") == "test" else None
    for key in ("overall", "model", "nmae"):
        test_nmae = test_nmae.get(key) if isinstance(test_nmae, dict) else None
    is_number = isinstance(test_nmae, int | float) and abs(test_nmae) < 1e30
    return RunSummary(
        **vars(progress),
        settings=run.read_object(EXPERIMENT),
        version=dataset.get("version", ""),
        snapshot_id=dataset.get("snapshot_id", ""),
        started=None if started is None else str(started),
        revision=None if revision is None else str(revision),
        num_parameters=count_weights(run) if run.exists(WEIGHTS) else None,
        test_nmae=float(test_nmae) if is_number else None,  # type: ignore[arg-type]
    )


def list_runs(url: str) -> tuple[list[RunSummary], list[Unreadable]]:
    """List the runs directly under a folder or s3://bucket/prefix, and the unreadable ones.

    Runs are in the order of their start. StoreError where the folder itself cannot be read.
    """
    folder = RunDirectory(url)

    def read(name: str) -> RunSummary | Unreadable | None:
        place = f"{folder.url}/{name}"
        try:
            return read_run(place) if RunDirectory(place).exists(EXPERIMENT) else None
        except SimgenError as error:
            return Unreadable(place, str(error))

    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(read, folder.names()))
    runs = [run for run in found if isinstance(run, RunSummary)]
    unreadable = [run for run in found if isinstance(run, Unreadable)]
    return sorted(runs, key=lambda run: (run.started or "", run.name)), unreadable


def differing_settings(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    """Map `section.key` to its value in each run, where they differ.

    "" where a run has no such key.
    """
    flat = [flatten(run.settings) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    rows = {key: [settings.get(key, "") for settings in flat] for key in keys}
    return {
        key: values for key, values in rows.items() if any(value != values[0] for value in values)
    }


def flatten(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten `{"data": {"step_s": 1}}` to `{"data.step_s": 1}`; long lists become their length.

    A digest tells long lists of one length apart.
    """
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list) and len(value) > MOST_SHOWN:
            digest = hashlib.sha256(json.dumps(value).encode()).hexdigest()[:6]
            flat[f"{prefix}{key}"] = f"{len(value)} of them, {digest}"
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def pack_run(run: RunDirectory, out: str) -> str:
    """Write the run into the file `out` (a path or s3:// URL), replacing it; return its URL.

    The same run gives the same bytes. InputError where the run has no weights yet, or is damaged,
    and for another suffix than .zip.
    """
    folder, _, name = out.rpartition("/")
    if not name.endswith(SUFFIX) or name == SUFFIX:
        raise InputError(f"{out}: a packed run is a zip archive; name the file {name or 'run'}.zip")
    check_trained(run)
    count_weights(run)
    read_dataset_record(run)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for each in (*NEEDED, *(record for record in RECORDS if run.exists(record))):
            content = run.read_bytes(each, limit=run.size(each))
            # Weights are noise to a compressor, and the records are small.
            place = f"{run.name.removesuffix(SUFFIX)}/{each}"
            archive.writestr(zipfile.ZipInfo(place, _DATE), content)
    RunDirectory(folder or ".").write_bytes(name, packed.getvalue())
    return out
