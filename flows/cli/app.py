"""Define the command line `courant`: the stages, trained models, and the groups of other commands.

Options of the stages are made of their requests. Heavy imports wait inside the commands, so that
`courant --help` answers at once.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column
from typer.core import TyperGroup

from courant.loopback import LOOPBACK
from courant.recipes import RECIPES, get_recipe
from courant.runs import record, summary
from courant.runs.directory import RunDirectory
from flows import request_models as asks
from flows import settings, terminal
from flows.cli.analysis import analysis_app
from flows.cli.datasets import dataset_app
from flows.cli.observing import observing_app
from flows.request_models import argument, option, with_options_of
from flows.settings import absolute
from flows.terminal import counted, print_line, print_table, progress_bar
from simgen import log_lines
from simgen.errors import InputError
from simgen.whole_file import local_path

Asked = dict[str, Any]
MAX_SHOWN = 500
"""Characters of one setting that are shown"""
Verbose = Annotated[
    bool, option("Log what cases and trainings do, and Prefect.", "--verbose", "-v")
]


class Commands(TyperGroup):
    """The commands, whose errors are one line each."""

    def invoke(self, ctx: Any) -> Any:
        with terminal.one_line_errors():
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
runs_app = typer.Typer(help="Trained models: list, show, compare, pack.", no_args_is_help=True)
recipes_app = typer.Typer(help="The training recipes: list them, show one.")


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
    terminal.start_logs()


@app.command(epilog="Example: courant run cylinder-flow --cases 8 --out demo-run")
@with_options_of(asks.MainJobRequest, "store", "runs", "report")
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
    outcome = execute_stage("MainJob", asked, verbose)
    if outcome.report:
        _print_report(outcome.report)
    elif outcome.run:
        print_line(f"run  {outcome.run}")
    elif outcome.dataset:
        print_line(f"dataset  {outcome.dataset.dataset}  {outcome.dataset.version}")


@app.command(epilog="Example: courant generate cylinder-flow --cases 32 --set end_time=200")
@with_options_of(asks.GenerationRequest, "design_parameters")
def generate(
    asked: Asked,
    family: Annotated[str, argument("Case family, such as cylinder-flow.")],
    verbose: Verbose = False,
) -> None:
    """Sample a design space, solve its cases with OpenFOAM and publish a dataset version."""
    published = execute_stage("Generation", {"family": family, **asked}, verbose)
    print_line(f"dataset  {published.dataset}  {published.version}")


@app.command(epilog="Example: courant train DATASET --recipe cylinder-flow-small")
@with_options_of(asks.TrainingRequest)
def train(asked: Asked, verbose: Verbose = False) -> None:
    """Fit a surrogate to a dataset version."""
    print_line(f"run  {execute_stage('Training', asked, verbose)}")


@app.command(epilog="Example: courant sweep DATASET --space anchors --trials 12")
@with_options_of(asks.SweepRequest)
def sweep(asked: Asked, verbose: Verbose = False) -> None:
    """Try settings around a recipe on Ray Tune: a table, figures, the best configuration."""
    swept = execute_stage("Trials", asked, verbose)
    print_line(f"page  {swept.page}\nbest  {swept.best}\n{swept.verdict}")


@app.command(epilog="Example: courant benchmark DATASET --models courant,upt --budget 10min")
@with_options_of(asks.BenchmarkRequest)
def benchmark(asked: Asked, verbose: Verbose = False) -> None:
    """Compare models at an equal budget; docs/benchmark.md explains every number."""
    finished = execute_stage("ModelBenchmark", asked, verbose)
    print_line(f"page  {finished.page}\n{finished.verdict}")


@app.command(epilog="Example: courant evaluate RUN --split test")
@with_options_of(asks.EvaluationRequest)
def evaluate(asked: Asked, verbose: Verbose = False) -> None:
    """Errors of a trained model beside its references, and the report."""
    _print_report(execute_stage("Measurement", asked, verbose))


def execute_stage(name: str, asked: Asked, verbose: bool) -> Any:
    """Return the result of a stage, executed unless done; in its flow with PREFECT_API_URL."""
    from flows import stages

    stage = getattr(stages, name)(**asked)
    if verbose and not log_lines.is_json():
        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
        for name in ("simgen", "courant", "flows.case"):
            logging.getLogger(name).setLevel(logging.INFO)
    done = stage.done()
    if done is not None:
        if line := getattr(done, "line", str)():
            terminal.announce(line)
        return done
    stage.check()
    url = settings.prefect_url()
    if url is None:
        return stage.execute()
    settings.check_prefect(url)
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    # Prefect would repeat each error with its traceback.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO" if verbose else "CRITICAL")
    with terminal.errors.status("starting"):
        from flows.prefect_flows import in_flow
    return in_flow(stage)


def _print_report(report: Any) -> None:
    print_line(f"run     {report.run}\nreport  {report.url}\n{report.verdict}")


@runs_app.command("ls", epilog="Example: courant runs ls s3://bucket/runs")
def runs_ls(
    runs: Annotated[
        str | None, argument(f"Folder or s3://bucket/prefix; default: {settings.RUNS}.")
    ] = None,
) -> None:
    """List the runs of a place: dataset version, epochs, errors, date, training time."""
    where = absolute(runs or settings.load_settings().runs)
    found, unreadable = summary.list_runs(where)
    for damaged in unreadable:
        terminal.print_error(str(damaged), "unreadable")
    if not found:
        raise InputError(f"no run in {where}; train one with: courant train DATASET --runs {where}")
    facts = {
        "run": "run",
        "dataset": "dataset",
        "epochs": "epochs",
        "validation NMAE": "NMAE",
        "test NMAE": "test",
        "started": "started",
        "training time": "trained",
    }
    rows = []
    for run in found:
        dataset = f"{run.dataset.rsplit('/', 1)[-1]} {run.version}"
        cells = {**_facts(run), "run": run.name, "dataset": dataset}
        rows.append([cells[name] for name in facts])
    first, *others = facts.values()
    print_table([Column(first, overflow="fold", min_width=16), *others], rows)


@runs_app.command("show", epilog="Example: courant runs show RUN")
def runs_show(run: asks.RunUrl) -> None:
    """Show one run in full: its experiment, dataset version, course and errors."""
    found = summary.read_run(RunDirectory(absolute(run)))
    value = Column("value", overflow="fold")
    print_table((Column("", style="bold"), value), _facts(found).items())
    flat = summary.flatten(found.settings).items()
    print_table(("setting", value), ((key, _text(value)) for key, value in flat))


@runs_app.command("compare", epilog="Example: courant runs compare RUN OTHER-RUN")
def runs_compare(runs: asks.RunUrls) -> None:
    """Compare runs: the settings in which they differ, and their results."""
    if len(runs) < 2:
        raise InputError("one run has nothing to be compared with; name two or more")
    found = [summary.read_run(RunDirectory(absolute(run))) for run in runs]
    differing = summary.differing_settings(found)
    rows = [[key, *map(_text, values)] for key, values in differing.items()]
    facts = [_facts(run) for run in found]
    rows += [[name, *(fact[name] for fact in facts)] for name in facts[0]]
    print_table(("", *[Column(escape(run.name), overflow="fold") for run in found]), rows)


@runs_app.command("export", epilog="Example: courant runs export RUN --out m.zip")
def runs_export(
    run: asks.RunUrl,
    out: Annotated[str | None, option("File or s3://bucket/key; default: RUN.zip.")] = None,
) -> None:
    """Pack a run into one file that is a run for all commands, without its dataset."""
    source = RunDirectory(absolute(run))
    name = source.url.rsplit("/", 1)[-1].removesuffix(".zip")
    print_line(f"packed  {summary.pack_run(source, absolute(out or f'{name}.zip'))}")


def _facts(run: summary.RunSummary) -> dict[str, str]:
    """Return what is known of a run, as text by name."""
    epochs = f"{run.epoch}/{run.epochs}"
    minutes = run.train_s / 60
    commit, _, changed = (run.revision or "").partition("-")
    return {
        "run": run.url,
        "dataset": f"{run.dataset} {run.version}",
        "snapshot": run.snapshot_id,
        "parameters": f"{run.num_parameters:,}" if run.num_parameters else "",
        "epochs": epochs if run.state == "finished" else f"{epochs} {run.state}",
        "validation NMAE": f"{run.validation_nmae:.3f}" if run.validation_nmae is not None else "",
        "test NMAE": f"{run.test_nmae:.3f}" if run.test_nmae is not None else "",
        "started": run.started[:10] if run.started else "",
        "training time": f"{minutes:.0f} min" if minutes >= 1 else f"{run.train_s:.0f} s",
        # A star marks local changes.
        "revision": f"{commit[:8]}{'*' if changed else ''}",
        "best epoch": _text(run.best_epoch),
        "samples/s": f"{run.samples / run.train_s:.0f}" if run.train_s else "",
    }


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))[:MAX_SHOWN]
    return "" if value is None else str(value)[:MAX_SHOWN]


@recipes_app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """List the training recipes, with what they are for; `show` prints one."""
    if context.invoked_subcommand:
        return
    print_table(("recipe", ""), ((name, recipe.about) for name, recipe in RECIPES.items()))


@recipes_app.command("show", epilog="Example: courant recipes show cylinder-flow-small > mine.json")
def recipes_show(name: Annotated[str, argument("A recipe, such as cylinder-flow-small.")]) -> None:
    """Print a recipe as JSON: change it, and train it with --experiment FILE."""
    typer.echo(get_recipe(name).model_dump_json(indent=2))


@app.command(epilog="Example: courant report RUN --out report")
def report(
    run: asks.RunUrl,
    out: Annotated[str, option("Folder or s3://bucket/prefix.")] = "report",
    dataset: asks.MovedDataset = None,
) -> None:
    """Write the report of an evaluated run again, without Prefect."""
    from courant.report.report import write_report

    settings.check_folder(absolute(out))
    print_line(f"report  {write_report(absolute(run), absolute(out), dataset)}")


@app.command(epilog="Example: courant reports courant-data/reports")
def reports(
    folder: Annotated[str | None, argument("Folder of reports; default: COURANT_REPORTS.")] = None,
) -> None:
    """Write the index page of a folder of reports again, as after one was removed."""
    from courant.report.page import write_index

    print_line(f"index  {write_index(absolute(folder or settings.load_settings().reports))}")


@app.command(
    epilog=(
        "Example: courant predict RUN b0159c13a91f --start 100 --out prediction.npz, or courant"
        " predict RUN case.vtu --parameters radius=2,center_x=0,center_y=1 --out prediction.vtu"
    )
)
def predict(
    run: asks.RunUrl,
    out: Annotated[Path, option("File: .npz, .pvd (all steps), or .vtu (the last step).")],
    case: Annotated[str | None, argument("Id of a case, or a mesh file such as case.vtu.")] = None,
    design: Annotated[str | None, option("A design to mesh: NAME=VALUE,...")] = None,
    from_solver: Annotated[
        float | None, option("With --design: seconds that the solver runs before.", min=0.0)
    ] = None,
    verify: Annotated[bool, option("With --design: solve it as well.", "--verify")] = False,
    start: Annotated[
        float | None, option("Seconds of the initial snapshot; 100 by default.", min=0.0)
    ] = None,
    steps: Annotated[
        int | None, option("Rollout steps; 10 by default.", min=1, max=100_000)
    ] = None,
    parameters: Annotated[
        str | None, option("With a mesh file: its design, NAME=VALUE,...")
    ] = None,
    boundary: Annotated[Path | None, option("With a mesh file, steady: its boundary.")] = None,
    dataset: asks.MovedDataset = None,
) -> None:
    """Predict a stored case, from the state on a mesh of your own, or a design never solved.

    A transient model starts from a case's snapshot at --start, or a file's arrays that are named
    like its fields; a steady one from a case's geometry and boundary conditions, or those of the
    faces in --boundary, with the array `patch`.
    """
    if (case is None) == (design is None):
        raise InputError("name a case or a mesh file, or give a --design NAME=VALUE,...")
    is_file = case is not None and "." in Path(case).name
    kind = "a design" if design else "a mesh file" if is_file else "a stored case"
    options = {
        "--start": (start, "a stored case"),
        "--dataset": (dataset, "a stored case"),
        "--parameters": (parameters, "a mesh file"),
        "--boundary": (boundary, "a mesh file"),
        "--from-solver": (from_solver, "a design"),
        "--verify": (verify or None, "a design"),
    }
    for named, (given, needed) in options.items():
        if given is not None and kind != needed:
            raise InputError(f"{named} belongs to {needed}, not to {kind}; leave it out")
    from flows.cli.prediction_files import predict_file, predict_to_files, write_prediction

    out, url = local_path(str(out)), absolute(run)
    if is_file:
        asked = asks.parse_settings(parameters.split(",") if parameters else None, "--parameters")
        faces = None if boundary is None else local_path(str(boundary))
        lines = predict_file(url, local_path(str(case)), faces, asked, steps, out)
    elif design is not None:
        asked = asks.parse_settings(design.split(","), "--design") or {}
        predict_to_files(url, asked, out, steps=steps, from_solver_s=from_solver, verify=verify)
        return
    else:
        lines = write_prediction(url, str(case), start, steps, out, dataset)
    print_line(lines)


@app.command(epilog="Example: courant serve RUN --port 8000")
def serve(
    run: asks.RunUrl,
    host: asks.Host = LOOPBACK[0],
    port: asks.Port = 8000,
    max_points: Annotated[int, option("Points of one request, queries included.", min=1)] = 200_000,
    max_steps: Annotated[int, option("Rollout steps of one request.", min=1)] = 200,
    max_point_steps: Annotated[int, option("Points times steps.", min=1)] = 2_000_000,
    max_megabytes: Annotated[float, option("Size of one request.", min=0.001, max=10000)] = 64.0,
    allow_host: asks.AllowedHosts = None,
) -> None:
    """Answer predictions over HTTP until Ctrl-C, here or with RAY_ADDRESS on a cluster."""
    record.check_trained(RunDirectory(absolute(run)))  # importing the server takes seconds
    from courant.serving.predictions import Limits
    from flows.serving import serve_model

    limits = Limits(
        max_points=max_points,
        max_steps=max_steps,
        max_megabytes=max_megabytes,
        max_point_steps=max_point_steps,
    )
    serve_model(absolute(run), host, port, limits, names=allow_host or ())


@app.command(epilog="Example: courant explore pipe-run/runs/branched-pipe-small-0123456789")
def explore(
    run: asks.RunUrl,
    host: asks.Host = LOOPBACK[0],
    port: asks.Port = 8000,
    dataset: asks.MovedDataset = None,
    allow_host: asks.AllowedHosts = None,
) -> None:
    """Explore a design space in the browser; a steady model needs OpenFOAM's mesh tools here."""
    record.check_trained(RunDirectory(absolute(run)))  # importing the server takes seconds
    from flows.serving import explore_model

    explore_model(absolute(run), host, port, dataset, allow_host or ())


