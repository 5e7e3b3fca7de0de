"""Plan benchmarks, and train and evaluate them in this process as Ray's processes do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import simgen
from courant.experiment import Experiment
from courant.runs.record import is_finished, write_status
from courant.sweeps.benchmark import (
    Benchmark,
    choose_contenders,
    evaluate_trial,
    next_phase,
    parse_budget,
    plan_benchmark,
)
from courant.training.train import TrainingError, fit
from simgen.store.read import Dataset
from tests.baselines.tiny import OWN


def planned(
    dataset: Dataset,
    base: Experiment,
    out: Path,
    models: Sequence[str] = ("courant", "transolver"),
    budget: str = "4epochs",
    sizes: dict[str, dict[str, Any]] = OWN,
    **options: Any,
) -> Benchmark:
    own = {name: sizes[name] for name in models if name in sizes}
    contenders = choose_contenders(models, base, dataset, own)
    options = {"rates": (1e-3, 3e-3), "runs_url": "unused", "out": str(out), **options}
    return plan_benchmark(base, contenders, dataset, budget=parse_budget(budget), **options)


def run_here(benchmark: Benchmark) -> tuple[list[str], list[str]]:
    """Do what is left of a benchmark; return the names of the trained and the evaluated trials."""
    benchmark.write()
    dataset = simgen.open_dataset(benchmark.dataset_url, benchmark.version)
    trained: list[str] = []
    evaluated: list[str] = []
    while (phase := next_phase(benchmark)) is not None:
        for trial in phase.trials:
            if not is_finished(trial.run):
                trained.append(trial.experiment.name)
            try:
                fit(trial.experiment, dataset, trial.run)
            except TrainingError as error:
                write_status(trial.run, "failed", reason=str(error))
                continue
            if phase.counts:
                evaluated.append(trial.experiment.name)
                evaluate_trial(trial.run, dataset.url)
    return trained, evaluated
