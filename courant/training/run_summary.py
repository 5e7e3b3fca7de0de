"""Runs as lines of a table: what was trained on what, how well, how long. Read from the run directories alone."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from courant.run_directory import RunDirectory
from courant.training.record import METRICS, STATUS
from simgen.errors import InputError

EXPERIMENT = "experiment.json"
WEIGHTS = "model.safetensors"
READERS = 8


@dataclass(frozen=True)
class RunSummary:
    """One run. None where the run has not come so far, or was made before the figure was recorded."""

    name: str
    url: str
    experiment: dict[str, Any]
    """experiment.json as it is, so that runs of an older schema can be listed as well"""
    dataset: str
    version: str
    snapshot_id: str
    state: str
    started: str | None
    """ISO 8601, UTC; of the last start"""
    revision: str | None
    """of the source"""
    num_parameters: int | None
    """stored weights, the fixed frequencies of the embedding among them"""
    num_epochs: int
    """trained so far"""
    best_epoch: int | None
    validation_nmae: float | None
    """of the weights that the run keeps"""
    test_nmae: float | None
    """over the rollout on the split that the run was last evaluated on"""
    train_s: float
    """of training, without reading, validation and checkpoints"""
    samples_per_s: float | None

    @property
    def recipe(self) -> str:
        return str(self.experiment["name"])


def list_runs(url: str) -> list[RunSummary]:
    """The runs directly under a folder or s3://bucket/prefix, in the order of their start; StoreError where it cannot be read."""
    folder = RunDirectory(url)
    with ThreadPoolExecutor(READERS) as pool:
        found = pool.map(_read_if_run, [folder / name for name in folder.names()])
        runs = [run for run in found if run is not None]
    return sorted(runs, key=lambda run: (run.started or "", run.name))


def read_run(url: str) -> RunSummary:
    """One run; InputError where there is none."""
    run = _read_if_run(RunDirectory(url))
    if run is None:
        raise InputError(f"{url} has no {EXPERIMENT}; give the folder of a run, <runs>/<name>-<hash>")
    return run


def differing_settings(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    """`section.key` -> its value in each run, where not all have the same; "" where a run has no such key."""
    flat = [flatten(run.experiment) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    rows = {key: [settings.get(key, "") for settings in flat] for key in keys}
    return {key: values for key, values in rows.items() if any(value != values[0] for value in values)}


def _read_if_run(run: RunDirectory) -> RunSummary | None:
    if not run.exists(EXPERIMENT):
        return None
    # A run that is just being set up has not all of its files.
    files = {
        name: run.read_json(name) if run.exists(name) else {} for name in ("dataset.json", "environment.json", STATUS)
    }
    dataset, environment, status = files.values()
    records = [json.loads(line) for line in run.read_bytes(METRICS).splitlines()] if run.exists(METRICS) else []
    validated = [record for record in records if record.get("validation_loss") is not None]
    best: dict[str, Any] = min(validated, key=lambda record: record["validation_loss"], default={})
    seconds = sum(record["seconds"] for record in records)
    samples = sum(record["samples_per_s"] * record["seconds"] for record in records)
    return RunSummary(
        name=run.url.rsplit("/", 1)[-1],
        url=run.url,
        experiment=run.read_json(EXPERIMENT),
        dataset=dataset.get("url", ""),
        version=dataset.get("version", ""),
        snapshot_id=dataset.get("snapshot_id", ""),
        state=status.get("state", "waiting"),
        started=environment.get("started"),
        revision=environment.get("source_revision"),
        num_parameters=_count_parameters(run),
        num_epochs=records[-1]["epoch"] if records else 0,
        best_epoch=best.get("epoch"),
        validation_nmae=best.get("validation_nmae"),
        test_nmae=_test_nmae(run),
        train_s=seconds,
        samples_per_s=samples / seconds if seconds else None,
    )


def _count_parameters(run: RunDirectory) -> int | None:
    """By the header of model.safetensors (eight bytes of length, then JSON): the weights themselves stay where they are."""
    if not run.exists(WEIGHTS):
        return None
    (length,) = struct.unpack("<Q", run.read_bytes(WEIGHTS, 0, 8))
    header = json.loads(run.read_bytes(WEIGHTS, 8, 8 + length))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def _test_nmae(run: RunDirectory) -> float | None:
    evaluation = run.read_json("evaluation.json") if run.exists("evaluation.json") else {}
    return evaluation.get("overall", {}).get("model", {}).get("nmae")


def flatten(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"data": {"step_s": 1}}` as `{"data.step_s": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
