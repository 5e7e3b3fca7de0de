"""The command line, `courant`: the flows run in this process, datasets listed, models asked.

Heavy imports wait inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.__main__ import main
from flows.cli_options import (
    ArchiveRaw,
    Cases,
    Cores,
    Designs,
    ExperimentFile,
    Family,
    Preset,
    Recipe,
    RetryFailed,
    Runs,
    RunUrl,
    SamplerChoice,
    SamplerOption,
    Seed,
    Set,
    SplitChoice,
    StageChoice,
    TimeLimit,
    Trials,
    Verbose,
    check_dataset,
    check_request,
    parse_settings,
)
from flows.dataset_cli import DatasetUrl, Store, Version, dataset_app
from flows.model_cli import model_app
from flows.prefect_api import prefect_api
from flows.runs_cli import runs_app
from flows.settings import embedded_defaults, load_settings
from flows.terminal import one_line_errors, screen

if TYPE_CHECKING:
    from flows.evaluate_surrogate import Report
    from flows.generate_dataset import PublishedVersion

app = typer.Typer(
    name="courant",
    help="From a design space to a trained, legible surrogate: OpenFOAM cases, versioned datasets, Courant on Ray.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(dataset_app, name="dataset")
app.add_typer(runs_app, name="runs")
app.add_typer(model_app)


@app.command(
    epilog="Example: courant run cylinder-flow --cases 8 --preset trial --recipe cylinder-flow-demo --out demo-run"
)
def run(
    family: Annotated[
        str | None, typer.Argument(help="Case family, such as cylinder-flow; not needed with --dataset or --run.")
    ] = None,
    cases: Cases = 8,
    out: Annotated[
        str | None, typer.Option(help="One place for everything: store/, runs/ and report/ below it.")
    ] = None,
    sampler: SamplerOption = SamplerChoice.sobol,
    seed: Seed = 42,
    preset: Preset = "trial",
    settings: Set = None,
    designs: Designs = None,
    recipe: Recipe = None,
    experiment: ExperimentFile = None,
    sweep: Annotated[
        str | None, typer.Option(help="Try this search space first, and train its best setting; as in `courant sweep`.")
    ] = None,
    trials: Trials = None,
    time_limit: TimeLimit = None,
    retry_failed: RetryFailed = False,
    cores: Cores = 1,
    archive_raw: ArchiveRaw = False,
    dataset: Annotated[str | None, typer.Option(help="Generate nothing: train on this dataset.")] = None,
    version: Version = None,
    trained: Annotated[
        str | None, typer.Option("--run", metavar="URL", help="Train nothing: evaluate this run and write its report.")
    ] = None,
    until: Annotated[StageChoice, typer.Option(help="The last stage to carry out.")] = StageChoice.report,
    verbose: Verbose = False,
) -> None:
    """All of it: sample, solve, publish, train, evaluate, report. Run again, it goes on where it stopped.

    Stages can be skipped: `--dataset` and `--run` take what is there, `--until` ends after a dataset or a run.
    """
    where = load_settings()
    base = out.rstrip("/") if out else None
    if dataset:
        check_dataset(dataset, version)
    elif not trained:
        if family is None:
            raise typer.BadParameter("name a family to generate cases of, or give --dataset or --run")
        check_request(family, cases, sampler, seed, preset, settings, designs)
    with _flows(verbose):
        from flows.generate_and_train import generate_and_train

        flow: Any = generate_and_train
        asked = {"family": family} if family else {}
        outcome = flow(
            **asked, cases=cases, sampler=sampler.value, seed=seed, preset=preset, settings=parse_settings(settings),
            designs=str(designs) if designs else None, recipe=recipe, experiment=str(experiment) if experiment else None,
            sweep=sweep, trials=trials, store=f"{base}/store" if base else where.store, runs=f"{base}/runs" if base else where.runs,
            report=f"{base}/report" if base else None, time_limit_s=time_limit, retry_failed=retry_failed, cores=cores,
            archive_raw=archive_raw,
            dataset=dataset, version=version, run=trained, until=until.value,
        )  # fmt: skip
    if outcome.report:
        _show_report(outcome.report)
    elif outcome.run:
        screen.print(f"run  {outcome.run}", highlight=False, soft_wrap=True)
    else:
        _show_dataset(outcome.dataset)


@app.command(epilog="Example: courant generate cylinder-flow --cases 32 --set end_time=200 --store s3://bucket/store")
def generate(
    family: Family,
    cases: Cases = 8,
    sampler: SamplerOption = SamplerChoice.sobol,
    seed: Seed = 42,
    preset: Preset = "trial",
    settings: Set = None,
    designs: Designs = None,
    store: Store = None,
    time_limit: TimeLimit = None,
    retry_failed: RetryFailed = False,
    cores: Cores = 1,
    archive_raw: ArchiveRaw = False,
    verbose: Verbose = False,
) -> None:
    """Sample a design space, solve its cases with OpenFOAM and publish a dataset version."""
    check_request(family, cases, sampler, seed, preset, settings, designs)
    with _flows(verbose):
        from flows import generate_dataset

        flow: Any = generate_dataset.generate
        published = flow(
            family=family, cases=cases, sampler=sampler.value, seed=seed, preset=preset, settings=parse_settings(settings),
            designs=str(designs) if designs else None, store=store, time_limit_s=time_limit, retry_failed=retry_failed, cores=cores,
            archive_raw=archive_raw,
        )  # fmt: skip
    _show_dataset(published)


@app.command(
    epilog="Example: courant train demo-run/store/cylinder-flow --recipe cylinder-flow-small --runs demo-run/runs"
)
def train(
    dataset: DatasetUrl,
    version: Version = None,
    recipe: Recipe = None,
    experiment: ExperimentFile = None,
    runs: Runs = None,
    verbose: Verbose = False,
) -> None:
    """Fit a surrogate to a dataset version through Ray Train."""
    check_dataset(dataset, version)
    with _flows(verbose):
        from flows.train_surrogate import train as flow

        trained = flow(dataset, version, recipe, str(experiment) if experiment else None, runs)
    screen.print(f"run  {trained.url}", highlight=False, soft_wrap=True)


@app.command(
    epilog="Example: courant sweep demo-run/store/cylinder-flow --space anchors --trials 12 --recipe cylinder-flow-demo"
)
def sweep(
    dataset: DatasetUrl,
    version: Version = None,
    space: Annotated[
        str, typer.Option(help="ablations, anchors, features, gwa, heads, levels, loops, or a YAML file of your own.")
    ] = "anchors",
    trials: Trials = None,
    recipe: Recipe = None,
    experiment: ExperimentFile = None,
    runs: Runs = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the order of settings and of drawn values.")] = 42,
    to_the_end: Annotated[
        bool, typer.Option("--to-the-end", help="Stop no trial early, as the paper's figures need it.")
    ] = False,
    cpus_per_trial: Annotated[float, typer.Option(min=0.1, help="CPU cores of each trial.")] = 1.0,
    gpus_per_trial: Annotated[
        float | None, typer.Option(min=0.0, help="GPUs of each trial, such as 0.25; default: one where there are any.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Try settings around a recipe on Ray Tune: a table, figures, and the best configuration for `train`."""
    check_dataset(dataset, version)
    with _flows(verbose):
        from flows.sweep_surrogate import sweep as flow

        swept = flow(
            dataset, version, space, trials, recipe, str(experiment) if experiment else None, runs, seed,
            early_stopping=not to_the_end, cpus_per_trial=cpus_per_trial, gpus_per_trial=gpus_per_trial,
        )  # fmt: skip
    screen.print(f"page  {swept.page}\nbest  {swept.best}\n{swept.verdict}", highlight=False, soft_wrap=True)


