"""Flow `train`: a dataset version -> a trained run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prefect import flow, get_run_logger, task

import simgen
from courant.experiment import Experiment, parse_experiment
from courant.recipes import get_recipe, recipe_of
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, is_finished
from flows.artifacts import ProgressArtifact, show_markdown
from flows.display import Bars, duration
from flows.settings import absolute, load_settings

if TYPE_CHECKING:
    from courant.training.loop import OnEpoch
    from simgen.store.reader import Dataset


@dataclass(frozen=True)
class TrainedRun:
    """A run directory's URL."""

    url: str


@flow(name="train", flow_run_name="train on {dataset}")
def train(
    dataset: str,
    version: str | None = None,
    recipe: str | None = None,
    experiment: str | None = None,
    runs: str | None = None,
) -> TrainedRun:
    """Fit a recipe (or the experiment in a JSON file) to a dataset version; a finished run is found again, not repeated.

    The recipe is `<family>-small` where none is named.
    """
    chosen = choose_experiment(absolute(dataset), version, recipe, experiment)
    return TrainedRun(fit(chosen, absolute(dataset), version, absolute(runs or load_settings().runs)))


@task(name="train-model", task_run_name="train {experiment.name}", persist_result=False)
def fit(experiment: Experiment, dataset: str, version: str | None, runs: str) -> str:
    """The training, with its progress as log lines, a bar and a Prefect progress artifact."""
    opened = simgen.open_dataset(dataset, version)
    run = RunDirectory(runs) / experiment.run_id(opened.snapshot_id)
    if is_finished(run):
        get_run_logger().info("%s is trained already", run.url)
        return run.url
    artifact = ProgressArtifact(f"train-{experiment.name}", f"{experiment.name} on {dataset}")
    with Bars(f"train {experiment.name}", experiment.training.epochs, get_run_logger()) as bars:

        def on_epoch(record: EpochRecord) -> None:
            artifact.update(100 * record.epoch / record.epochs)
            bars.advance(record.epoch, f"loss {record.train_loss:.4f}, {duration(record.eta_s)} left")
            if record.validation_nmae is not None and not load_settings().jobs_address:
                bars.line(record.line())

        bars.line(f"run {run.url}")
        bars.advance(0, "starting a worker, reading the dataset")
        if load_settings().jobs_address:
            _fit_on_cluster(experiment, opened, run, on_epoch, bars)
        else:
            _fit_here(experiment, opened, runs, on_epoch)
    show_markdown(_summary(run), key=f"run-{experiment.name}", description=run.url)
    return run.url


def _fit_here(experiment: Experiment, dataset: Dataset, runs: str, on_epoch: OnEpoch) -> None:
    from courant.training.ray_train import train as train_on_ray
    from flows.ray_cluster import ensure_ray

    ensure_ray()
    train_on_ray(experiment, dataset.url, dataset.version, runs, on_epoch=on_epoch)


def _fit_on_cluster(experiment: Experiment, dataset: Dataset, run: RunDirectory, on_epoch: OnEpoch, bars: Bars) -> None:
    """The job's log is the log; how far it is, the run directory tells."""
    from courant.training.following import check_finished, following
    from flows.ray_jobs import JobRequest, run_job

    runs, _, name = run.url.rpartition("/")
    request = {
        "experiment": experiment.model_dump(mode="json"), "dataset": dataset.url, "version": dataset.version, "runs": runs,
    }  # fmt: skip
    with following(run, on_epoch):
        run_job(JobRequest("train", name, runs, request), bars.line)
    check_finished(run)


def choose_experiment(dataset: str, version: str | None, recipe: str | None, experiment: str | None) -> Experiment:
    """The experiment in a JSON file, else the recipe, else the small recipe of the dataset's family."""
    if experiment:
        return read_experiment(experiment)
    return get_recipe(recipe or recipe_of(simgen.open_dataset(dataset, version).schema.family, "small"))


def read_experiment(path: str) -> Experiment:
    """An experiment from a JSON file (as a run directory or a sweep leaves it)."""
    folder, _, name = absolute(path).rpartition("/")
    return parse_experiment(RunDirectory(folder or "/").read_object(name))


def _summary(run: RunDirectory) -> str:
    status = run.read_json("status.json")
    return (
        f"## {run.url.rsplit('/', 1)[-1]}\n\n`{run.url}`\n\nbest epoch {status['best_epoch']} of {status['epochs']}\n\n"
        f'```python\nimport courant\nsurrogate = courant.load("{run.url}")\n```\n'
    )
