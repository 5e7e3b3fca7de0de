"""Define the command line `courant`: the stages as commands, and the groups of other commands.

Options of the stages are made of their requests. Heavy imports wait inside the commands, so that
`courant --help` answers at once.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from flows import request_models as requests
from flows.cli.analysis import analysis_app
from flows.cli.datasets import dataset_app
from flows.cli.models import model_app, recipes_app, runs_app
from flows.cli.observing import observing_app
from flows.request_models import argument, option, with_options_of
from flows.settings import check_prefect, prefect_url
from flows.terminal import announce, errors, one_line_errors, print_line, start_logs
from simgen import log_lines

if TYPE_CHECKING:
    from flows.stages import Report, Stage

Result = TypeVar("Result")
Asked = dict[str, Any]
Verbose = Annotated[
    bool, option("Log what cases and trainings do, and Prefect.", "--verbose", "-v")
]


class Commands(TyperGroup):
    """The commands, whose errors are one line each."""

    def invoke(self, ctx: Any) -> Any:
        with one_line_errors():
            return super().invoke(ctx)


app = typer.Typer(
    name="courant",
    cls=Commands,
    help=(
        "From a design space to a trained, legible surrogate: OpenFOAM cases, versioned datasets,"
        " Courant on Ray."
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from simgen.provenance import generator_version

        typer.echo(f"courant {generator_version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, option("Print the version.", "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Handle the options that are given before a command, and begin its log."""
    start_logs()


@app.command(epilog="Example: courant run cylinder-flow --cases 8 --out demo-run")
@with_options_of(requests.MainJobRequest, "store", "runs", "report")
def run(
    asked: Asked,
    family: Annotated[str | None, argument("Case family, such as cylinder-flow.")] = None,
    out: Annotated[str | None, option("Folder for store/, runs/ and report/.")] = None,
    verbose: Verbose = False,
) -> None:
    """Sample, solve, publish, train, evaluate and report, all in one; again, it goes on.

    Stages can be skipped: `--dataset` and `--run` take what is there, `--until` ends earlier.
    """
    if (family is None) == (asked["dataset"] is None and asked["run"] is None):
        raise typer.BadParameter("name a family to generate cases of, or give --dataset or --run")
    if family is not None:
        asked["family"] = family
    if out is not None:
        asked |= {place: f"{out.rstrip('/')}/{place}" for place in ("store", "runs", "report")}
    from flows.stages import MainJob

    outcome = execute_stage(MainJob(**asked), verbose)
    if outcome.report:
        _print_report(outcome.report)
    elif outcome.run:
        print_line(f"run  {outcome.run}")
    elif outcome.dataset:
        print_line(f"dataset  {outcome.dataset.dataset}  {outcome.dataset.version}")


@app.command(epilog="Example: courant generate cylinder-flow --cases 32 --set end_time=200")
@with_options_of(requests.GenerationRequest, "design_parameters")
def generate(
    asked: Asked,
    family: Annotated[str, argument("Case family, such as cylinder-flow.")],
    verbose: Verbose = False,
) -> None:
    """Sample a design space, solve its cases with OpenFOAM and publish a dataset version."""
    from flows.stages import Generation

    published = execute_stage(Generation(family, **asked), verbose)
    print_line(f"dataset  {published.dataset}  {published.version}")


@app.command(epilog="Example: courant train DATASET --recipe cylinder-flow-small")
@with_options_of(requests.TrainingRequest)
def train(asked: Asked, verbose: Verbose = False) -> None:
    """Fit a surrogate to a dataset version."""
    from flows.stages import Training

    print_line(f"run  {execute_stage(Training(**asked), verbose)}")


@app.command(epilog="Example: courant sweep DATASET --space anchors --trials 12")
@with_options_of(requests.SweepRequest)
def sweep(asked: Asked, verbose: Verbose = False) -> None:
    """Try settings around a recipe on Ray Tune: a table, figures, the best configuration."""
    from flows.stages import Trials

    swept = execute_stage(Trials(**asked), verbose)
    print_line(f"page  {swept.page}\nbest  {swept.best}\n{swept.verdict}")


@app.command(epilog="Example: courant benchmark DATASET --models courant,upt --budget 10min")
@with_options_of(requests.BenchmarkRequest)
def benchmark(asked: Asked, verbose: Verbose = False) -> None:
    """Compare models at an equal budget; docs/benchmark.md explains every number."""
    from flows.stages import ModelBenchmark

    finished = execute_stage(ModelBenchmark(**asked), verbose)
    print_line(f"page  {finished.page}\n{finished.verdict}")


@app.command(epilog="Example: courant evaluate RUN --split test")
@with_options_of(requests.EvaluationRequest)
def evaluate(asked: Asked, verbose: Verbose = False) -> None:
    """Errors of a trained model beside its references, and the report."""
    from flows.stages import Measurement

    _print_report(execute_stage(Measurement(**asked), verbose))


def execute_stage(stage: Stage[Result], verbose: bool) -> Result:
    """Return the result of a stage, executed unless done; in its flow with PREFECT_API_URL."""
    if verbose and not log_lines.is_json():
        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
        for name in ("simgen", "courant", "flows.case"):
            logging.getLogger(name).setLevel(logging.INFO)
    done = stage.done()
    if done is not None:
        if line := getattr(done, "line", str)():
            announce(line)
        return done
    stage.check()
    url = prefect_url()
    if url is None:
        return stage.execute()
    check_prefect(url)
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    # Prefect would repeat each error with its traceback.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO" if verbose else "CRITICAL")
    with errors.status("starting"):
        from flows.prefect_flows import in_flow
    return in_flow(stage)


def _print_report(report: Report) -> None:
    print_line(f"run     {report.run}\nreport  {report.url}\n{report.verdict}")


app.add_typer(dataset_app, name="dataset")
app.add_typer(runs_app, name="runs")
app.add_typer(recipes_app, name="recipes")
for commands in (observing_app, model_app):
    app.add_typer(commands)
app.add_typer(analysis_app, name="analyse")