@app.command(epilog="Example: courant calibrate RUN")
def calibrate(
    run: asks.RunUrl,
    grid: Annotated[str | None, option("Dataset of designs on meshes of several sizes.")] = None,
    dataset: asks.MovedDataset = None,
) -> None:
    """Predict the calibration cases of the run's dataset, for bands of error around predictions.

    Cases are added by `courant generate ... --split calibration`. With --grid the mesh's own error
    is estimated, too. docs/bands.md has the whole.
    """
    from courant.evaluation.calibrate import calibrate as calibrate_run

    with progress_bar("calibrating") as progress:
        bands = calibrate_run(absolute(run), dataset, absolute(grid) if grid else None, progress)
    names = "".join(f", {_plain(name)}" for name in bands.quantities)
    cases = counted(len(bands.cases), "calibration case")
    print_line(f"bands  {cases} of {bands.version}: the fields{names}")
    if (regressed := bands.regressed) is not None:
        named = ", ".join(map(_plain, regressed.quantities))
        designs = counted(len(regressed.designs), "training design")
        print_line(f"by regression on the parameters of {designs}: {named}")
    for name, error in bands.grid.items():
        ends = f"{error.low:+.1%} to {error.high:+.1%}"
        how = f"order {error.order:.1f}, {error.num_designs} designs"
        print_line(f"mesh   {_plain(name)} on a fine mesh: {ends} ({how})")
    for name, reason in bands.no_grid.items():
        print_line(f"mesh   {_plain(name)}: {reason}")


