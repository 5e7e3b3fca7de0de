"""Define `courant calibrate` and `courant coverage`: bands of error, and whether they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from flows.cli.options import MovedDataset, RunUrl, SplitChoice
from flows.settings import absolute
from flows.terminal import counted, one_line_errors, print_line, progress_bar, screen
from simgen.errors import InputError

if TYPE_CHECKING:
    from courant.evaluation.coverage import Coverage

bands_app = typer.Typer()


@bands_app.command(epilog="Example: courant calibrate RUN")
def calibrate(
    run: RunUrl,
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Dataset of some designs solved on meshes of several sizes: the mesh's own error.",
        ),
    ] = None,
    dataset: MovedDataset = None,
) -> None:
    """Predict the calibration cases of the run's dataset, for bands of error around predictions.

    Cases are added by `courant generate ... --split calibration`; docs/bands.md has the whole.
    """
    with one_line_errors():
        from courant.evaluation.calibrate import calibrate as calibrate_run

        place = absolute(dataset) if dataset else None
        with progress_bar("calibrating") as progress:
            meshes = absolute(grid) if grid else None
            bands = calibrate_run(absolute(run), place, meshes, progress)
        names = ", ".join(name.replace("_", " ") for name in bands.quantities)
        print_line(
            f"bands  {counted(len(bands.cases), 'calibration case')} of {bands.version}:"
            f" the fields{', ' + names if names else ''}"
        )
        if bands.regressed is not None:
            regressed = ", ".join(name.replace("_", " ") for name in bands.regressed.quantities)
            designs = counted(len(bands.regressed.designs), "training design")
            print_line(f"by regression on the parameters of {designs}: {regressed}")
        for name, error in bands.grid.items():
            print_line(
                f"mesh   {name.replace('_', ' ')} on a fine mesh: {error.low:+.1%} to"
                f" {error.high:+.1%} (order {error.order:.1f}, {error.num_designs} designs)"
            )
        for name, reason in bands.no_grid.items():
            print_line(f"mesh   {name.replace('_', ' ')}: {reason}")


@bands_app.command(epilog="Example: courant coverage RUN --split test")
def coverage(
    run: RunUrl,
    split: Annotated[
        SplitChoice, typer.Option(help="Which cases, of the newest version.")
    ] = SplitChoice.test,
    level: Annotated[
        float, typer.Option(min=0.5, max=0.99, help="Probability with which bands are to hold.")
    ] = 0.9,
    inside: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=LOW:HIGH,...",
            help="Score cases outside of these ranges apart: are those with large errors refused?",
        ),
    ] = None,
    dataset: MovedDataset = None,
) -> None:
    """Hold the bands of a calibrated run against solved cases: how often do they hold?"""
    with one_line_errors():
        from courant.evaluation.coverage import measure_coverage

        box = {} if inside is None else parse_box(inside)
        place = absolute(dataset) if dataset else None
        with progress_bar("predicting") as progress:
            found = measure_coverage(absolute(run), split.value, place, level, progress, box)
        screen.print(_table(found))
        if found.outside:
            screen.print(_table_outside(found))
        if found.without:
            print_line(
                f"no band for {counted(len(found.without), 'case')} of {found.num_cases}:"
                f" {next(iter(found.without.values()))}"
            )


def parse_box(text: str) -> dict[str, tuple[float, float]]:
    """Read `aperture=24:37,inlet_velocity=3:8`."""
    box = {}
    for part in text.split(","):
        name, _, ends = part.partition("=")
        low, _, high = ends.partition(":")
        try:
            box[name.strip()] = float(low), float(high)
        except ValueError:
            raise InputError(
                f"--inside {part}: give NAME=LOW:HIGH, such as aperture=24:37"
            ) from None
    return box


def _table_outside(found: Coverage) -> Table:
    table = Table(
        "outside of the box",
        "cases",
        "error exceeds band",
        "refused by ranges",
        "by latents",
        "by either",
        box=None,
        header_style="bold",
    )
    for name, score in found.outside.items():
        refused = (score.by_ranges, score.by_latents, score.by_either)
        shares = (f"{each / score.exceeding:.0%}" if score.exceeding else "" for each in refused)
        table.add_row(name.replace("_", " "), str(score.num_cases), str(score.exceeding), *shares)
    return table


def _table(found: Coverage) -> Table:
    table = Table(
        f"{found.level:.0%} band of",
        "cases",
        "holds",
        "worst eighth",
        "width",
        "error",
        "of the null",
        box=None,
        header_style="bold",
    )
    for name, score in found.bands.items():
        worst, error, null = (
            "" if share is None else f"{share:.{digits}%}"
            for share, digits in ((score.worst_eighth, 0), (score.error, 1), (score.null_error, 1))
        )
        table.add_row(
            name.replace("_", " "),
            str(score.num_cases),
            f"{score.coverage:.1%}",
            worst,
            f"{score.width:.2f}",
            error,
            null,
        )
    return table
