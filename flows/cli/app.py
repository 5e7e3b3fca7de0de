"""Define the command line `courant`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.analysis import analysis_app
from flows.cli.bands import bands_app
from flows.cli.dataset import dataset_app
from flows.cli.doctor import doctor_app
from flows.cli.families import families_app
from flows.cli.model import model_app, recipes_app
from flows.cli.observing import metrics_app, status_app
from flows.cli.runs import runs_app
from flows.cli.stages import stages_app
from flows.terminal import one_line_errors, start_logs

app = typer.Typer(
    name="courant",
    help=(
        "From a design space to a trained, legible surrogate: OpenFOAM cases, versioned datasets,"
        " Courant on Ray."
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(stages_app)
app.add_typer(dataset_app, name="dataset")
app.add_typer(runs_app, name="runs")
app.add_typer(recipes_app, name="recipes")
for commands in (status_app, metrics_app, families_app, doctor_app, model_app, bands_app):
    app.add_typer(commands)
app.add_typer(analysis_app, name="analyse")


def _print_version(wanted: bool) -> None:
    if wanted:
        from simgen.provenance import generator_version

        typer.echo(f"courant {generator_version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Handle the options that stand before a command, and begin its log."""
    with one_line_errors():
        start_logs()
