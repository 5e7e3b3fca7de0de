"""Define the command line `courant`: stages, trained models and their analysis, other groups.

Options of the stages are made of their requests. Heavy imports wait inside the commands, so that
`courant --help` answers at once.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Column
from typer.core import TyperGroup

import courant
import simgen
from courant.loopback import LOOPBACK
from courant.recipes import RECIPES, get_recipe
from courant.runs import record, summary
from courant.runs.directory import RunDirectory
from flows import request_models as asks
from flows import settings, terminal
from flows.cli.datasets import dataset_app
from flows.cli.observing import observing_app
from flows.request_models import argument, option, with_options_of
from flows.settings import absolute, beside
from flows.terminal import counted, print_line, print_table, progress_bar
from simgen import log_lines
from simgen.errors import InputError
from simgen.log_lines import duration_text
from simgen.whole_file import local_path

Asked = dict[str, Any]
MAX_SHOWN = 500  # Characters of one setting that are shown
Verbose = Annotated[bool, option("Log cases, trainings and Prefect.", "--verbose", "-v")]


class Commands(TyperGroup):
    """The commands, whose errors are one line each."""

    def make_context(self, *given: Any, **named: Any) -> Any:
        with terminal.one_line_errors():
            return super().make_context(*given, **named)

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


def template_name(case: str) -> str:
    """Return the name of a template's family: that of the case's folder, with dashes."""
    words = re.findall(r"[a-z0-9]+", Path(case).resolve().name.lower())
    return "-".join(words) or "template"


#: Below the table of options, which cuts long words.
OF_A_TEMPLATE = (
    " --template my-case --vary 'speed=0/U:boundaryField/inlet/value[0]=5:15:m/s'"
    " --quantity 'pressure_drop=average(p,inlet)-average(p,outlet):m2/s2'"
)


@app.command(
    epilog="Example: courant run cylinder-flow --cases 8 --out demo-run\n\ncourant run my-step"
    + OF_A_TEMPLATE
)
@with_options_of(asks.MainJobRequest, "store", "runs", "report")
def run(
    asked: Asked,
    family: Annotated[str | None, argument("Case family, such as cylinder-flow.")] = None,
    out: Annotated[str | None, option("Folder for store/, runs/ and report/.")] = None,
    verbose: Verbose = False,
) -> None:
    """Sample, solve, publish, train, evaluate and report; started again, it resumes.

    Stages can be skipped: `--dataset` and `--run` take what is there, `--until` ends earlier.
    """
    if family is None and asked["template"] is not None:
        family = template_name(asked["template"])
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


@app.command(
    epilog="Example: courant generate cylinder-flow --cases 32 --set end_time=200\n\n"
    "courant generate my-step" + OF_A_TEMPLATE
)
@with_options_of(asks.GenerationRequest, "design_parameters")
def generate(
    asked: Asked,
    family: Annotated[str | None, argument("Case family, such as cylinder-flow.")] = None,
    verbose: Verbose = False,
) -> None:
    """Sample a design space, solve its cases with OpenFOAM and publish a dataset version."""
    if family is None and asked["template"] is None:
        raise typer.BadParameter("name a family, or a case whose numbers vary: --template CASE")
    family = family or template_name(asked["template"])
    published = execute_stage("Generation", {"family": family, **asked}, verbose)
    print_line(f"dataset  {published.dataset}  {published.version}")


@app.command(epilog="Example: courant train DATASET --recipe cylinder-flow-small")
@with_options_of(asks.TrainingRequest)
def train(asked: Asked, verbose: Verbose = False) -> None:
    """Fit a surrogate to a dataset version."""
    print_line(f"run  {(url := execute_stage('Training', asked, verbose))}")
    terminal.announce(f"next: courant evaluate {shlex.quote(url)}")


@app.command(epilog="Example: courant sweep DATASET --space anchors --trials 12")
@with_options_of(asks.SweepRequest)
def sweep(asked: Asked, verbose: Verbose = False) -> None:
    """Try settings around a recipe on Ray Tune: a table, figures, the best configuration."""
    swept = execute_stage("Trials", asked, verbose)
    print_line(f"page  {swept.page}\n{swept.verdict}")


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


@app.command(epilog="Example: courant optimise RUN --maximise efficiency --subject-to 'head>=60'")
@with_options_of(asks.OptimisationRequest)
def optimise(asked: Asked, verbose: Verbose = False) -> None:
    """Find the best designs by a run's quantities, and prove each by the solver.

    Needs BoTorch (the extra `optimise`). docs/optimisation.md has the whole.
    """
    found = execute_stage("Optimisation", asked, verbose)
    print_line(f"page  {found.page}\n{found.verdict}")


def execute_stage(name: str, asked: Asked, verbose: bool) -> Any:
    """Return the result of a stage, executed unless done; in its flow with PREFECT_API_URL."""
    from flows import stages

    stage = getattr(stages, name)(**asked)
    if verbose and not log_lines.is_json():
        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
        for name in ("simgen", "courant", "flows.case"):
            logging.getLogger(name).setLevel(logging.INFO)
    if (done := stages.finished(stage)) is not None:
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
    from courant.evaluation.record import read_evaluation
    from courant.report.page import count, percent, plain

    evaluation = read_evaluation(RunDirectory(report.run), report.split)
    if evaluation and (scores := evaluation.quantities):
        rows = [(plain(of), each.source, percent(each.error)) for of, each in scores.items()]
        cases = count(len(evaluation.cases), f"{evaluation.split} case")
        print_table(("quantity", "answered by", f"error on {cases}"), rows)
    print_line(f"run     {report.run}\nreport  {report.url}\n{report.verdict}")


@runs_app.command("ls", epilog="Example: courant runs ls s3://bucket/runs")
def runs_ls(
    runs: Annotated[str | None, argument(f"Folder or URL; default: {settings.RUNS}.")] = None,
) -> None:
    """List the runs of a place: dataset version, epochs, errors, date, training time."""
    where = absolute(runs or settings.load_settings().runs or settings.RUNS)
    found, unreadable = summary.list_runs(where)
    for damaged in unreadable:
        terminal.print_error(str(damaged), "unreadable")
    if not found:
        raise InputError(f"no run in {where}; train one with: courant train DATASET --runs {where}")
    facts = {
        "run": "run",
        "dataset": "version",
        "epochs": "epochs",
        "validation NMAE": "NMAE",
        "test NMAE": "test",
        "started": "started",
        "training time": "took",
    }
    cells = [{**_facts(run), "run": run.name, "dataset": run.version} for run in found]
    print_table(facts.values(), ([of[name] for name in facts] for of in cells))


@runs_app.command("show", epilog="Example: courant runs show RUN")
def runs_show(run: asks.RunUrl) -> None:
    """Show one run in full: its experiment, dataset version, course and errors."""
    found = summary.read_run(RunDirectory(run))
    value = Column("value")
    print_table((Column("", style="bold"), value), _facts(found).items())
    flat = summary.flatten(found.settings).items()
    print_table(("setting", value), ((key, _text(value)) for key, value in flat))


@runs_app.command("compare", epilog="Example: courant runs compare RUN OTHER-RUN")
def runs_compare(runs: asks.RunUrls) -> None:
    """Compare runs: the settings in which they differ, and their results."""
    if len(runs) < 2:
        raise InputError("one run has nothing to be compared with; name two or more")
    found = [summary.read_run(RunDirectory(run)) for run in runs]
    differing = summary.differing_settings(found)
    rows = [[key, *map(_text, values)] for key, values in differing.items()]
    facts = [_facts(run) for run in found]
    rows += [[name, *(fact[name] for fact in facts)] for name in facts[0]]
    print_table(("", *[Column(escape(run.name)) for run in found]), rows)


@runs_app.command("export", epilog="Example: courant runs export RUN --out m.zip")
def runs_export(
    run: asks.RunUrl,
    out: Annotated[str | None, option("File or s3://bucket/key; default: RUN.zip.")] = None,
) -> None:
    """Pack a run into one file that is a run for all commands, without its dataset."""
    source = RunDirectory(run)
    name = source.url.rsplit("/", 1)[-1].removesuffix(".zip")
    print_line(f"packed  {summary.pack_run(source, absolute(out or f'{name}.zip'))}")


def _facts(run: summary.RunSummary) -> dict[str, str]:
    """Return what is known of a run, as text by name."""
    epochs = f"{run.epoch}/{run.epochs}"
    commit, _, changed = (run.revision or "").partition("-")
    return {
        "run": run.url,
        "dataset": f"{run.dataset} {run.version}",
        "snapshot": run.snapshot_id,
        "parameters": f"{run.num_parameters:,}" if run.num_parameters else "",
        "epochs": epochs if run.state == "finished" else f"{epochs} {run.state}",
        "validation NMAE": f"{run.validation_nmae:.3f}" if run.validation_nmae is not None else "",
        "test NMAE": ""
        if run.test_nmae is None
        else f"{run.test_nmae:.3f}{' (1 case)' if run.test_cases == 1 else ''}",
        "started": run.started[:10] if run.started else "",
        "training time": duration_text(run.train_s),
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
    print_table(("recipe", Column("")), ((name, recipe.about) for name, recipe in RECIPES.items()))


@recipes_app.command("show", epilog="Example: courant recipes show cylinder-flow-small > mine.json")
def recipes_show(
    name: Annotated[str | None, argument("A recipe, such as cylinder-flow-small.")] = None,
    dataset: Annotated[
        str | None, option("The experiment that `courant train` chooses for a dataset.", "--for")
    ] = None,
) -> None:
    """Print a recipe as JSON: change it, and train it with --experiment FILE."""
    if dataset is not None:
        from flows.stages import open_training

        chosen, _ = open_training(asks.TrainingRequest(dataset, recipe=name))
    elif name is not None:
        chosen = get_recipe(name)
    else:
        raise InputError("give the name of a recipe (courant recipes), or --for DATASET")
    typer.echo(chosen.model_dump_json(indent=2))


@app.command(epilog="Example: courant report RUN --out report")
def report(
    run: asks.RunUrl, out: asks.ReportFolder = None, dataset: asks.MovedDataset = None
) -> None:
    """Write the report of an evaluated run again, without Prefect."""
    from courant.report.report import write_report
    from flows.stages import report_folder

    folder = report_folder(run, out)
    settings.check_folder(folder)
    print_line(f"report  {write_report(run, folder, dataset)}")


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
    from_solver: Annotated[float | None, option("A design's seconds in the solver.", min=0)] = None,
    verify: Annotated[bool, option("With --design: solve it as well.", "--verify")] = False,
    reference: Annotated[
        str | None, option("With --design: whose fields: 'POD + GP', 'POD + RBF', or none.")
    ] = None,
    start: Annotated[float | None, option("First snapshot, s; default: 100.", min=0.0)] = None,
    steps: Annotated[int | None, option("Rollout steps; default: 10.", min=1, max=100_000)] = None,
    parameters: Annotated[str | None, option("A mesh file's design: NAME=VALUE,...")] = None,
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
        "--parameters": (parameters, "a mesh file"),
        "--boundary": (boundary, "a mesh file"),
        "--from-solver": (from_solver, "a design"),
        "--verify": (verify or None, "a design"),
        "--reference": (reference, "a design"),
        "--dataset": (dataset, "a stored case or a design"),
    }
    for named, (given, needed) in options.items():
        if given is not None and kind not in needed:
            raise InputError(f"{named} belongs to {needed}, not to {kind}; leave it out")
    if design is not None:
        record.check_trained(RunDirectory(run))
    from courant.report.verdict import known_verdict
    from flows.cli.prediction_files import predict_file, predict_to_files, write_prediction

    out, by = local_path(str(out)), ""
    said = str((verdict := known_verdict(RunDirectory(run))) or "")
    if is_file:
        asked = asks.parse_settings(parameters.split(",") if parameters else None, "--parameters")
        faces = None if boundary is None else local_path(str(boundary))
        print_line(predict_file(run, local_path(str(case)), faces, asked or None, steps, out))
    elif design is not None:
        units = record.read_dataset_record(RunDirectory(run))["parameters"]
        form = ", ".join(f"{of['name']} {of['unit'] and 'in'} {of['unit']}".strip() for of in units)
        form = f"NAME=VALUE with a bare number: {form}"
        asked = asks.parse_settings(design.split(","), "--design", form=form)
        by_whom = dataset, reference, said
        by = predict_to_files(run, asked, out, steps, from_solver, verify, *by_whom)
    else:
        print_line(write_prediction(run, str(case), start, steps, out, dataset, said))
    if verdict:
        better = f"{verdict.given or 'the network'} is better"
        better += ", which predicts any --design that has a mesh" if design is None else ""
        word = verdict.word if by == verdict.given else better
        why = f"courant evaluate {shlex.quote(run)} says why"
        print_line(f"fields of {by or 'the network'}: {word} ({why})")


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
    record.check_trained(RunDirectory(run))  # importing the server takes seconds
    from courant.serving.predictions import Limits
    from flows.serving import serve_model

    limits = Limits(
        max_points=max_points,
        max_steps=max_steps,
        max_megabytes=max_megabytes,
        max_point_steps=max_point_steps,
    )
    serve_model(run, host, port, limits, names=allow_host or ())


@app.command(epilog="Example: courant explore pipe-run/runs")
def explore(
    run: asks.RunUrl,
    host: asks.Host = LOOPBACK[0],
    port: asks.Port = 8000,
    dataset: asks.MovedDataset = None,
    allow_host: asks.AllowedHosts = None,
) -> None:
    """Explore a design space in the browser; a steady model needs OpenFOAM's mesh tools here."""
    record.check_trained(RunDirectory(run))  # importing the server takes seconds
    from flows.serving import explore_model

    explore_model(run, host, port, dataset, allow_host or ())


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
    from courant.report.page import plain

    with progress_bar("calibrating") as progress:
        bands = calibrate_run(run, dataset, absolute(grid) if grid else None, progress)
    names = "".join(f", {plain(name)}" for name in bands.solved)
    cases = counted(len(bands.cases), "calibration case")
    print_line(f"bands  {cases} of {bands.version}: the fields{names}")
    for name, error in bands.grid.items():
        ends = f"{error.low:+.1%} to {error.high:+.1%}"
        how = f"order {error.order:.1f}, {error.num_designs} designs"
        print_line(f"mesh   {plain(name)} on a fine mesh: {ends} ({how})")
    for name, reason in bands.no_grid.items():
        print_line(f"mesh   {plain(name)}: {reason}")


