"""Define commands on trained models without a flow: report, predict, serve and recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from flows.cli.options import AllowedHosts, MovedDataset, RunUrl, allowed_hosts
from flows.request_models import parse_settings
from flows.settings import absolute, check_folder, load_settings
from flows.terminal import one_line_errors, print_line, screen
from simgen.errors import InputError
from simgen.store.local_files import local_path

model_app = typer.Typer()


@model_app.command(
    epilog="Example: courant report demo-run/runs/cylinder-flow-demo-0123456789 --out report"
)
def report(
    run: RunUrl,
    out: Annotated[str, typer.Option(help="Folder or s3://bucket/prefix.")] = "report",
    dataset: MovedDataset = None,
) -> None:
    """Write the report of an evaluated run again, without Prefect."""
    with one_line_errors():
        from courant.report.report import write_report

        place = None if dataset is None else absolute(dataset)
        check_folder(absolute(out))
        page = write_report(absolute(run), absolute(out), place)
        print_line(f"report  {page}")


@model_app.command(epilog="Example: courant reports courant-data/reports")
def reports(
    folder: Annotated[
        str | None, typer.Argument(help="Folder of reports; default: COURANT_REPORTS.")
    ] = None,
) -> None:
    """Write the index page of a folder of reports again, as after one was removed."""
    with one_line_errors():
        from courant.report.index import write_index

        print_line(f"index  {write_index(absolute(folder or load_settings().reports))}")


@model_app.command(
    epilog=(
        "Example: courant predict RUN b0159c13a91f --start 100 --out prediction.npz, or courant"
        " predict RUN case.vtu --parameters radius=2,center_x=0,center_y=1 --out prediction.vtu"
    )
)
def predict(
    run: RunUrl,
    out: Annotated[
        Path,
        typer.Option(
            help=(
                "File to write: .npz (all steps), .pvd (all steps, for ParaView) or .vtu (the last"
                " step)."
            )
        ),
    ],
    case: Annotated[
        str | None,
        typer.Argument(
            help=(
                "Id of a case of the dataset that the model was trained on, or a mesh file such as"
                " case.vtu, whose arrays "
                "named like the model's fields are the initial state."
            )
        ),
    ] = None,
    design: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="In place of a case: a design that nobody has solved. It is meshed (OpenFOAM).",
        ),
    ] = None,
    from_solver: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="With --design, transient: seconds that the solver runs before the model goes on.",
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="With --design: solve it as well, and show both.")
    ] = False,
    start: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Transient: time of the initial snapshot, in seconds; 100 by default."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Transient: rollout steps; 10 by default."),
    ] = None,
    parameters: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="With a mesh file: the design parameters of its geometry.",
        ),
    ] = None,
    boundary: Annotated[
        Path | None,
        typer.Option(
            help=(
                "With a mesh file and a steady model: the faces of its boundary, with `patch` and"
                " what is prescribed."
            )
        ),
    ] = None,
    dataset: MovedDataset = None,
) -> None:
    """Predict a stored case, from the state on a mesh of your own, or a design never solved.

    A transient model starts from a case's snapshot at --start or a file's arrays, a steady one from
    a case's geometry and boundary conditions.
    """
    with one_line_errors():
        if (case is None) == (design is None):
            raise InputError("name a case or a mesh file, or give a --design NAME=VALUE,...")
        out = local_path(str(out))
        if design is not None:
            from flows.cli.prediction_files import predict_to_files, refuse_others

            refuse_others(start=start, parameters=parameters, boundary=boundary, dataset=dataset)
            asked = parse_settings(design.split(","), "--design") or {}
            predict_to_files(
                absolute(run), asked, out, steps=steps, from_solver_s=from_solver, verify=verify
            )
            return
        if from_solver is not None or verify:
            raise InputError("--from-solver and --verify belong to --design")
        assert case is not None
        is_file = "." in Path(case).name
        if not is_file and (parameters is not None or boundary is not None):
            raise InputError("--parameters and --boundary belong to a mesh file")
        if is_file:
            from flows.cli.foreign_mesh import predict_file

            if start is not None:
                raise InputError("--start belongs to a stored case; a mesh file holds one state")
            if dataset is not None:
                raise InputError("--dataset belongs to a stored case; a mesh file needs none")
            given = parse_settings(parameters.split(",") if parameters else None, "--parameters")
            faces = None if boundary is None else local_path(str(boundary))
            line = predict_file(absolute(run), local_path(case), faces, given, steps, out)
        else:
            from flows.cli.prediction_files import write_prediction

            place = None if dataset is None else absolute(dataset)
            line = write_prediction(absolute(run), case, start, steps, out, place)
        print_line(line)


@model_app.command(
    epilog="Example: courant serve demo-run/runs/cylinder-flow-demo-0123456789 --port 8000"
)
def serve(
    run: RunUrl,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    max_points: Annotated[
        int, typer.Option(min=1, help="Points of one request, queries included.")
    ] = 200_000,
    max_steps: Annotated[int, typer.Option(min=1, help="Rollout steps of one request.")] = 200,
    max_point_steps: Annotated[
        int, typer.Option(min=1, help="Points where one request predicts, times its rollout steps.")
    ] = 2_000_000,
    max_megabytes: Annotated[
        float, typer.Option(min=0.001, max=10_000, help="Size of one request.")
    ] = 64.0,
    allow_host: AllowedHosts = None,
) -> None:
    """Answer predictions over HTTP through Ray Serve, until Ctrl-C."""
    with one_line_errors():
        from courant.runs.directory import RunDirectory
        from courant.runs.record import check_trained

        names = allowed_hosts(allow_host)
        # Before Ray Serve is imported, which takes seconds.
        check_trained(RunDirectory(absolute(run)))
        from courant.serving.predictions import Limits
        from flows.cli.serving import serve_model

        limits = Limits(
            max_points=max_points,
            max_steps=max_steps,
            max_megabytes=max_megabytes,
            max_point_steps=max_point_steps,
        )
        serve_model(absolute(run), host, port, limits, names=names)


@model_app.command(epilog="Example: courant explore pipe-run/runs/branched-pipe-small-0123456789")
def explore(
    run: RunUrl,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    dataset: MovedDataset = None,
    allow_host: AllowedHosts = None,
) -> None:
    """Explore a design space in the browser: sliders, fields, quantities with bands.

    Until Ctrl-C; sliders of a steady model need OpenFOAM's mesh tools on this machine.
    """
    with one_line_errors():
        from courant.runs.directory import RunDirectory
        from courant.runs.record import check_trained

        names = allowed_hosts(allow_host)
        check_trained(RunDirectory(absolute(run)))
        from flows.cli.serving import explore_model

        place = None if dataset is None else absolute(dataset)
        explore_model(absolute(run), host, port, place, names)


recipes_app = typer.Typer(help="The training recipes: list them, show one.")


@recipes_app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """List the training recipes, with what they are for; `show` prints one."""
    if context.invoked_subcommand:
        return
    with one_line_errors():
        from courant.recipes import RECIPES

        table = Table("recipe", "", box=None, header_style="bold")
        for name, recipe in RECIPES.items():
            table.add_row(name, _first_sentence(recipe.__doc__ or ""))
        screen.print(table)


def _first_sentence(text: str) -> str:
    first, _, _ = " ".join(text.split()).partition(". ")
    return first.removesuffix(".")


@recipes_app.command(
    "show", epilog="Example: courant recipes show cylinder-flow-small > experiment.json"
)
def recipes_show(
    name: Annotated[str, typer.Argument(help="A recipe, such as cylinder-flow-small.")],
) -> None:
    """Print a recipe as JSON: change it, and train it with --experiment FILE."""
    with one_line_errors():
        from courant.recipes import get_recipe

        typer.echo(get_recipe(name).model_dump_json(indent=2))
