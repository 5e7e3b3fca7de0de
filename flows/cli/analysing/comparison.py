"""Define `courant analyse compare`: all scores of several runs, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.analysing.scores import ChosenCases, OutFolder
from flows.cli.options import MovedDataset
from flows.settings import absolute
from flows.terminal import one_line_errors, progress_bar, say, screen

if TYPE_CHECKING:
    from courant.analysis.comparison import Comparison

NAME, TRADE_OFF, FIELDS = "comparison", "trade-off", "fields"


def analyse_compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Two run directories or more: folders or s3://bucket/prefix."),
    ],
    case: ChosenCases = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Put all scores of several runs side by side; runs of one setting and many seeds are one row.

    Writes comparison.md, .csv, .json and .png; trade-off.png, the error against every score that
    has an aim; and fields.png with fields.npz, the strongest fields of each row's first run for one
    case. After an interruption the same command continues.
    """
    with one_line_errors():
        from courant.analysis.comparison import compare_runs
        from courant.report.comparison_figure import draw_comparison
        from courant.report.images.embedding import npz_bytes
        from courant.report.run_fields_figure import draw_run_fields, fields_of_runs
        from courant.report.trade_off_figure import draw_trade_off
        from courant.runs.directory import RunDirectory
        from simgen.publish.figure_files import png_bytes

        folder = RunDirectory(absolute(out))
        moved = absolute(dataset) if dataset else None
        with progress_bar("scoring") as progress:
            found = compare_runs(
                [absolute(run) for run in runs], folder, case or (), moved, progress
            )
        screen.print(_table(found))
        folder.write_json(f"{NAME}.json", found.to_json())
        folder.write_bytes(f"{NAME}.csv", found.to_csv().encode())
        folder.write_bytes(f"{NAME}.md", found.to_markdown().encode())
        folder.write_bytes(f"{NAME}.png", png_bytes(draw_comparison(found)))
        place = folder.url.rstrip("/")
        say(f"table  {place}/{NAME}.md, .csv, .json, .png")
        if trade_off := draw_trade_off(found):
            folder.write_bytes(f"{TRADE_OFF}.png", png_bytes(trade_off))
            say(f"figure {place}/{TRADE_OFF}.png")
        first = found.of_family(found.families[0])
        if (fields := fields_of_runs(first, case or (), moved)) is not None:
            folder.write_bytes(f"{FIELDS}.png", png_bytes(draw_run_fields(fields)))
            folder.write_bytes(f"{FIELDS}.npz", npz_bytes(fields.arrays()))
            say(f"fields {place}/{FIELDS}.png, .npz: case {fields.case}")


def _table(found: Comparison) -> Table:
    from courant.analysis.decomposition.scores import SCORES

    table = Table("score", box=None, header_style="bold")
    for row in found.columns:
        table.add_column(escape(found.heading(row)), justify="right")
    table.add_column("good is")
    for each in SCORES:
        if each.key in found.keys:
            cells = [
                row.scores[each.key].text() if each.key in row.scores else ""
                for row in found.columns
            ]
            table.add_row(each.name, *cells, each.aim_text)
    return table
