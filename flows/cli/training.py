"""`courant train`, `sweep` and `evaluate`: the flows that work on a dataset version or a run.

Heavy imports wait inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cli.options import (
    CpusPerTrial,
    DatasetUrl,
    ExperimentFile,
    GpusPerTrial,
    MovedDataset,
    Recipe,
    Runs,
    RunUrl,
    SplitChoice,
    Trials,
    Verbose,
    Version,
    file_of,
)
from flows.cli.starting import carry_out, show_report, show_run
from flows.settings import MAX_SEED, REPORTS
from flows.terminal import say

training_app = typer.Typer()


@training_app.command(
    epilog=(
        "Example: courant train demo-run/store/cylinder-flow --recipe cylinder-flow-small"
        " --runs demo-run/runs"
    )
)
def train(
    dataset: DatasetUrl,
    version: Version = None,
    recipe: Recipe = None,
    experiment: ExperimentFile = None,
    runs: Runs = None,
    verbose: Verbose = False,
) -> None:
    """Fit a surrogate to a dataset version on Ray."""
    from flows.stages.training import Training

    asked = Training(dataset, version, recipe, file_of(experiment, recipe), runs)
    show_run(carry_out(asked, _train_flow, verbose).url)


@training_app.command(
    epilog=(
        "Example: courant sweep demo-run/store/cylinder-flow --space anchors --trials 12"
        " --recipe cylinder-flow-demo"
    )
)
def sweep(
    dataset: DatasetUrl,
    version: Version = None,
    space: Annotated[
        str,
        typer.Option(
            help=(
                "ablations, anchors, features, gwa, heads, legibility, levels, loops,"
                " or a YAML file of your own."
            )
        ),
    ] = "anchors",
    trials: Trials = None,
    recipe: Recipe = None,
    experiment: ExperimentFile = None,
    runs: Runs = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Seed of settings' order and of drawn values.")
    ] = 42,
    to_the_end: Annotated[
        bool,
        typer.Option("--to-the-end", help="Stop no trial early, as the paper's figures need it."),
    ] = False,
    cpus_per_trial: CpusPerTrial = None,
    gpus_per_trial: GpusPerTrial = None,
    verbose: Verbose = False,
) -> None:
    """Try settings around a recipe on Ray Tune.

    It leaves a table, figures, and the best configuration for `train`.
    """
    from flows.stages.sweep import Trials as SweptTrials

    asked = SweptTrials(
        dataset,
        version,
        space,
        trials,
        recipe,
        file_of(experiment, recipe),
        runs,
        seed,
        early_stopping=not to_the_end,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
    )
    swept = carry_out(asked, _sweep_flow, verbose)
    say(f"page  {swept.page}\nbest  {swept.best}\n{swept.verdict}")


@training_app.command(
    epilog="Example: courant evaluate demo-run/runs/cylinder-flow-demo-0123456789 --split test"
)
def evaluate(
    run: RunUrl,
    split: Annotated[SplitChoice, typer.Option(help="Which cases.")] = SplitChoice.test,
    report: Annotated[
        str | None,
        typer.Option(
            help=(
                "Folder or s3://bucket/prefix for the report; default: a folder of the run's name"
                f" in {REPORTS}. [env: COURANT_REPORTS]"
            )
        ),
    ] = None,
    dataset: MovedDataset = None,
    verbose: Verbose = False,
) -> None:
    """Errors of a trained model beside its references, and the report."""
    from flows.stages.evaluation import Measurement

    asked = Measurement(run, report, split.value, dataset)
    show_report(carry_out(asked, _evaluate_flow, verbose))


def _train_flow() -> Any:
    from flows.train_surrogate import train

    return train


def _sweep_flow() -> Any:
    from flows.sweep_surrogate import sweep

    return sweep


def _evaluate_flow() -> Any:
    from flows.evaluate_surrogate import evaluate

    return evaluate
