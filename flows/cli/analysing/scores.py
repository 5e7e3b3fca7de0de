"""Define `courant analyse scores`: what each anchor of a trained model contributes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from flows.cli.options import MovedDataset, RunUrl
from flows.settings import absolute
from flows.terminal import one_line_errors, progress_bar, say, screen

if TYPE_CHECKING:
    from courant.analysis.run_scores import RunScores

#: Width of a score's name in 80 columns; a longer one takes two lines.
_NAME = 30
_NUMBER = 9
EXAMPLE = "Example: courant analyse RUN --case b0159c13a91f --out analysis"

ChosenCases = Annotated[
    list[str] | None,
    typer.Option(
        "--case", help="Id of a case, as often as wanted; default: all of the test split."
    ),
]
OutFolder = Annotated[
    str, typer.Option(help="Folder or s3://bucket/prefix for the numbers and their arrays.")
]


def analyse_scores(
    run: RunUrl,
    case: ChosenCases = None,
    other: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="A second run, such as one of another seed, to match fields with."
        ),
    ] = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Score what each anchor contributes: where, how much, how steadily, beside controls.

    docs/analysis.md explains every score.
    """
    with one_line_errors():
        from courant.analysis.run_scores import score_run, write_arrays, write_scores
        from courant.runs.directory import RunDirectory

        folder = RunDirectory(absolute(out))
        with progress_bar("analysing") as progress:
            scores = score_run(
                absolute(run),
                case or (),
                absolute(other) if other else None,
                progress,
                absolute(dataset) if dataset else None,
                partial(write_arrays, folder),
            )
        screen.print(score_table(scores))
        say(f"scores  {write_scores(folder, scores)}")


def score_table(scores: RunScores) -> Table:
    """Return one row for each score that the run has, with its controls, below its subject."""
    from courant.analysis.decomposition.scores import SCORES

    mean, controls = scores.mean, scores.controls
    table = Table(box=None, header_style="bold")
    table.add_column("score", min_width=_NAME)
    for name in ("model", *controls):
        table.add_column(name.replace("-", "- "), justify="right", max_width=_NUMBER)
    table.add_column("good is", no_wrap=True)
    subject = ""
    for each in SCORES:
        if each.key not in mean:
            continue
        if each.subject != subject:
            table.add_row(each.subject, style="bold")
            subject = each.subject
        values = [_number(found.get(each.key)) for found in (mean, *controls.values())]
        table.add_row(each.name, *values, each.aim_sign)
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
