"""Define `courant analyse errors`: which anchors err, told without the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from flows.cli.analysing.arrays import write_arrays
from flows.cli.analysing.scores import ChosenCases, OutFolder
from flows.cli.options import MovedDataset, RunUrl
from flows.settings import absolute
from flows.terminal import counted, one_line_errors, progress_bar, say, screen, tell

if TYPE_CHECKING:
    from courant.analysis.error_indicators.study import IndicatorStudy, OtherModel
    from courant.runs.directory import RunDirectory

ERRORS_FILE = "error_indicator.json"


def analyse_errors(
    run: RunUrl,
    case: ChosenCases = None,
    beside: Annotated[
        str | None,
        typer.Option(help="Another run, such as a refined one: its errors at the same places."),
    ] = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Rank the anchors of a prediction by their expected error, learned from validation cases.

    Test cases judge it: how much of the squared error lies at the tenth of the anchors ranked
    first?
    """
    with one_line_errors():
        from courant.analysis.error_indicators.study import study_errors
        from courant.prediction.surrogate import load
        from courant.runs.directory import RunDirectory

        folder, surrogate = RunDirectory(absolute(out)), load(absolute(run))
        place = absolute(dataset) if dataset else None
        other = load(absolute(beside)) if beside else None
        with progress_bar("analysing") as progress:
            found = study_errors(
                surrogate, surrogate.open_dataset(place), case or (), progress, other=other
            )
        screen.print(_table(found))
        if found.other is not None:
            say(_compared(found.other))
        _write(folder, found)
        tell(f"numbers  {escape(folder.url.rstrip('/'))}/{ERRORS_FILE}")


def _compared(other: OtherModel) -> str:
    at_first, elsewhere = (
        "unknown" if ratio is None else f"{ratio:.2f}"
        for ratio in (other.at_first, other.elsewhere)
    )
    return (
        f"squared error of {other.run.rpartition('/')[2]}, over this run's: {at_first} at"
        f" the top tenth by the indicator, {elsewhere} elsewhere"
    )


def _table(found: IndicatorStudy) -> Table:
    predictions = counted(len(found.judged), "prediction")
    table = Table(f"anchors ranked by, over {predictions}", box=None, header_style="bold")
    table.add_column("squared error at the top tenth", justify="right")
    for name, part in found.carried.items():
        table.add_row(name, f"{part:.1%}")
    return table


def _write(folder: RunDirectory, found: IndicatorStudy) -> None:
    """Write the judgement, and by prediction the expected and the true errors of the anchors."""
    import numpy as np

    folder.write_json(ERRORS_FILE, found.to_json())
    arrays = {
        "expected_error": np.stack([each.expected for each in found.judged]),
        "error_address": np.stack([np.asarray(each.state.errors) for each in found.judged]),
        "governed": np.stack([each.state.governed for each in found.judged]),
        "case": np.array([each.state.case for each in found.judged]),
    }
    if all(each.state.places is not None for each in found.judged):
        arrays["anchors"] = np.stack([np.asarray(each.state.places) for each in found.judged])
    write_arrays(folder, "error_indicator.npz", arrays)
