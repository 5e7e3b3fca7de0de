"""`courant run` and `courant generate`: the flows that solve cases.

Heavy imports wait inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cli.options import (
    ArchiveRaw,
    Cases,
    Cores,
    Designs,
    ExperimentFile,
    Family,
    NewSplitChoice,
    Preset,
    Recipe,
    RetryFailed,
    SamplerChoice,
    SamplerOption,
    Seed,
    Set,
    StageChoice,
    Store,
    TimeLimit,
    Trials,
    Verbose,
    Version,
    file_of,
    parse_settings,
)
from flows.cli.starting import carry_out, show_dataset, show_report, show_run

generation_app = typer.Typer()


@generation_app.command(
    epilog=(
        "Example: courant run cylinder-flow --cases 8 --preset trial --recipe cylinder-flow-demo"
        " --out demo-run"
    )
)
def run(
    family: Annotated[
        str | None,
        typer.Argument(
            help="Case family, such as cylinder-flow; not needed with --dataset or --run."
        ),
    ] = None,
    cases: Cases = 8,
    out: Annotated[
        str | None,
        typer.Option(help="One place for everything: store/, runs/ and report/ below it."),
    ] = None,
    sampler: SamplerOption = SamplerChoice.sobol,
    seed: Seed = 42,
    preset: Preset = None,
    settings: Set = None,
    designs: Designs = None,
    recipe: Recipe = None,
    experiment: ExperimentFile = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            help="Try this search space first, and train its best setting; as in `courant sweep`."
        ),
    ] = None,
    trials: Trials = None,
    time_limit: TimeLimit = None,
    retry_failed: RetryFailed = False,
    cores: Cores = 1,
    archive_raw: ArchiveRaw = False,
    dataset: Annotated[
        str | None, typer.Option(help="Generate nothing: train on this dataset.")
    ] = None,
    version: Version = None,
    trained: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="URL", help="Train nothing: evaluate this run and write its report."
        ),
    ] = None,
    until: Annotated[
        StageChoice, typer.Option(help="The last stage to carry out.")
    ] = StageChoice.report,
    verbose: Verbose = False,
) -> None:
    """Sample, solve, publish, train, evaluate and report, all in one.

    Run again, it goes on where it stopped. Stages can be skipped: `--dataset` and `--run` take what
    is there, `--until` ends after a dataset or a run.
    """
    if family is None and not (dataset or trained):
        raise typer.BadParameter("name a family to generate cases of, or give --dataset or --run")
    if family is not None and (dataset or trained):
        given = "--dataset" if dataset else "--run"
        raise typer.BadParameter(f"{given} has cases of its own; leave {family} out")
    if trials is not None and sweep is None:
        raise typer.BadParameter("--trials are those of a sweep; give --sweep too")
    from flows.stages.main_job import MainJob, Outcome

    base = out.rstrip("/") if out else None
    asked = MainJob(
        **({"family": family} if family else {}),
        cases=cases,
        sampler=sampler.value,
        seed=seed,
        preset=preset,
        settings=parse_settings(settings),
        designs=designs,
        recipe=recipe,
        experiment=file_of(experiment, recipe),
        sweep=sweep,
        trials=trials,
        store=f"{base}/store" if base else None,
        runs=f"{base}/runs" if base else None,
        report=f"{base}/report" if base else None,
        time_limit_s=time_limit,
        retry_failed=retry_failed,
        cores=cores,
        archive_raw=archive_raw,
        dataset=dataset,
        version=version,
        run=trained,
        until=until.value,
    )
    outcome = carry_out(asked, _main_job_flow, verbose, Outcome.line)
    if outcome.report:
        show_report(outcome.report)
    elif outcome.run:
        show_run(outcome.run)
    elif outcome.dataset:
        show_dataset(outcome.dataset)


@generation_app.command(
    epilog=(
        "Example: courant generate cylinder-flow --cases 32 --set end_time=200"
        " --store s3://bucket/store"
    )
)
def generate(
    family: Family,
    cases: Cases = 8,
    sampler: SamplerOption = SamplerChoice.sobol,
    seed: Seed = 42,
    preset: Preset = None,
    settings: Set = None,
    designs: Designs = None,
    store: Store = None,
    time_limit: TimeLimit = None,
    retry_failed: RetryFailed = False,
    cores: Cores = 1,
    archive_raw: ArchiveRaw = False,
    split: Annotated[
        NewSplitChoice | None,
        typer.Option(
            help=(
                "Publish the new cases in this split, such as calibration; else splits are drawn."
            )
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Sample a design space, solve its cases with OpenFOAM and publish a dataset version."""
    from flows.stages.generation import Generation, PublishedVersion

    asked = Generation(
        family=family,
        cases=cases,
        sampler=sampler.value,
        seed=seed,
        preset=preset,
        settings=parse_settings(settings),
        designs=designs,
        store=store,
        time_limit_s=time_limit,
        retry_failed=retry_failed,
        cores=cores,
        archive_raw=archive_raw,
        split=split.value if split else None,
    )
    show_dataset(carry_out(asked, _generate_flow, verbose, PublishedVersion.line))


def _main_job_flow() -> Any:
    from flows.generate_and_train import generate_and_train

    return generate_and_train


def _generate_flow() -> Any:
    from flows.generate_dataset import generate

    return generate