@app.command(epilog="Example: courant evaluate demo-run/runs/cylinder-flow-demo-0123456789 --split test")
def evaluate(
    run: RunUrl,
    split: Annotated[SplitChoice, typer.Option(help="Which cases.")] = SplitChoice.test,
    report: Annotated[
        str | None, typer.Option(help="Folder or s3://bucket/prefix for the report. [env: COURANT_REPORTS]")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Errors of a trained model beside its references, and the report."""
    with _flows(verbose):
        from flows.evaluate_surrogate import evaluate as flow

        written = flow(run, report, split.value)
    _show_report(written)


@contextlib.contextmanager
def _flows(verbose: bool) -> Iterator[None]:
    """Prefect inside this command: its API in a process beside it unless PREFECT_API_URL names one, errors in one line."""
    if verbose:
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
    else:
        # It warns at exit of events that are still on their way, on a logger that no setting of Prefect's reaches.
        logging.getLogger("EventsWorker").setLevel(logging.CRITICAL)
    embedded_defaults()
    with one_line_errors(), prefect_api():
        yield


def _show_dataset(published: PublishedVersion) -> None:
    screen.print(f"dataset  {published.dataset}  {published.version}", highlight=False, soft_wrap=True)


def _show_report(report: Report) -> None:
    screen.print(f"run     {report.run}\nreport  {report.url}\n{report.verdict}", highlight=False, soft_wrap=True)


__all__ = ["app", "main"]
