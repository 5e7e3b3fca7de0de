"""Stage `train`: a dataset version -> a trained run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import simgen
from courant.experiment import Experiment, parse_experiment
from courant.recipes import get_recipe, recipe_of
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, is_finished
from flows.display import Bars, duration
from flows.request_models import TrainingRequest
from flows.settings import absolute, check_reach, load_settings
from simgen.errors import InputError
from simgen.log_lines import about

if TYPE_CHECKING:
    from simgen.store.read import Dataset

OnEpoch = Callable[[EpochRecord], None]


@dataclass(frozen=True)
class TrainedRun:
    """Name a run directory by its URL."""

    url: str


class Training(TrainingRequest):
    """Train an experiment on a dataset version."""

    @property
    def place(self) -> str:
        """Return the URL of the folder of the runs."""
        return absolute(self.runs or load_settings().runs)

    def open(self) -> tuple[Experiment, Dataset]:
        """Return the experiment and the dataset version that it is fitted to."""
        opened = simgen.open_dataset(absolute(self.dataset), self.version)
        return choose_experiment(opened, self.recipe, self.experiment), opened

    def done(self) -> TrainedRun | None:
        """Return the run if it was trained to its end."""
        experiment, dataset = self.open()
        run = RunDirectory(self.place) / experiment.run_id(dataset.snapshot_id)
        return TrainedRun(run.url) if is_finished(run) else None

    def check(self) -> None:
        """Compare the experiment with the data, and write both to the run's record."""
        from courant.training.loop import set_up_run

        if cluster := load_settings().jobs_address:
            check_reach(cluster, self.place)
        experiment, dataset = self.open()
        set_up_run(experiment, dataset, self.place)

    def execute(self, on_epoch: OnEpoch = lambda record: None) -> TrainedRun:
        """Train here, or on the cluster, with a line for each validation and a bar."""
        experiment, dataset = self.open()
        run = RunDirectory(self.place) / experiment.run_id(dataset.snapshot_id)
        name = run.url.rsplit("/", 1)[-1]
        ids = about(dataset=dataset.url, training_run=name, experiment=experiment.name)
        with ids, Bars(f"train {experiment.name}", experiment.training.epochs) as bars:

            def show(record: EpochRecord) -> None:
                left = f"{duration(record.eta_s)} left"
                bars.advance(record.epoch, f"loss {record.train_loss:.4f}, {left}")
                if record.validation_nmae is not None and not load_settings().jobs_address:
                    bars.line(record.line())
                on_epoch(record)

            bars.line(f"run {run.url}")
            bars.advance(0, "reading the dataset")
            if load_settings().jobs_address:
                self._fit_on_cluster(experiment, dataset, run, show, bars)
            else:
                self._fit(experiment, dataset, show)
        return TrainedRun(run.url)

    def _fit(self, experiment: Experiment, dataset: Dataset, on_epoch: OnEpoch) -> None:
        if load_settings().ray_address:
            from courant.training.ray_train import train
        else:
            from courant.training.train import train
        train(experiment, dataset.url, dataset.version, self.place, on_epoch=on_epoch)

    def _fit_on_cluster(
        self,
        experiment: Experiment,
        dataset: Dataset,
        run: RunDirectory,
        on_epoch: OnEpoch,
        bars: Bars,
    ) -> None:
        """Train as a job: the job's log is shown, and progress is read from the run directory."""
        from courant.training.following import check_finished, following
        from flows.ray_jobs import JobRequest, run_job

        request = {
            "experiment": experiment.model_dump(mode="json"),
            "dataset": dataset.url,
            "version": dataset.version,
            "runs": self.place,
        }
        name = run.url.rsplit("/", 1)[-1]
        with following(run, on_epoch):
            run_job(JobRequest("train", name, self.place, request), bars.line)
        check_finished(run)


def choose_experiment(dataset: Dataset, recipe: str | None, experiment: str | None) -> Experiment:
    """Choose the experiment: from a JSON file, else the recipe, else the family's small recipe.

    Imported data and families without a recipe get one that is fitted to the data.
    """
    if experiment:
        return read_experiment(experiment)
    if recipe:
        return get_recipe(recipe)
    small = None if dataset.schema.source else recipe_of(dataset.schema.family, "small")
    if small is None:
        from courant.recipes.fitted import fitted_recipe

        return fitted_recipe(dataset)
    return get_recipe(small)


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
