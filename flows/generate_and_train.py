"""Flow `generate-and-train`: the main job. Stages hand URLs to each other, and each finds its finished work again."""

from __future__ import annotations

from typing import Literal

from prefect import flow

from courant.training.search_space import load_space
from flows.evaluate_surrogate import Report, evaluate
from flows.generate_dataset import generate
from flows.sweep_surrogate import sweep as try_space
from flows.train_surrogate import train
from simgen.design_space import Sampler


@flow(name="generate-and-train", flow_run_name="{family}, {cases} cases")
def generate_and_train(
    family: str = "cylinder-flow",
    cases: int = 8,
    sampler: Sampler = "sobol",
    seed: int = 42,
    preset: Literal["trial", "paper"] = "trial",
    settings: dict[str, float] | None = None,
    designs: str | None = None,
    recipe: str = "cylinder-flow-demo",
    experiment: str | None = None,
    sweep: str | None = None,
    trials: int | None = None,
    store: str | None = None,
    runs: str | None = None,
    report: str | None = None,
    time_limit_s: float | None = None,
    retry_failed: bool = False,
) -> Report:
    """Sample and solve designs, publish a dataset version, train on it, evaluate, report.

    With `sweep`, a search space is tried first, and its best setting is what is trained.
    """
    if sweep:
        load_space(sweep)  # a wrong name is told now, not when the cases are solved
    published = generate(family, cases, sampler, seed, preset, settings, designs, store, time_limit_s, retry_failed)
    if sweep:
        tried = try_space(published.dataset, published.version, sweep, trials, recipe, experiment, runs)
        # A trial is an ordinary run: the best one is found there if it was trained to its end, and goes on if not.
        experiment, runs = tried.best, tried.trials
    trained = train(published.dataset, published.version, recipe, experiment, runs)
    return evaluate(trained.url, report)
