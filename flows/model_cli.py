"""Commands on trained models that need no flow: their report, predictions, serving; and the recipes they are trained by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from flows.cli_options import RunUrl, parse_settings
from flows.settings import absolute, embedded_defaults
from flows.terminal import one_line_errors, screen
from simgen.errors import InputError

model_app = typer.Typer()


@model_app.command(epilog="Example: courant report demo-run/runs/cylinder-flow-demo-0123456789 --out report")
def report(run: RunUrl, out: Annotated[str, typer.Option(help="Folder or s3://bucket/prefix.")] = "report") -> None:
    """Write the report of an evaluated run again, without Prefect."""
    with one_line_errors():
        from courant.report.report import write_report

        screen.print(f"report  {write_report(absolute(run), absolute(out))}", highlight=False, soft_wrap=True)


@model_app.command(
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
            given = parse_settings(parameters.split(",") if parameters else None, "--parameters")
            line = predict_file(absolute(run), Path(case), boundary, given, steps, out)
        else:
            from flows.prediction import write_prediction

            line = write_prediction(absolute(run), case, start, steps, out)
        screen.print(line, highlight=False, soft_wrap=True)


@model_app.command(epilog="Example: courant serve demo-run/runs/cylinder-flow-demo-0123456789 --port 8000")
def serve(
    run: RunUrl,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for other machines.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    max_points: Annotated[int, typer.Option(min=1, help="Points of one request, queries included.")] = 200_000,
    max_steps: Annotated[int, typer.Option(min=1, help="Rollout steps of one request.")] = 200,
    max_point_steps: Annotated[
        int, typer.Option(min=1, help="Points where one request predicts, times its rollout steps.")
    ] = 2_000_000,
    max_megabytes: Annotated[float, typer.Option(min=0.001, help="Size of one request.")] = 64.0,
) -> None:
    """Answer predictions over HTTP through Ray Serve, until Ctrl-C."""
    with one_line_errors():
        embedded_defaults()
        from courant.serving.requests import Limits
        from flows.serve_model import serve_model

        limits = Limits(
            max_points=max_points, max_steps=max_steps, max_megabytes=max_megabytes, max_point_steps=max_point_steps
        )
        serve_model(absolute(run), host, port, limits)


@model_app.command()
def recipes() -> None:
    """The training recipes, with what they are for."""
    from courant.recipes import RECIPES

    table = Table("recipe", "", box=None, header_style="bold")
    for name, recipe in RECIPES.items():
        table.add_row(name, (recipe.__doc__ or "").strip().splitlines()[0])
    screen.print(table)