@app.command(epilog="Example: courant coverage RUN --split test")
def coverage(
    run: asks.RunUrl,
    split: asks.Split = "test",
    level: Annotated[float, option("Probability of the bands.", min=0.5, max=0.99)] = 0.9,
    dataset: asks.MovedDataset = None,
) -> None:
    """Compare bands with solved cases: how often do they hold?"""
    from courant.evaluation.coverage import measure_coverage
    from courant.report.page import plain

    with progress_bar("predicting") as progress:
        found = measure_coverage(run, split, dataset, level, progress)
    rows = []
    for name, score in found.bands.items():
        shares = ((score.worst_eighth, 0), (score.error, 1), (score.null_error, 1))
        worst, *errors = ("" if each is None else f"{each:.{digits}%}" for each, digits in shares)
        holds, width = f"{score.coverage:.1%}", f"{score.width:.2f}"
        rows.append((plain(name), score.num_cases, holds, worst, width, *errors))
    columns = ("cases", "holds", "worst eighth", "width", "error", "of the null")
    print_table((f"{found.level:.0%} band of", *columns), rows)
    if found.without:
        print_line(
            f"the field has no band in {len(found.without)} of"
            f" {counted(found.num_cases, 'case')}: {next(iter(found.without.values()))}"
        )


@asks.request
class AnalysisRequest:
    """What all analyses are asked for."""

    run: asks.RunUrl
    case: list[str] | None = None
    """Ids of cases; default: the test split."""
    out: str | None = None
    """Folder or s3://bucket/prefix for the numbers; default: in analysis/ beside the runs/."""
    dataset: asks.MovedDataset = None


