"""Compose the main job of its stages, each of which finds its finished work again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Literal

import simgen
from courant.recipes import get_recipe, recipe_of
from courant.sweeps.space_files import load_space
from flows.settings import absolute
from flows.stages.evaluation import Measurement, Report
from flows.stages.generation import CaseRequest, Generation, PublishedVersion
from flows.stages.stage import RayWork
from flows.stages.sweep import Trials
from flows.stages.training import Training, read_experiment
from simgen.cases import get_family
from simgen.errors import InputError

StageName = Literal["dataset", "run", "report"]


@dataclass(frozen=True)
class Outcome:
    """Hold the URLs that the stages left; None for a stage that was skipped or not asked for."""

    dataset: PublishedVersion | None
    run: str | None
    report: Report | None

    def line(self) -> str:
        """Describe the dataset version; empty if a run was given."""
        return self.dataset.line() if self.dataset else ""


@dataclass(frozen=True)
class MainJob(CaseRequest):
    """Hold the parameters of the flow `generate-and-train`, which explains them."""

    recipe: str | None = None
    experiment: str | None = None
    sweep: str | None = None
    trials: int | None = None
    runs: str | None = None
    report: str | None = None
    dataset: str | None = None
    version: str | None = None
    run: str | None = None
    until: StageName = "report"

    def resolved(self) -> MainJob:
        """Return this job with its dataset version and its recipe named.

        InputError for wrong names: it comes now, and not when the cases are solved. The newest
        version is named here, so that all stages take the same.
        """
        if self.run:
            names = ("dataset", "version", "sweep", "trials", "recipe", "experiment", "designs")
            given = [name for name in names if getattr(self, name)]
            given += ["until"] * (self.until != "report")
            if given:
                raise InputError(
                    "a run is given: it has its dataset and its recipe, and only its report is left"
                    f" to make; leave {given[0]} out ({given[0]}=null for a deployment that sets"
                    " it)"
                )
            return self
        if self.sweep:
            load_space(self.sweep)
        if self.dataset is None:
            get_family(self.family)
            job = self._with_recipe(self.family)
            _ = job.generation.points
            return job
        opened = simgen.open_dataset(absolute(self.dataset), self.version)
        found = replace(self, dataset=opened.url, version=opened.version)
        if opened.schema.source is not None and not (self.recipe or self.experiment):
            return found  # imported: the training fits a recipe to the data
        return found._with_recipe(opened.schema.family)

    @cached_property
    def _resolved(self) -> MainJob:
        return self.resolved()

    @cached_property
    def generation(self) -> Generation:
        """Return the first stage, for a job without a given dataset or run."""
        asked = {each.name: getattr(self, each.name) for each in fields(CaseRequest)}
        return Generation(**asked)

    @property
    def published(self) -> PublishedVersion | None:
        """Return the dataset version if it is given, or there already."""
        if self.dataset is None:
            return self.generation.finished()
        assert self.version is not None, "of a resolved job"
        return PublishedVersion(self.dataset, self.version)

    def sweep_on(self, published: PublishedVersion) -> Trials | None:
        """Return the search space that is tried first, if one is asked for."""
        if self.sweep is None:
            return None
        trained = self.training_on(published)
        return Trials(space=self.sweep, trials=self.trials, **asdict(trained))

    def training_on(self, published: PublishedVersion) -> Training:
        """Return the training on a version."""
        where = published.dataset, published.version
        return Training(*where, self.recipe, self.experiment, self.runs)

    def evaluation_of(self, run: str) -> Measurement:
        """Return the evaluation of a run."""
        return Measurement(run, self.report)

    def finished(self) -> Outcome | None:
        """Return what is there if no stage has anything left to do; a sweep always has."""
        job = self._resolved
        if job.run:
            return job._reported(None, absolute(job.run))
        published = job.published
        if published is None:
            return None
        if job.until == "dataset":
            return Outcome(published, None, None)
        trained = None if job.sweep else job.training_on(published).finished()
        if trained is None:
            return None
        if job.until == "run":
            return Outcome(published, trained.url, None)
        return job._reported(published, trained.url)

    def prepare(self) -> RayWork | None:
        """Reject what the first unfinished stage cannot do."""
        job = self._resolved
        if job.run:
            return job.evaluation_of(job.run).prepare()
        published = job.published
        if published is None:
            return job.generation.prepare()
        training = job.training_on(published)
        trained = None if job.sweep else training.finished()
        if trained:
            return job.evaluation_of(trained.url).prepare()
        return (job.sweep_on(published) or training).prepare()

    def _reported(self, published: PublishedVersion | None, run: str) -> Outcome | None:
        report = self.evaluation_of(run).finished()
        return Outcome(published, run, report) if report else None

    def _with_recipe(self, family: str) -> MainJob:
        """Name the family's recipe for a demonstration if no other is named."""
        if self.until == "dataset":
            return self
        if self.experiment:
            chosen, recipe = read_experiment(self.experiment), None
        else:
            name = self.recipe or recipe_of(family, "demo")
            if name is None:
                return self  # of a user's own: the training fits a recipe to the data
            chosen = get_recipe(name)
            recipe = chosen.name
        if chosen.family != family:
            raise InputError(
                f"experiment {chosen.name} is for {chosen.family}, the cases are of {family};"
                " choose a recipe of that family"
            )
        return replace(self, recipe=recipe)
