"""Stages `train` and `evaluate`: a dataset version -> a trained run -> its errors and report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import simgen
from courant.evaluation.record import read_evaluation
from courant.experiment import Experiment, parse_experiment
from courant.recipes import get_recipe, recipe_of
from courant.recipes.fitted import fitted_recipe
from courant.report.page import current_page, summary_line
from courant.runs.directory import RunDirectory
from courant.runs.record import (
    EpochRecord,
    check_trained,
    is_finished,
    open_recorded,
    read_dataset_record,
)
from flows.request_models import EvaluationRequest, TrainingRequest
from flows.settings import absolute, check_folder, check_reach, load_settings
from flows.terminal import Bars, announce, duration
from simgen.errors import InputError
from simgen.log_lines import about

if TYPE_CHECKING:
    from simgen.store.read import Dataset


class Training(TrainingRequest):
    """Train an experiment on a dataset version; the result is the URL of the run."""

    def done(self) -> str | None:
        """Return the run if it was trained to its end."""
        run = _run_of(self, *open_training(self))
        return run.url if is_finished(run) else None

    def check(self) -> None:
        """Compare the experiment with the data, and write both to the run's record."""
        from courant.training.train import set_up_run

        if cluster := load_settings().jobs_address:
            check_reach(cluster, runs_url(self))
        set_up_run(*open_training(self), runs_url(self))

    def execute(self, on_epoch: Callable[[EpochRecord], None] = lambda record: None) -> str:
        """Train here, or on the cluster, with a line for each validation and a bar.

        Of a job on the cluster the log is shown, and progress is read from the run directory.
        """
        experiment, dataset = open_training(self)
        run, settings = _run_of(self, experiment, dataset), load_settings()
        name = run.url.rsplit("/", 1)[-1]
        ids = about(dataset=dataset.url, training_run=name, experiment=experiment.name)
        with ids, Bars(f"train {experiment.name}", experiment.training.epochs) as bars:

            def show(record: EpochRecord) -> None:
                left = f"{duration(record.eta_s)} left"
                bars.advance(record.epoch, f"loss {record.train_loss:.4f}, {left}")
                if record.validation_nmae is not None and not settings.jobs_address:
                    announce(record.line())
                on_epoch(record)

            announce(f"run {run.url}")
            bars.advance(0, "reading the dataset")
            if settings.jobs_address:
                from courant.training.workers import check_finished, following
                from flows.ray_jobs import JobRequest, run_job

                request = {
                    "experiment": experiment.model_dump(mode="json"),
                    "dataset": dataset.url,
                    "version": dataset.version,
                    "runs": runs_url(self),
                }
                with following(run, show):
                    run_job(JobRequest("train", name, runs_url(self), request), announce)
                check_finished(run)
            else:
                if settings.ray_address:
                    from courant.training.ray_train import train
                else:
                    from courant.training.workers import train
                version, place = dataset.version, runs_url(self)
                train(experiment, dataset.url, version, place, on_epoch=show)
        return run.url


def runs_url(asked: TrainingRequest) -> str:
    """Return the URL of the folder of the runs."""
    return absolute(asked.runs or load_settings().runs)


def open_training(asked: TrainingRequest) -> tuple[Experiment, Dataset]:
    """Return the experiment and the dataset version that it is fitted to."""
    opened = simgen.open_dataset(absolute(asked.dataset), asked.version)
    return choose_experiment(opened, asked.recipe, asked.experiment), opened


def _run_of(asked: TrainingRequest, experiment: Experiment, dataset: Dataset) -> RunDirectory:
    return RunDirectory(runs_url(asked)) / experiment.run_id(dataset.snapshot_id)


def choose_experiment(dataset: Dataset, recipe: str | None, experiment: str | None) -> Experiment:
    """Choose the experiment: from a JSON file, else the recipe, else the family's small recipe.

    Imported data and families without a recipe get one that is fitted to the data.
    """
    if experiment:
        return read_experiment(experiment)
    if recipe:
        return get_recipe(recipe)
    small = None if dataset.schema.source else recipe_of(dataset.schema.family, "small")
    return fitted_recipe(dataset) if small is None else get_recipe(small)


def read_experiment(path: str) -> Experiment:
    """Read an experiment from a JSON file (as a run directory or a sweep writes it)."""
    folder, _, name = absolute(path).rpartition("/")
    text = RunDirectory(folder or "/").read_bytes(name).decode(errors="replace")
    try:
        return parse_experiment(text)
    except InputError as error:
        raise InputError(
            f"{path}: {error}; courant recipes show NAME prints an experiment to start from"
        ) from error


@dataclass(frozen=True)
class Report:
    """Hold the URL of the report, the run that it is of, and its summary."""

    url: str
    run: str
    verdict: str


class Measurement(EvaluationRequest):
    """Measure a run's errors, and write its report."""

    @property
    def place(self) -> str | None:
        """Return the URL of the dataset, if it is not where the run says."""
        return None if self.dataset is None else absolute(self.dataset)

    @property
    def url(self) -> str:
        """Return the URL of the run."""
        return absolute(self.run)

    @property
    def folder(self) -> str:
        """Return the URL of the report's folder."""
        if self.report:
            return absolute(self.report)
        name = self.url.rstrip("/").rsplit("/", 1)[-1]
        return f"{absolute(load_settings().reports).rstrip('/')}/{name}"

    def done(self) -> Report | None:
        """Return the report if it is of the run's present weights on this split."""
        run = RunDirectory(self.url)
        check_trained(run)
        evaluation = read_evaluation(run, self.split)
        page = evaluation and current_page(run, RunDirectory(self.folder), evaluation)
        return Report(page, self.url, summary_line(evaluation)) if evaluation and page else None

    def check(self) -> None:
        """Find the dataset of the training, and check that the evaluation can be kept."""
        run = RunDirectory(self.url)
        if read_evaluation(run, self.split) is None:
            run.check_writable()
        check_folder(self.folder)
        open_recorded(run.url, read_dataset_record(run), self.place)

    def execute(self) -> Report:
        """Measure errors by component, case and step, beside the references; draw the report."""
        from courant.evaluation.evaluate import evaluate
        from courant.report.report import write_report

        evaluation = evaluate(self.url, self.split, self.place)
        page = str(write_report(self.url, self.folder, self.place))
        return Report(page, self.url, summary_line(evaluation))
