"""Define `courant analyse compare`: all scores of several runs, side by side."""

from __future__ import annotations

from collections.abc import Iterator
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
#: Between the columns of a terminal's table.
_GAP = 2


def analyse_compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Two run directories or more: folders or s3://bucket/prefix."),
    ],
    case: ChosenCases = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Put all scores of several runs side by side; runs of one setting share a column.

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
        for table in tables(found, screen.width):
            screen.print(table)
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


def tables(found: Comparison, width: int) -> Iterator[Table]:
    """Yield tables of as many columns as a terminal of some width shows without breaking words."""
    from courant.analysis.decomposition.scores import SCORES

    shown = [each for each in SCORES if each.key in found.keys]
    headings = [escape(found.heading(row)) for row in found.columns]
    cells = [
        [row.scores[each.key].text() if each.key in row.scores else "" for each in shown]
        for row in found.columns
    ]
    # A heading may be broken at its spaces, a number may not.
    widths = [
        _GAP + max(map(len, [*column, *heading.split()]))
        for heading, column in zip(headings, cells, strict=True)
    ]
    names, aims = [each.name for each in shown], [each.aim_sign for each in shown]
    room = width - _longest(names) - _GAP - _longest(aims)
    for first, last in _groups(widths, room):
        table = Table(box=None, header_style="bold")
        table.add_column("score", min_width=_longest(names))
        for heading, wide in zip(headings[first:last], widths[first:last], strict=True):
            table.add_column(heading, justify="right", max_width=wide - _GAP)
        table.add_column("good is", min_width=_longest(aims))
        for number, name in enumerate(names):
            here = [column[number] for column in cells[first:last]]
            table.add_row(name, *here, aims[number])
        yield table


def _groups(widths: list[int], room: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of runs of columns that fit into some room, at least one in each."""
    first, used = 0, 0
    for number, width in enumerate(widths):
        if number > first and used + width > room:
            yield first, number
            first, used = number, 0
        used += width
    yield first, len(widths)


def _longest(words: list[str]) -> int:
    return max(map(len, words), default=0)
