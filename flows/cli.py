"""The command line, `courant`: the flows run in this process, datasets listed, models asked.

Heavy imports wait inside the commands, so that `courant --help` answers at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from flows.dataset_cli import DatasetUrl, Store, Version, dataset_app
from flows.prefect_api import prefect_api
from flows.runs_cli import runs_app
from flows.settings import absolute, embedded_defaults, load_settings
from flows.terminal import one_line_errors, screen
from simgen.errors import InputError

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


class SamplerChoice(StrEnum):
    """Samplers, as typer wants them."""

    sobol = "sobol"
    latin_hypercube = "latin-hypercube"
    uniform = "uniform"
    grid = "grid"


class SplitChoice(StrEnum):
    """Splits, as typer wants them."""

    train = "train"
    validation = "validation"
    test = "test"


class StageChoice(StrEnum):
    """Where the main job may end, as typer wants them."""

    dataset = "dataset"
    run = "run"
    report = "report"


Family = Annotated[str, typer.Argument(help="Case family, such as cylinder-flow.")]
Cases = Annotated[int, typer.Option(min=1, help="Number of design points (grid: at least this many).")]
SamplerOption = Annotated[SamplerChoice, typer.Option(help="How the design space is sampled.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the sampler.")]
Preset = Annotated[
    str, typer.Option(help="Solver settings of the family: trial (500 s) or paper (1000 s) for cylinder-flow.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Replace one solver setting, such as end_time=120 (s) or mesh_size=0.5 (m).")
]  # fmt: skip
Designs = Annotated[Path | None, typer.Option(help="CSV file of design parameters to solve, instead of sampling.")]
Runs = Annotated[
    str | None, typer.Option(help="Where trained models live: a folder or s3://bucket/prefix. [env: COURANT_RUNS]")
]
TimeLimit = Annotated[
    float | None, typer.Option(min=1.0, help="Wall time that one case's solver may take, in seconds.")
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Solve cases again that failed before.")]
Cores = Annotated[
    int, typer.Option(min=1, help="Cores of each case, on one machine; above 1 its solver runs under MPI.")
]
ArchiveRaw = Annotated[
    bool, typer.Option("--archive-raw", help="Keep the OpenFOAM directories of accepted cases too, in STORE/raw/.")
]
Recipe = Annotated[
    str | None,
    typer.Option(
        help="Training recipe; `courant recipes` lists them. Default: FAMILY-demo for `run`, else FAMILY-small."
    ),
]
Trials = Annotated[
    int | None, typer.Option(min=1, help="Trials of the sweep; default: each setting of the space once.")
]
ExperimentFile = Annotated[Path | None, typer.Option(help="A JSON file with an experiment, instead of a recipe.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Prefect's own log.")]
RunUrl = Annotated[str, typer.Argument(help="Run directory of a trained model: a folder or s3://bucket/prefix.")]


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
        _check_dataset(dataset, version)
    elif not trained:
        if family is None:
            raise typer.BadParameter("name a family to generate cases of, or give --dataset or --run")
        _check_request(family, cases, sampler, seed, preset, settings, designs)
    with _flows(verbose):
        from flows.generate_and_train import generate_and_train

        flow: Any = generate_and_train
        asked = {"family": family} if family else {}
        outcome = flow(
            **asked, cases=cases, sampler=sampler.value, seed=seed, preset=preset, settings=_settings(settings),
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
    _check_request(family, cases, sampler, seed, preset, settings, designs)
    with _flows(verbose):
        from flows import generate_dataset

        flow: Any = generate_dataset.generate
        published = flow(
            family=family, cases=cases, sampler=sampler.value, seed=seed, preset=preset, settings=_settings(settings),
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
    _check_dataset(dataset, version)
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
    _check_dataset(dataset, version)
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


@app.command(epilog="Example: courant report demo-run/runs/cylinder-flow-demo-0123456789 --out report")
def report(run: RunUrl, out: Annotated[str, typer.Option(help="Folder or s3://bucket/prefix.")] = "report") -> None:
    """Write the report of an evaluated run again, without Prefect."""
    with one_line_errors():
        from courant.evaluation.report import write_report

        screen.print(f"report  {write_report(absolute(run), absolute(out))}", highlight=False, soft_wrap=True)


@app.command(
    epilog="Example: courant predict RUN 00fcb869be4c --start 100 --out prediction.npz, or "
    "courant predict RUN case.vtu --parameters radius=2,center_x=0,center_y=1 --out prediction.vtu"
)
def predict(
    run: RunUrl,
    case: Annotated[
        str,
        typer.Argument(
            help="Id of a case of the dataset that the model was trained on, or a mesh file such as case.vtu, whose arrays "
            "named like the model's fields are the initial state."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write: .npz (all steps) or .vtu (the last step, for ParaView).")],
    start: Annotated[
        float | None, typer.Option(min=0.0, help="Transient: time of the initial snapshot, in seconds; 100 by default.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Transient: rollout steps; 10 by default.")] = None,
    parameters: Annotated[
        str | None,
        typer.Option(metavar="NAME=VALUE,...", help="With a mesh file: the design parameters of its geometry."),
    ] = None,
    boundary: Annotated[
        Path | None,
        typer.Option(
            help="With a mesh file and a steady model: the faces of its boundary, with `patch` and what is prescribed."
        ),
    ] = None,
) -> None:
    """Predict a stored case, or from the state on a mesh of your own.

    A transient model starts from a case's snapshot at --start or a file's arrays, a steady one from a case's geometry and
    boundary conditions.
    """
    with one_line_errors():
        if "." in Path(case).name:
            from flows.foreign_prediction import predict_file

            if start is not None:
                raise InputError("--start belongs to a stored case; a mesh file holds one state")
            given = _settings(parameters.split(",") if parameters else None, "--parameters")
            line = predict_file(absolute(run), Path(case), boundary, given, steps, out)
        else:
            from flows.prediction import write_prediction

            line = write_prediction(absolute(run), case, start, steps, out)
        screen.print(line, highlight=False, soft_wrap=True)


@app.command(epilog="Example: courant serve demo-run/runs/cylinder-flow-demo-0123456789 --port 8000")
def serve(
    run: RunUrl,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    max_points: Annotated[int, typer.Option(min=1, help="Points of one request, queries included.")] = 200_000,
    max_steps: Annotated[int, typer.Option(min=1, help="Rollout steps of one request.")] = 200,
    max_megabytes: Annotated[float, typer.Option(min=0.001, help="Size of one request.")] = 64.0,
) -> None:
    """Answer predictions over HTTP through Ray Serve, until Ctrl-C."""
    with one_line_errors():
        embedded_defaults()
        from courant.serving import Limits
        from flows.serve_model import serve_model

        limits = Limits(max_points=max_points, max_steps=max_steps, max_megabytes=max_megabytes)
        serve_model(absolute(run), host, port, limits)


@app.command()
def recipes() -> None:
    """The training recipes, with what they are for."""
    from courant.recipes import RECIPES

    table = Table("recipe", "", box=None, header_style="bold")
    for name, recipe in RECIPES.items():
        table.add_row(name, (recipe.__doc__ or "").strip().splitlines()[0])
    screen.print(table)


def _check_request(
    family: str,
    cases: int,
    sampler: SamplerChoice,
    seed: int,
    preset: str,
    settings: list[str] | None,
    designs: Path | None,
) -> None:
    """Refuse a bad request before anything is started."""
    with one_line_errors():
        from simgen.cases import get_family

        of = get_family(family)
        of.settings(preset, _settings(settings))
        if designs:
            of.design_space.read_csv(designs)
        else:
            of.design_space.sample(cases, sampler.value, seed)  # type: ignore[arg-type]


def _check_dataset(dataset: str, version: str | None) -> None:
    """Refuse a dataset or version that does not exist before anything is started."""
    with one_line_errors():
        import simgen

        simgen.open_dataset(absolute(dataset), version)


def _settings(changes: list[str] | None, option: str = "--set") -> dict[str, float] | None:
    """`name=value` options as a mapping."""
    settings = {}
    for change in changes or []:
        name, _, value = change.partition("=")
        try:
            settings[name.strip()] = float(value)
        except ValueError:
            raise typer.BadParameter(f"'{change}' is not NAME=VALUE with a number", param_hint=option) from None
    return settings or None


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


def main() -> None:
    """Entry point of the `courant` command."""
    app()


if __name__ == "__main__":
    main()
