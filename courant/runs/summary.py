"""Summarise runs as lines of a table, from the run directories alone.

A line says what was trained on what, how well, and how long.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from courant.runs.dataset_record import read_dataset_record
from courant.runs.directory import RunDirectory
from courant.runs.record import best_record, read_records
from courant.runs.standing import standing
from courant.runs.weights import WEIGHTS, count_weights
from simgen.errors import InputError, SimgenError, StoreError

EXPERIMENT = "experiment.json"
READERS = 8
MOST_SHOWN = 16
"""Entries of a setting that are told one by one"""


@dataclass(frozen=True)
class RunSummary:
    """One run.

    None for figures that the run has not reached, or that its release did not record.
    """

    name: str
    url: str
    experiment: dict[str, Any]
    """experiment.json unparsed, so that runs of an older schema can be listed as well"""
    dataset: str
    version: str
    snapshot_id: str
    state: str
    started: str | None
    """Time of the last start, ISO 8601, UTC"""
    revision: str | None
    """Source revision"""
    num_parameters: int | None
    """Number of stored weights"""
    num_epochs: int
    """Epochs trained so far"""
    best_epoch: int | None
    validation_nmae: float | None
    """NMAE of the weights that the run keeps"""
    test_nmae: float | None
    """NMAE over the rollout on the split of the last evaluation"""
    train_s: float
    """Seconds of training, without reading, validation and checkpoints"""
    samples_per_s: float | None

    @property
    def recipe(self) -> str:
        return str(self.experiment["name"])


@dataclass(frozen=True)
class Unreadable:
    """A run directory that is damaged, and why, in one line."""

    url: str
    reason: str


def list_runs(url: str) -> tuple[list[RunSummary], list[Unreadable]]:
    """List the runs directly under a folder or s3://bucket/prefix, and the unreadable ones.

    Runs are in the order of their start.

    StoreError where the folder itself cannot be read.
    """
    folder = RunDirectory(url)
    with ThreadPoolExecutor(READERS) as pool:
        found = list(
            pool.map(_read_or_explain, [f"{folder.url}/{name}" for name in folder.names()])
        )
    runs = [run for run in found if isinstance(run, RunSummary)]
    unreadable = [run for run in found if isinstance(run, Unreadable)]
    return sorted(runs, key=lambda run: (run.started or "", run.name)), unreadable


def _read_or_explain(url: str) -> RunSummary | Unreadable | None:
    try:
        return _read_if_run(RunDirectory(url))
    except SimgenError as error:
        return Unreadable(url, str(error))


def read_run(url: str) -> RunSummary:
    """Read one run; InputError where there is none."""
    run = _read_if_run(RunDirectory(url))
    if run is None:
        raise InputError(
            f"{url} has no {EXPERIMENT}; give the folder of a run, <runs>/<name>-<hash>"
        )
    return run


def differing_settings(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    """Map `section.key` to its value in each run, where they differ.

    "" where a run has no such key.
    """
    flat = [flatten(run.experiment) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    rows = {key: [settings.get(key, "") for settings in flat] for key in keys}
    return {
        key: values for key, values in rows.items() if any(value != values[0] for value in values)
    }


def _read_if_run(run: RunDirectory) -> RunSummary | None:
    if not run.exists(EXPERIMENT):
        return None
    # A run that is just being set up lacks some of its files.
    dataset = read_dataset_record(run) if run.exists("dataset.json") else {}
    environment = run.read_object("environment.json") if run.exists("environment.json") else {}
    records = read_records(run)
    best = best_record(records)
    seconds = sum(record.seconds for record in records)
    samples = sum(record.samples_per_s * record.seconds for record in records)
    return RunSummary(
        name=run.url.rsplit("/", 1)[-1],
        url=run.url,
        experiment=_named_experiment(run),
        dataset=dataset.get("url", ""),
        version=dataset.get("version", ""),
        snapshot_id=dataset.get("snapshot_id", ""),
        state=standing(run),
        started=_text_or_none(environment.get("started")),
        revision=_text_or_none(environment.get("source_revision")),
        num_parameters=count_weights(run) if run.exists(WEIGHTS) else None,
        num_epochs=records[-1].epoch if records else 0,
        best_epoch=best.epoch if best else None,
        validation_nmae=best.validation_nmae if best else None,
        test_nmae=_test_nmae(run),
        train_s=seconds,
        samples_per_s=samples / seconds if seconds else None,
    )


def _named_experiment(run: RunDirectory) -> dict[str, Any]:
    """Read experiment.json of any schema, as long as it has a name and sections."""
    content = run.read_object(EXPERIMENT)
    if not isinstance(content.get("name"), str) or not isinstance(
        content.get("training", {}), dict
    ):
        raise StoreError(
            f"{run.url}/{EXPERIMENT} has no name or training; the run is damaged, train it again"
        )
    return content


def _text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def _test_nmae(run: RunDirectory) -> float | None:
    """Return the error of the newest evaluation, if that is of the test split."""
    found: Any = run.read_object("evaluation.json") if run.exists("evaluation.json") else {}
    if found.get("split") != "test":
        return None
    for key in ("overall", "model", "nmae"):
        found = found.get(key) if isinstance(found, dict) else None
    return float(found) if isinstance(found, int | float) and abs(found) < 1e30 else None


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


@dataclass(frozen=True)
class RunProgress:
    """A run as its directory shows it; None for figures that it has not reached."""

    name: str
    url: str
    experiment: str
    dataset: str
    state: str
    """As in status.json, or `waiting`, or `interrupted` where no process works on it any more"""
    epoch: int
    epochs: int
    validation_nmae: float | None
    """Of the weights that the run keeps"""
    left_s: float | None
    """Estimated seconds for the remaining epochs"""
    samples_per_s: float | None
    data_wait_share: float | None
    train_s: float
    """Seconds of training so far"""
    samples: float
    """Samples trained on so far"""


def read_run_progress(run: RunDirectory) -> RunProgress | None:
    """Read how far a run is; None for a folder that holds none, StoreError for a damaged one."""
    if not run.exists(EXPERIMENT):
        return None
    experiment = run.read_object(EXPERIMENT)
    dataset = run.read_object("dataset.json") if run.exists("dataset.json") else {}
    records = read_records(run)
    last = records[-1] if records else None
    best = best_record(records)
    return RunProgress(
        name=run.url.rsplit("/", 1)[-1],
        url=run.url,
        experiment=str(experiment.get("name", "")),
        dataset=str(dataset.get("url", "")),
        state=standing(run),
        epoch=last.epoch if last else 0,
        epochs=last.epochs if last else _planned(run, experiment),
        validation_nmae=best.validation_nmae if best else None,
        left_s=last.eta_s if last else None,
        samples_per_s=last.samples_per_s if last else None,
        data_wait_share=last.data_wait_share if last else None,
        train_s=sum(each.seconds for each in records),
        samples=sum(each.seconds * each.samples_per_s for each in records),
    )


def _planned(run: RunDirectory, experiment: dict[str, Any]) -> int:
    training = experiment.get("training")
    epochs = training.get("epochs") if isinstance(training, dict) else None
    if not isinstance(epochs, int):
        raise StoreError(f"{run.url}/{EXPERIMENT} has no training.epochs; the run is damaged")
    return epochs