@app.command(epilog="Example: courant coverage RUN --split test")
def coverage(
    run: asks.RunUrl,
    split: asks.Split = "test",
    level: Annotated[float, option("Probability of the bands.", min=0.5, max=0.99)] = 0.9,
    inside: Annotated[str | None, option("Score cases outside of NAME=LOW:HIGH,... apart.")] = None,
    dataset: asks.MovedDataset = None,
) -> None:
    """Compare the bands of a calibrated run with solved cases: how often do they hold?"""
    from courant.evaluation.coverage import measure_coverage

    box = {} if inside is None else asks.parse_box(inside.split(","))
    with progress_bar("predicting") as progress:
        found = measure_coverage(absolute(run), split, dataset, level, progress, box)
    rows = []
    for name, score in found.bands.items():
        shares = ((score.worst_eighth, 0), (score.error, 1), (score.null_error, 1))
        worst, *errors = ("" if each is None else f"{each:.{digits}%}" for each, digits in shares)
        holds, width = f"{score.coverage:.1%}", f"{score.width:.2f}"
        rows.append((_plain(name), score.num_cases, holds, worst, width, *errors))
    columns = ("cases", "holds", "worst eighth", "width", "error", "of the null")
    print_table((f"{found.level:.0%} band of", *columns), rows)
    rows = []
    for name, out in found.outside.items():
        refused = (out.by_ranges, out.by_latents, out.by_either)
        parts = (f"{each / out.exceeding:.0%}" if out.exceeding else "" for each in refused)
        rows.append((_plain(name), out.num_cases, out.exceeding, *parts))
    refusals = ("refused by ranges", "by latents", "by either")
    print_table(("outside of the box", "cases", "error exceeds band", *refusals), rows)
    if found.without:
        print_line(
            f"no band for {counted(len(found.without), 'case')} of {found.num_cases}:"
            f" {next(iter(found.without.values()))}"
        )


def _plain(name: str) -> str:
    return name.replace("_", " ")


app.add_typer(dataset_app, name="dataset")
app.add_typer(runs_app, name="runs")
app.add_typer(recipes_app, name="recipes")
app.add_typer(observing_app)
app.add_typer(analysis_app, name="analyse")
