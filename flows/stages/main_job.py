"""Compose the main job of its stages, each of which finds its finished work again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property

import simgen
from courant.recipes import get_recipe, recipe_of
from courant.sweeps.search_space import load_space
from flows.request_models import CaseRequest, MainJobRequest
from flows.settings import absolute
from flows.stages import Each, Result, Stage, execute
from flows.stages.generation import Generation, PublishedVersion
from flows.stages.training import Measurement, Report, Training, Trials, read_experiment
from simgen.cases import get_family
from simgen.errors import InputError


@dataclass(frozen=True)
class Outcome:
    """Hold the URLs that the stages left; None for a stage that was skipped or not asked for."""

    dataset: PublishedVersion | None
    run: str | None
    report: Report | None

    def line(self) -> str:
        """Describe the dataset version; empty if a run was given."""
        return self.dataset.line() if self.dataset else ""


class MainJob(MainJobRequest):
    """Run dataset, sweep, model, evaluation and report, or those that are asked for."""

    @cached_property
    def resolved(self) -> MainJob:
        """This job with its dataset version and its recipe named.

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

    @cached_property
    def generation(self) -> Generation:
        """The first stage, for a job without a given dataset or run."""
        return Generation(**{each.name: getattr(self, each.name) for each in fields(CaseRequest)})

    def done(self) -> Outcome | None:
        """Return what is there if no stage has anything left to do; a sweep always has."""
        return self._walk(lambda stage: stage.done())

    def check(self) -> None:
        """Reject what the first unfinished stage cannot do."""

        def check_unfinished(stage: Stage[Result]) -> Result | None:
            done = stage.done()
            if done is None:
                stage.check()
            return done

        self._walk(check_unfinished)

    def execute(self, each: Each = execute) -> Outcome:
        """Execute one stage after the other, each unless it is done."""
        outcome = self._walk(each)
        assert outcome is not None
        return outcome

    def _walk(self, each: Each) -> Outcome | None:
        """Go through the stages; None where `each` returns None for one of them."""
        job = self.resolved
        published, trained = None, absolute(job.run) if job.run else None
        if trained is None:
            if job.dataset and job.version:
                published = PublishedVersion(job.dataset, job.version)
            else:
                published = each(job.generation)
            if published is None or job.until == "dataset":
                return Outcome(published, None, None) if published else None
            where = published.dataset, published.version
            training = Training(*where, job.recipe, job.experiment, job.runs)
            if job.sweep:
                tried = each(Trials(space=job.sweep, trials=job.trials, **asdict(training)))
                if tried is None:
                    return None
                # A trial is an ordinary run: the best one is found there if it was trained to its
                # end, and goes on if not.
                training = replace(training, recipe=None, experiment=tried.best, runs=tried.trials)
            trained = each(training)
            if trained is None or job.until == "run":
                return Outcome(published, trained, None) if trained else None
        report = each(Measurement(trained, job.report))
        return Outcome(published, trained, report) if report else None
