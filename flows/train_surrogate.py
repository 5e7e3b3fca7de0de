"""Flow `train`: a dataset version -> a trained run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefect import flow, get_run_logger, task

import simgen
from courant.experiment import Experiment
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord
from flows.artifacts import ProgressArtifact, show_markdown
from flows.cluster.process_logs import know_flow_run
from flows.display import Bars, duration
from flows.settings import load_settings
from flows.stages.training import TrainedRun, Training
from simgen.log_lines import about

if TYPE_CHECKING:
    from courant.training.loop import OnEpoch
    from simgen.store.access.reader import Dataset


@flow(name="train", flow_run_name="train on {dataset}")
def train(
    dataset: str,
    version: str | None = None,
    recipe: str | None = None,
    experiment: str | None = None,
    runs: str | None = None,
) -> TrainedRun:
    """Fit a recipe, or the experiment in a JSON file, to a dataset version.

    A finished run is not repeated.

    Args:
        dataset: The dataset: a folder or s3://bucket/prefix/family.
        version: The dataset's version, such as v2; the newest where not given.
        recipe: A training run by name, as `courant recipes` lists them; `<family>-small` where not
            given.
        experiment: A JSON file with a training run, in place of a recipe.
        runs: Where runs are: a folder or s3://bucket/prefix; COURANT_RUNS where not given.
    """
    know_flow_run()
    asked = Training(dataset, version, recipe, experiment, runs)
    done = asked.finished()
    if done is not None:
        get_run_logger().info("%s is trained already", done.url)
        return done
    chosen, opened = asked.open()
    return TrainedRun(fit(chosen, opened.url, opened.version, asked.place))


@task(name="train-model", task_run_name="train {experiment.name}", persist_result=False)
def fit(experiment: Experiment, dataset: str, version: str, runs: str) -> str:
    """Train, with progress as log lines, a bar and a Prefect progress artifact."""
    opened = simgen.open_dataset(dataset, version)
    run = RunDirectory(runs) / experiment.run_id(opened.snapshot_id)
    artifact = ProgressArtifact(f"train-{experiment.name}", f"{experiment.name} on {dataset}")
    ids = about(
        dataset=dataset, training_run=run.url.rsplit("/", 1)[-1], experiment=experiment.name
    )
    bar = Bars(f"train {experiment.name}", experiment.training.epochs, get_run_logger())
    with ids, bar as bars:

        def on_epoch(record: EpochRecord) -> None:
            artifact.update(100 * record.epoch / record.epochs)
            bars.advance(
                record.epoch, f"loss {record.train_loss:.4f}, {duration(record.eta_s)} left"
            )
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
    from flows.cluster.ray_cluster import ensure_ray

    ensure_ray()
    train_on_ray(experiment, dataset.url, dataset.version, runs, on_epoch=on_epoch)


def _fit_on_cluster(
    experiment: Experiment, dataset: Dataset, run: RunDirectory, on_epoch: OnEpoch, bars: Bars
) -> None:
    """Train as a job: the job's log is shown, and progress is read from the run directory."""
    from courant.training.following import check_finished, following
    from flows.cluster.ray_jobs import JobRequest, run_job

    runs, _, name = run.url.rpartition("/")
    request = {
        "experiment": experiment.model_dump(mode="json"),
        "dataset": dataset.url,
        "version": dataset.version,
        "runs": runs,
    }
    with following(run, on_epoch):
        run_job(JobRequest("train", name, runs, request), bars.line)
    check_finished(run)


def _summary(run: RunDirectory) -> str:
    status = run.read_json("status.json")
    return (
        f"## {run.url.rsplit('/', 1)[-1]}\n\n`{run.url}`\n\nbest epoch {status['best_epoch']} of"
        f" {status['epochs']}\n\n"
        f'```python\nimport courant\nsurrogate = courant.load("{run.url}")\n```\n'
    )
