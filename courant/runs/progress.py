"""Tell how far a training is, from its run directory alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from courant.runs.directory import RunDirectory
from courant.runs.record import best_record, read_records
from courant.runs.standing import standing
from simgen.errors import StoreError

EXPERIMENT = "experiment.json"


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