class _WithDefault(TyperGroup):
    """Read `analyse RUN` as `analyse scores RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] != "--help" and args[0] not in self.commands:
            args = ["scores", *args]
        return super().parse_args(ctx, args)


analysis_app = typer.Typer(
    cls=_WithDefault,
    help="The inside of a trained model: what each anchor does, and where it errs.",
    epilog="`courant analyse RUN` is `courant analyse scores RUN`. docs/analysis.md explains all.",
    no_args_is_help=True,
)


def _opened(asked: Asked) -> tuple[RunDirectory, courant.Surrogate, simgen.Dataset, list[str]]:
    """Return the folder of the numbers, the model, its dataset, and the named or test cases."""
    surrogate = courant.load(asked["run"])
    opened = surrogate.open_dataset(asked["dataset"])
    chosen = asked["case"] or opened.required("test", "name one by --case")
    place = beside(asked["run"], "analysis", asked["out"])
    return RunDirectory(place), surrogate, opened, chosen


def _write_numbers(folder: RunDirectory, name: str, content: dict[str, Any]) -> None:
    folder.write_json(name, content)
    print_line(f"numbers  {folder.url.rstrip('/')}/{name}")


def _print_rows(rows: Sequence[dict[str, str]]) -> None:
    """Print a table of rows by the names of their columns, all but the first to the right."""
    first, *others = rows[0]
    right = [Column(name, justify="right") for name in others]
    print_table([first, *right], (row.values() for row in rows))


def _number(value: Any, form: str, absent: str = "none") -> str:
    return absent if value is None else format(value, form)


@analysis_app.command("scores", epilog="Example: courant analyse RUN --case b0159c13a91f")
@asks.with_options_of(AnalysisRequest)
def analyse_scores(
    asked: Asked,
    other: Annotated[str | None, option("Another run to match fields with.", metavar="RUN")] = None,
) -> None:
    """Score what each anchor contributes, beside controls; see docs/analysis.md."""
    from courant.analysis import comparison, scores

    folder = RunDirectory(beside(asked["run"], "analysis", asked["out"]))
    with progress_bar("analysing") as progress:
        found = comparison.score_run(
            asked["run"],
            asked["case"] or (),
            absolute(other) if other else None,
            progress,
            asked["dataset"],
            lambda found: folder.write_arrays(f"{found.case}.npz", found.arrays()),
        )
    mean, controls = found["mean"], found["controls"]
    rows, subject = list[list[str]](), ""
    for each in scores.SCORES:
        if each.key in mean:
            rows += [] if each.subject == subject else [[each.subject.upper()]]
            subject = each.subject
            values = [_number(of.get(each.key), ".3g", "") for of in (mean, *controls.values())]
            rows.append([each.name, *values, each.aim_text])
    columns = [Column(name.replace("-", "- "), justify="right") for name in ("model", *controls)]
    print_table(["score", *columns, "good is"], rows)
    _write_numbers(folder, "scores.json", found)


@analysis_app.command("monitor", epilog="Example: courant analyse monitor RUN")
@asks.with_options_of(AnalysisRequest)
def analyse_monitor(asked: Asked) -> None:
    """Calibrate the monitor of a transient model's rollouts, and judge it on test cases.

    The run then has monitor.json, with which `surrogate.rollout_quality` finds from the latents
    when a rollout leaves the dynamics that the model was trained on.
    """
    from courant.analysis.monitoring import calibrate_monitor, judge_monitor

    folder, surrogate, opened, chosen = _opened(asked)
    RunDirectory(surrogate.url).check_writable()
    with progress_bar("calibrating") as progress:
        monitor = calibrate_monitor(surrogate, opened, progress)
    surrogate.keep(monitor)
    rollouts = f"{monitor.rollouts} validation rollouts of {monitor.horizon} steps"
    print_line(f"monitor  {surrogate.url}/monitor.json, from {rollouts}")
    with progress_bar("judging") as progress:
        found = judge_monitor(surrogate, opened, monitor, chosen, progress)
    rows = []
    for each in found.watched:
        steps = (each.detection.flagged_at, each.detection.doubled_at, each.detection.lead)
        rows.append([each.case, len(each.times), *(_number(step, "d", "never") for step in steps)])
    columns = ("steps", "flag at step", "error doubled at", "lead")
    print_table(("case, rolled out to its end", *columns), rows)
    print_line(
        f"false alarms  {found.false_alarms:.1%} of {found.num_rollouts} rollouts of"
        f" {found.monitor.horizon} steps, of cases that it was not calibrated on"
    )
    rates = found.detection
    print_line(
        f"detection  {rates['detected']} of {rates['doubled']} rollouts whose error doubles are"
        f" flagged at least one step before ({_number(rates['rate'], '.0%')}), by"
        f" {_number(rates['median_lead'], 'g')} steps in the median; {rates['flagged_in_vain']} of"
        f" the {rates['rollouts'] - rates['doubled']} others are flagged too"
    )
    _write_numbers(folder, "monitor_judgement.json", found.to_json())


@analysis_app.command("fields", epilog="Example: courant analyse fields RUN --top 8")
@asks.with_options_of(AnalysisRequest)
def analyse_fields(
    asked: Asked,
    top: Annotated[int, option("Fields to keep of each case, by energy.", min=1, max=10_000)] = 8,
) -> None:
    """Write the offset, the strongest fields, their sum and the ranking to `<case>_fields.npz`."""
    from courant.analysis.scores import ranked_fields

    folder, surrogate, opened, names = _opened(asked)
    with progress_bar("decomposing") as progress:
        for number, name in enumerate(names, start=1):
            found = ranked_fields(surrogate, opened[name], top)
            folder.write_arrays(f"{name}_fields.npz", found)
            progress(number, len(names))
            energies, strongest = found["energies"], found["ranking"][:top]
            share = energies[strongest].sum() / energies.sum()
            listed = ", ".join(map(str, strongest.tolist()))
            print_line(f"{name}  anchors {listed} have {share:.0%} of the energy")
    print_line(f"fields  {folder.url.rstrip('/')}/<case>_fields.npz")


@analysis_app.command("maps", epilog="Example: courant analyse maps RUN --anchor 14")
@asks.with_options_of(AnalysisRequest)
def analyse_maps(
    asked: Asked,
    anchor: Annotated[
        list[int] | None, option("Anchor, or several; default: three that represent all.")
    ] = None,
) -> None:
    """Write decoder weights over time and encoder attention of anchors to `<case>_maps.npz`."""
    from courant.analysis.scores import map_anchors, representative_anchors, score_case

    folder, surrogate, opened, names = _opened(asked)
    with progress_bar("mapping") as progress:
        for number, name in enumerate(names, start=1):
            stored, chosen = opened[name], anchor
            if not chosen:
                scores = score_case(surrogate, stored)
                energies = scores.fields.energies
                chosen = representative_anchors(energies, scores.temporal_variance)
            start = surrogate.problem.shown_start(stored)
            found = map_anchors(surrogate, stored, chosen, start)
            folder.write_arrays(f"{name}_maps.npz", found.arrays())
            progress(number, len(names))
    print_line(f"maps  {folder.url.rstrip('/')}/<case>_maps.npz of {counted(len(names), 'case')}")


@analysis_app.command("frequencies", epilog="Example: courant analyse frequencies RUN --steps 40")
@asks.with_options_of(AnalysisRequest)
def analyse_frequencies(
    asked: Asked,
    steps: Annotated[int, option("Most steps of each rollout.", min=8, max=10_000)] = 40,
    start: Annotated[float | None, option("First state, s; default: of the training.")] = None,
) -> None:
    """Compare the frequency of long rollouts with the solution's; see docs/analysis.md."""
    from courant.analysis.dynamics import study_frequencies

    folder, surrogate, opened, chosen = _opened(asked)
    with progress_bar("rolling out") as progress:
        found = study_frequencies(
            surrogate,
            opened,
            chosen,
            steps,
            progress,
            lambda name, rollout: folder.write_arrays(f"{name}_frequencies.npz", rollout.arrays()),
            start,
        )
    if cases := found["cases"]:
        medians = found["medians"]
        columns = {
            "case": ("case", ""),
            "steps": ("steps", ""),
            "solution (Hz)": ("reference_hz", ".4g"),
            "prediction": ("predicted_hz", ".4g"),
            "DMD": ("dmd_hz", ".4g"),
            "latents": ("latent_hz", ".4g"),
            "anchors locked in": ("locked_in", ".0%"),
            "drift at the end": ("drift", "+.1%"),
            "lost after (s)": ("lost_s", "g"),
        }
        rows = [
            {title: _number(each[key], form) for title, (key, form) in columns.items()}
            for each in cases
        ]
        keys = ("predicted", "dmd", "latent")
        last = [_number(medians[f"{key}_hz_error"], ".1%") for key in keys]
        last += [_number(medians["locked_in"], ".0%"), _number(medians["absolute_drift"], ".1%")]
        last = [f"median error of {len(cases)}", "", "", *last, f"{medians['kept']:.0%} kept"]
        _print_rows([*rows, dict(zip(rows[0], last, strict=True))])
    if without := found["without_rhythm"]:
        print_line(
            f"without  {counted(len(without), 'case')} that are steady, or too short for their"
            f" frequency: {', '.join(without)}"
        )
    _write_numbers(folder, "frequencies.json", found)


