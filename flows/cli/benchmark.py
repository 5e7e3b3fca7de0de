"""Define `courant benchmark`: several models on one dataset version at an equal budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.options import (
    CpusPerTrial,
    DatasetUrl,
    ExperimentFile,
    GpusPerTrial,
    Recipe,
    Runs,
    Verbose,
    Version,
    file_of,
)
from flows.cli.starting import carry_out
from flows.terminal import say

benchmark_app = typer.Typer()


@benchmark_app.command(
    epilog=(
        "Example: courant benchmark demo-run/store/cylinder-flow --recipe cylinder-flow-demo"
        " --models courant,transolver,upt --budget 10min --seeds 3"
    )
)
def benchmark(
    dataset: DatasetUrl,
    version: Version = None,
    models: Annotated[
        str | None,
        typer.Option(
            help=(
                "Models with commas between them: courant, courant-gwa, courant-learned-anchors,"
                " courant-placed-anchors, courant-legible, courant-abstract-queries, transolver,"
                " fno, upt, enf, mgn, factformer, or kinds of your own."
                " NAME-x2 averages two of them within the same budget, up to -x64."
                " Default: courant,transolver,upt."
            )
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help=(
                "Compare the settings of a search space instead: features, ablations, anchors,"
                " or a YAML file of your own."
            )
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            help=(
                "What each training may spend: 40epochs, or processor time such as 90s, 30min, 2h."
            )
        ),
    ] = "30min",
    rates: Annotated[
        str | None,
        typer.Option(
            help=(
                "Learning rates that are tried for each model; one alone is taken as it is."
                " Default: 3e-4,1e-3,3e-3."
            )
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings of each model.")] = 1,
    best: Annotated[
        int | None,
        typer.Option(
            min=1, help="So many models get all seeds, by the first one's validation error."
        ),
    ] = None,
    sizes: Annotated[
        Path | None,
        typer.Option(help='A JSON file of model sizes, such as {"transolver": {"width": 64}}.'),
    ] = None,
    recipe: Recipe = None,
    experiment: ExperimentFile = None,
    runs: Runs = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="The benchmark's folder or s3://bucket/prefix; default: one among the runs."
        ),
    ] = None,
    cpus_per_trial: CpusPerTrial = None,
    gpus_per_trial: GpusPerTrial = None,
    verbose: Verbose = False,
) -> None:
    """Compare models at an equal budget: a table, a figure, and what a surrogate is worth.

    Run it again to go on after an interruption; docs/benchmark.md explains every number.
    """
    from flows.stages.benchmark import Comparison

    asked = Comparison(
        dataset,
        version,
        _names(models),
        space,
        budget,
        _numbers(rates),
        seeds,
        best,
        str(sizes) if sizes else None,
        recipe,
        file_of(experiment, recipe),
        runs,
        out,
        cpus_per_trial,
        gpus_per_trial,
    )
    finished = carry_out(asked, _benchmark_flow, verbose)
    say(f"page  {finished.page}\n{finished.verdict}")


def _names(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] if text else None


def _numbers(text: str | None) -> list[float] | None:
    try:
        return [float(number) for number in text.split(",")] if text else None
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' are not numbers with commas between them", param_hint="--rates"
        ) from None


def _benchmark_flow() -> Any:
    from flows.benchmark_models import benchmark

    return benchmark
