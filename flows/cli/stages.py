"""`courant run`, `generate`, `train`, `sweep`, `benchmark` and `evaluate`: the stages as commands.

Their options are made of the stages' requests. Heavy imports wait inside the commands, so that
`courant --help` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from flows.deployments import api_url, check_api
from flows.request_models import (
    BenchmarkRequest,
    EvaluationRequest,
    GenerationRequest,
    MainJobRequest,
    SweepRequest,
    TrainingRequest,
    with_options_of,
)
from flows.settings import prefect_defaults
from flows.terminal import errors, log_details, one_line_errors, print_line

if TYPE_CHECKING:
    from flows.stages.evaluation import Report
    from flows.stages.generation import PublishedVersion
    from flows.stages.stage import Stage

Result = TypeVar("Result")
Asked = dict[str, Any]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Log what cases and trainings do, and Prefect.")
]

stages_app = typer.Typer()


def carry_out(stage: Stage[Result], verbose: bool) -> Result:
    """Return the result of a stage, which is executed unless it is done.

    With PREFECT_API_URL it is executed in its flow. Errors end the command in one line.
    """
    if verbose:
        log_details()
    with one_line_errors():
        done = stage.done()
        if done is not None:
            if line := getattr(done, "line", str)():
                errors.print(line, highlight=False, soft_wrap=True)
            return done
        stage.check()
        url = api_url()
        if url is None:
            return stage.execute()
        check_api(url)
        prefect_defaults(verbose)
        with errors.status("starting"):
            from flows.prefect_flows import in_flow
        return in_flow(stage)


@stages_app.command(
    epilog=(
        "Example: courant run cylinder-flow --cases 8 --preset trial --recipe cylinder-flow-demo"
        " --out demo-run"
    )
)
@with_options_of(MainJobRequest, "store", "runs", "report")
def run(
    asked: Asked,
    family: Annotated[
        str | None,
        typer.Argument(
            help="Case family, such as cylinder-flow; not needed with --dataset or --run."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="One place for everything: store/, runs/ and report/ below it."),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Sample, solve, publish, train, evaluate and report, all in one.

    Run again, it goes on where it stopped. Stages can be skipped: `--dataset` and `--run` take what
    is there, `--until` ends after a dataset or a run.
    """
    given = "--dataset" if asked["dataset"] else "--run" if asked["run"] else None
    if family is None and given is None:
        raise typer.BadParameter("name a family to generate cases of, or give --dataset or --run")
    if family is not None and given is not None:
        raise typer.BadParameter(f"{given} has cases of its own; leave {family} out")
    if asked["trials"] is not None and asked["sweep"] is None:
        raise typer.BadParameter("--trials are those of a sweep; give --sweep too")
    _check_one_experiment(asked)
    if family is not None:
        asked["family"] = family
    if out is not None:
        asked |= {place: f"{out.rstrip('/')}/{place}" for place in ("store", "runs", "report")}
    with one_line_errors():
        from flows.stages.main_job import MainJob

        job = MainJob(**asked)
    outcome = carry_out(job, verbose)
    if outcome.report:
        _show_report(outcome.report)
    elif outcome.run:
        print_line(f"run  {outcome.run}")
    elif outcome.dataset:
        _show_dataset(outcome.dataset)


@stages_app.command(
    epilog=(
        "Example: courant generate cylinder-flow --cases 32 --set end_time=200"
        " --store s3://bucket/store"
    )
)
@with_options_of(GenerationRequest, "design_parameters")
def generate(
    asked: Asked,
    family: Annotated[str, typer.Argument(help="Case family, such as cylinder-flow.")],
    verbose: Verbose = False,
) -> None:
    """Sample a design space, solve its cases with OpenFOAM and publish a dataset version."""
    with one_line_errors():
        from flows.stages.generation import Generation

        stage = Generation(family, **asked)
    _show_dataset(carry_out(stage, verbose))


@stages_app.command(
    epilog=(
        "Example: courant train demo-run/store/cylinder-flow --recipe cylinder-flow-small"
        " --runs demo-run/runs"
    )
)
@with_options_of(TrainingRequest)
def train(asked: Asked, verbose: Verbose = False) -> None:
    """Fit a surrogate to a dataset version."""
    _check_one_experiment(asked)
    with one_line_errors():
        from flows.stages.training import Training

        stage = Training(**asked)
    print_line(f"run  {carry_out(stage, verbose).url}")


@stages_app.command(
    epilog=(
        "Example: courant sweep demo-run/store/cylinder-flow --space anchors --trials 12"
        " --recipe cylinder-flow-demo"
    )
)
@with_options_of(SweepRequest)
def sweep(asked: Asked, verbose: Verbose = False) -> None:
    """Try settings around a recipe on Ray Tune.

    It leaves a table, figures, and the best configuration for `train`.
    """
    _check_one_experiment(asked)
    with one_line_errors():
        from flows.stages.sweep import Trials

        stage = Trials(**asked)
    swept = carry_out(stage, verbose)
    print_line(f"page  {swept.page}\nbest  {swept.best}\n{swept.verdict}")


@stages_app.command(
    epilog=(
        "Example: courant benchmark demo-run/store/cylinder-flow --recipe cylinder-flow-demo"
        " --models courant,transolver,upt --budget 10min --seeds 3"
    )
)
@with_options_of(BenchmarkRequest)
def benchmark(asked: Asked, verbose: Verbose = False) -> None:
    """Compare models at an equal budget: a table, a figure, and what a surrogate is worth.

    Run it again to go on after an interruption; docs/benchmark.md explains every number.
    """
    _check_one_experiment(asked)
    with one_line_errors():
        from flows.stages.benchmark import Comparison

        stage = Comparison(**asked)
    finished = carry_out(stage, verbose)
    print_line(f"page  {finished.page}\n{finished.verdict}")


@stages_app.command(
    epilog="Example: courant evaluate demo-run/runs/cylinder-flow-demo-0123456789 --split test"
)
@with_options_of(EvaluationRequest)
def evaluate(asked: Asked, verbose: Verbose = False) -> None:
    """Errors of a trained model beside its references, and the report."""
    with one_line_errors():
        from flows.stages.evaluation import Measurement

        stage = Measurement(**asked)
    _show_report(carry_out(stage, verbose))


def _check_one_experiment(asked: Asked) -> None:
    """Reject a recipe beside an experiment: it would not be used."""
    if asked["experiment"] is not None and asked["recipe"] is not None:
        raise typer.BadParameter(
            f"--experiment and --recipe {asked['recipe']} are given; leave one out"
        )


def _show_dataset(published: PublishedVersion) -> None:
    print_line(f"dataset  {published.dataset}  {published.version}")


def _show_report(report: Report) -> None:
    print_line(f"run     {report.run}\nreport  {report.url}\n{report.verdict}")