@analysis_app.command(
    "spectrum", epilog="Example: courant analyse spectrum RUN --case b0159c13a91f --at 1 --at 40"
)
@asks.with_options_of(AnalysisRequest)
def analyse_spectrum(
    asked: Asked,
    at: Annotated[
        list[int] | None,
        option("Step of the rollout, or several; 0: the encoded state.", min=0, max=10_000),
    ] = None,
    exact_up_to: Annotated[int, option("Anchors times width with all eigenvalues.", min=0)] = 8192,
) -> None:
    """Compute the eigenvalues of the processor's Jacobian J and of its step, I + hJ for Euler's.

    Without --case it takes the first test case, without --at the first and the last step of a
    training window. Of larger states the 32 leading eigenvalues are found by Arnoldi iteration.
    `<case>_spectrum.npz` has all of them.
    """
    from courant.analysis.dynamics import case_spectra

    folder, surrogate, opened, chosen = _opened(asked)
    chosen = chosen if asked["case"] else chosen[:1]
    records: list[dict[str, Any]] = []
    with progress_bar("computing eigenvalues") as progress:
        for number, name in enumerate(chosen):

            def report(done: int, total: int, before: int = number) -> None:
                progress(before * total + done, len(chosen) * total)

            record, arrays = case_spectra(surrogate, opened[name], at or (), exact_up_to, report)
            folder.write_arrays(f"{name}_spectrum.npz", arrays)
            records.append(record)
    rows = []
    for record in records:
        for state in record["states"]:
            for key, label in (("longest", "lasting"), ("nearest", "nearest")):
                row = {"case": record["case"], "step": str(state["step"]), "pair": label}
                pair = state[key]
                for name, values in (("λ of J", "derivative"), ("μ of a step", "step")):
                    row[name] = "{:.2f}±{:.2f}i".format(*pair[values]) if pair else "none"
                row["|μ|"] = f"{pair['modulus']:.4g}" if pair else ""
                row["Hz"] = f"{pair['frequency_hz']:.4g}" if pair else ""
                row["over flow"] = _number(pair["over_reference"], ".3g", "") if pair else ""
                rows.append(row)
    _print_rows(rows)
    states = [state for record in records for state in record["states"]]
    print_line(
        "pairs    that last longest, and nearest to the flow's frequency, of"
        f" {'all' if all(state['exact'] for state in states) else 'the leading'}"
        f" {min(state['eigenvalues'] for state in states)} eigenvalues"
    )
    _write_numbers(folder, "spectrum.json", {"cases": records})


