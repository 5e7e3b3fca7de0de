"""Stage `train`: choose its experiment, and find the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import simgen
from courant.experiment import Experiment, parse_experiment
from courant.recipes import get_recipe, recipe_of
from courant.runs.directory import RunDirectory
from courant.runs.record import is_finished
from flows.settings import absolute, check_reach, load_settings
from flows.stages.stage import RayWork
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset


@dataclass(frozen=True)
class TrainedRun:
    """Name a run directory by its URL."""

    url: str


@dataclass(frozen=True)
class Training:
    """Hold the parameters of the flow `train`, which explains them."""

    dataset: str
    version: str | None = None
    recipe: str | None = None
    experiment: str | None = None
    runs: str | None = None

    @property
    def place(self) -> str:
        """Return the URL of the folder of the runs."""
        return absolute(self.runs or load_settings().runs)

    def open(self) -> tuple[Experiment, Dataset]:
        """Return the experiment and the dataset version that it is fitted to."""
        opened = simgen.open_dataset(absolute(self.dataset), self.version)
        return choose_experiment(opened, self.recipe, self.experiment), opened

    def finished(self) -> TrainedRun | None:
        """Return the run if it was trained to its end."""
        experiment, dataset = self.open()
        run = RunDirectory(self.place) / experiment.run_id(dataset.snapshot_id)
        return TrainedRun(run.url) if is_finished(run) else None

    def prepare(self) -> RayWork | None:
        """Compare the experiment with the data, and write both to the run's record."""
        from courant.training.loop import set_up_run

        cluster = load_settings().jobs_address
        if cluster:
            check_reach(cluster, self.place)
        experiment, dataset = self.open()
        set_up_run(experiment, dataset, self.place)
        if cluster:
            return None
        return "model" if experiment.training.workers == 1 else "models"


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
