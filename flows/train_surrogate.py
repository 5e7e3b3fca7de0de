"""Flow `train`: a dataset version -> a trained run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast
from uuid import UUID

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact

import simgen
from courant.experiment import Experiment, parse_experiment
from courant.recipes import get_recipe
from courant.run_directory import RunDirectory
from courant.training.record import EpochRecord
from flows.display import Bars, duration
from flows.settings import absolute, load_settings


@dataclass(frozen=True)
class TrainedRun:
    """A run directory's URL."""

    url: str


@flow(name="train", flow_run_name="train {recipe}")
def train(
    dataset: str,
    version: str | None = None,
    recipe: str = "cylinder-flow-small",
    experiment: str | None = None,
    runs: str | None = None,
) -> TrainedRun:
    """Fit a recipe (or the experiment in a JSON file) to a dataset version; a finished run is found again, not repeated."""
    chosen = read_experiment(experiment) if experiment else get_recipe(recipe)
    return TrainedRun(fit(chosen, absolute(dataset), version, absolute(runs or load_settings().runs)))


@task(name="train-model", task_run_name="train {experiment.name}", persist_result=False)
def fit(experiment: Experiment, dataset: str, version: str | None, runs: str) -> str:
    """The training, with its progress as log lines, a bar and a Prefect progress artifact."""
    from courant.training.ray_train import is_finished
    from courant.training.ray_train import train as train_on_ray
    from flows.ray_cluster import ensure_ray

    run = RunDirectory(runs) / experiment.run_id(simgen.open_dataset(dataset, version).snapshot_id)
    if is_finished(run):
        get_run_logger().info("%s is trained already", run.url)
        return run.url
    ensure_ray()
    artifact = cast(
        UUID,
        create_progress_artifact(0.0, key=f"train-{experiment.name}", description=f"{experiment.name} on {dataset}"),
    )
    with Bars(f"train {experiment.name}", experiment.training.epochs, get_run_logger()) as bars:

        def on_epoch(record: EpochRecord) -> None:
            update_progress_artifact(artifact, 100 * record.epoch / record.epochs)
            bars.advance(record.epoch, f"loss {record.train_loss:.4f}, {duration(record.eta_s)} left")
            if record.validation_nmae is not None:
                bars.line(record.line())

        bars.line(f"run {run.url}")
        bars.advance(0, "starting a worker, reading the dataset")
        train_on_ray(experiment, dataset, version, runs, on_epoch=on_epoch)
    create_markdown_artifact(_summary(run), key=f"run-{experiment.name}", description=run.url)
    return run.url


def read_experiment(path: str) -> Experiment:
    """An experiment from a JSON file (as a run directory or a sweep leaves it)."""
    folder, _, name = absolute(path).rpartition("/")
    return parse_experiment(RunDirectory(folder).read_bytes(name).decode())


def _summary(run: RunDirectory) -> str:
    status = run.read_json("status.json")
    return (
        f"## {run.url.rsplit('/', 1)[-1]}\n\n`{run.url}`\n\nbest epoch {status['best_epoch']} of {status['epochs']}\n\n"
        f'```python\nimport courant\nsurrogate = courant.load("{run.url}")\n```\n'
    )