@analysis_app.command("compare", epilog="Example: courant analyse compare RUN OTHER-RUN")
@asks.with_options_of(AnalysisRequest, "run")
def analyse_compare(asked: Asked, runs: asks.RunUrls) -> None:
    """Put all scores of several runs side by side; runs of one setting share a column.

    Writes comparison.md, .csv, .json and .png; trade-off.png, the error against every score that
    has an aim; and fields.png with fields.npz, the strongest fields of each row's first run for one
    case. After an interruption the same command continues.
    """
    from courant.analysis import comparison
    from courant.analysis.scores import SCORES
    from courant.report.comparison import compare_fields, draw_comparison, draw_trade_off
    from simgen.publish.figures import png_bytes

    folder = RunDirectory(beside(f"{runs[0]}-compared", "analysis", asked["out"]))
    on = asked["case"] or (), asked["dataset"]
    with progress_bar("scoring") as progress:
        found = comparison.compare_runs(runs, folder, *on, progress)
    names = [Column(escape(found.heading(row)), justify="right") for row in found.columns]
    rows = []
    for each in SCORES:
        if each.key in found.keys:
            scores = (row.scores.get(each.key) for row in found.columns)
            cells = ("" if score is None else score.text() for score in scores)
            rows.append((each.name, *cells, each.aim_text))
    print_table(["score", *names, "good is"], rows)
    folder.write_json("comparison.json", found.to_json())
    folder.write_bytes("comparison.csv", found.to_csv().encode())
    folder.write_bytes("comparison.md", found.to_markdown().encode())
    folder.write_bytes("comparison.png", png_bytes(draw_comparison(found)))
    place = folder.url.rstrip("/")
    print_line(f"table  {place}/comparison.md, .csv, .json, .png")
    if trade_off := draw_trade_off(found):
        folder.write_bytes("trade-off.png", png_bytes(trade_off))
        print_line(f"figure {place}/trade-off.png")
    first = comparison.RunComparison(
        tuple(row for row in found.rows if row.family == found.families[0])
    )
    shown, figure, arrays = compare_fields(first, *on)
    folder.write_bytes("fields.png", png_bytes(figure))
    folder.write_arrays("fields.npz", arrays)
    print_line(f"fields {place}/fields.png, .npz: case {shown}")


app.add_typer(dataset_app, name="dataset")
app.add_typer(runs_app, name="runs")
app.add_typer(recipes_app, name="recipes")
app.add_typer(observing_app)
app.add_typer(analysis_app, name="analyse")
