"""Define `courant analyse fields`: the strongest contributions of a prediction, as arrays."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.analysing.arrays import chosen_cases, write_arrays
from flows.cli.analysing.scores import ChosenCases, OutFolder
from flows.cli.options import MovedDataset, RunUrl
from flows.settings import absolute
from flows.terminal import one_line_errors, progress_bar, say


def analyse_fields(
    run: RunUrl,
    case: ChosenCases = None,
    top: Annotated[
        int, typer.Option(min=1, max=10_000, help="Fields to keep of each case, by energy.")
    ] = 8,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Write the decomposition of predictions as arrays: the strongest fields, and the ranking.

    <case>_fields.npz has the offset, the fields and their sum in physical units, at the step that
    `courant analyse scores` scores.
    """
    with one_line_errors():
        from courant.analysis.decomposition.ranked_fields import ranked_fields
        from courant.prediction.surrogate import load
        from courant.runs.directory import RunDirectory

        folder, surrogate = RunDirectory(absolute(out)), load(absolute(run))
        opened = surrogate.open_dataset(absolute(dataset) if dataset else None)
        names = chosen_cases(opened, case)
        with progress_bar("decomposing") as progress:
            for number, name in enumerate(names, start=1):
                found = ranked_fields(surrogate, opened[name], top)
                write_arrays(folder, f"{name}_fields.npz", found.arrays())
                progress(number, len(names))
                share = found.energies[found.ranking[:top]].sum() / found.energies.sum()
                listed = ", ".join(map(str, found.ranking[:top].tolist()))
                say(f"{name}  anchors {listed} hold {share:.0%} of the energy")
        say(f"fields  {folder.url.rstrip('/')}/<case>_fields.npz")
