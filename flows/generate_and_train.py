"""Flow `generate-and-train`: the main job. Stages hand URLs to each other, and each finds its finished work again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prefect import flow

import simgen
from courant.recipes import get_recipe, recipe_of
from courant.sweeps.search_space import load_space
from flows.evaluate_surrogate import Report, evaluate
from flows.generate_dataset import PublishedVersion, generate
from flows.settings import absolute
from flows.sweep_surrogate import sweep as try_space
from flows.train_surrogate import train
from simgen.design_space import Sampler
from simgen.errors import InputError

Stage = Literal["dataset", "run", "report"]


@dataclass(frozen=True)
class Outcome:
    """What each stage has left: URLs; None for a stage that was skipped or not asked for."""

    dataset: PublishedVersion | None
    run: str | None
    report: Report | None


@flow(name="generate-and-train", flow_run_name="{family}, {cases} cases")
def generate_and_train(
    family: str = "cylinder-flow",
    cases: int = 8,
    sampler: Sampler = "sobol",
    seed: int = 42,
    preset: Literal["trial", "paper"] = "trial",
    settings: dict[str, float] | None = None,
    designs: str | None = None,
    recipe: str | None = None,
    experiment: str | None = None,
    sweep: str | None = None,
    trials: int | None = None,
    store: str | None = None,
    runs: str | None = None,
    report: str | None = None,
    time_limit_s: float | None = None,
    retry_failed: bool = False,
    cores: int = 1,
    archive_raw: bool = False,
    dataset: str | None = None,
    version: str | None = None,
    run: str | None = None,
    until: Stage = "report",
) -> Outcome:
    """Sample and solve designs, publish a dataset version, train on it, evaluate, report.

    The recipe is `<family>-demo` where none is named. With `sweep`, a search space is tried first, and its best setting is
    what is trained. Stages that are done elsewhere are skipped: `dataset` (and `version`, default the newest) takes the place
    of the generation, `run` of all up to the trained model; `until` ends the job after its dataset or run.
    """
    if run:
        if dataset or sweep or until != "report":
            raise InputError("a run is given: it has its dataset, and only its report is left to make")
        return Outcome(None, absolute(run), evaluate(run, report))
    found = find_version(dataset, version) if dataset else None
    # Wrong names are told now, not when the cases are solved.
    if sweep:
        load_space(sweep)
    if until != "dataset" and not experiment:
        of = simgen.open_dataset(found.dataset, found.version).schema.family if found else family
        recipe = get_recipe(recipe or recipe_of(of, "demo")).name
    published = found or generate(
        family, cases, sampler, seed, preset, settings, designs, store, time_limit_s, retry_failed, cores, archive_raw
    )
    if until == "dataset":
        return Outcome(published, None, None)
    if sweep:
        tried = try_space(published.dataset, published.version, sweep, trials, recipe, experiment, runs)
        # A trial is an ordinary run: the best one is found there if it was trained to its end, and goes on if not.
        experiment, runs = tried.best, tried.trials
    trained = train(published.dataset, published.version, recipe, experiment, runs)
    return Outcome(published, trained.url, evaluate(trained.url, report) if until == "report" else None)


def find_version(dataset: str, version: str | None) -> PublishedVersion:
    """A version that exists; the newest one is named here, so that later stages take the same."""
    opened = simgen.open_dataset(absolute(dataset), version)
    return PublishedVersion(opened.url, opened.version)
