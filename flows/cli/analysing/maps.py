"""Define `courant analyse maps`: where anchors speak, what they read, how levels move them."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.analysing.arrays import chosen_cases, write_arrays
from flows.cli.analysing.scores import ChosenCases, OutFolder
from flows.cli.options import MovedDataset, RunUrl
from flows.settings import absolute
from flows.terminal import one_line_errors, progress_bar, say


def analyse_maps(
    run: RunUrl,
    case: ChosenCases = None,
    anchor: Annotated[
        list[int] | None,
        typer.Option(help="Number of an anchor, as often as wanted; default: three telling ones."),
    ] = None,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Write maps of some anchors as arrays: decoder weights over time, and encoder attention.

    <case>_maps.npz holds the dominant anchor of each point and step too, and where levels move the
    anchors their places at each.
    """
    with one_line_errors():
        from courant.analysis.decomposition.case_scores import score_case
        from courant.analysis.decomposition.maps import map_anchors, telling_anchors
        from courant.prediction.surrogate import load
        from courant.runs.directory import RunDirectory

        folder, surrogate = RunDirectory(absolute(out)), load(absolute(run))
        opened = surrogate.open_dataset(absolute(dataset) if dataset else None)
        names = chosen_cases(opened, case)
        with progress_bar("mapping") as progress:
            for number, name in enumerate(names):
                stored, chosen = opened[name], anchor
                if not chosen:
                    scores = score_case(surrogate, stored)
                    chosen = telling_anchors(scores.fields.energies, scores.temporal_variance)
                start = surrogate.problem.shown_start(stored)
                found = map_anchors(surrogate, stored, chosen, start)
                write_arrays(folder, f"{name}_maps.npz", found.arrays())
                progress(number + 1, len(names))
        listed = ", ".join(f"{name}_maps.npz" for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        say(f"maps  {folder.url}: {listed}{more}")
