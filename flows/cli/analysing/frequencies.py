"""Define `courant analyse frequencies`: do long rollouts keep the flow's frequency?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from flows.cli.analysing.arrays import chosen_cases, write_arrays
from flows.cli.analysing.scores import ChosenCases, OutFolder
from flows.cli.options import MovedDataset, RunUrl
from flows.settings import absolute
from flows.terminal import counted, one_line_errors, progress_bar, say, screen

if TYPE_CHECKING:
    from courant.analysis.dynamics.case_dynamics import CaseDynamics
    from courant.analysis.dynamics.frequency_study import FrequencyStudy

NUMBERS_FILE = "frequencies.json"


def analyse_frequencies(
    run: RunUrl,
    case: ChosenCases = None,
    steps: Annotated[
        int, typer.Option(min=8, max=10_000, help="Steps of each rollout, if the case is so long.")
    ] = 40,
    out: OutFolder = "analysis",
    dataset: MovedDataset = None,
) -> None:
    """Compare the frequency of long rollouts with that of the solution, in flow and latents.

    docs/analysis.md explains the columns. <case>_frequencies.npz holds the series, the scalogram
    and the modes behind them.
    """
    with one_line_errors():
        from courant.analysis.dynamics.frequency_study import rhythm_arrays, study_frequencies
        from courant.prediction.surrogate import load
        from courant.runs.directory import RunDirectory

        folder, surrogate = RunDirectory(absolute(out)), load(absolute(run))
        opened = surrogate.open_dataset(absolute(dataset) if dataset else None)
        chosen = chosen_cases(opened, case)

        def keep(name: str, rollout: CaseDynamics) -> None:
            write_arrays(folder, f"{name}_frequencies.npz", rhythm_arrays(rollout))

        with progress_bar("rolling out") as progress:
            found = study_frequencies(surrogate, opened, chosen, steps, progress, keep)
        if found.cases:
            screen.print(_table(found))
            screen.print(_modes_table(found))
        if found.without:
            say(
                f"without  {counted(len(found.without), 'case')} that stand still or are too short"
                f" to tell their frequency: {', '.join(found.without)}"
            )
        folder.write_json(NUMBERS_FILE, found.to_json())
        say(f"numbers  {folder.url.rstrip('/')}/{NUMBERS_FILE}")


def _table(found: FrequencyStudy) -> Table:
    table = Table("case", box=None, header_style="bold")
    names = ("steps", "solution (Hz)", "prediction", "DMD", "latents", "anchors locked in")
    for name in (*names, "drift at the end", "lost after (s)"):
        table.add_column(name, justify="right")
    for each in found.cases:
        table.add_row(
            each.case,
            str(each.steps),
            f"{each.reference_hz:.4g}",
            *(_number(value, ".4g") for value in (each.predicted_hz, each.dmd_hz, each.latent_hz)),
            f"{each.locked_in:.0%}",
            _number(each.drift, "+.1%"),
            "never" if each.lost_s is None else f"{each.lost_s:g}",
        )
    medians = found.medians
    table.add_row(
        f"median error of {len(found.cases)}",
        "",
        "",
        *(_number(medians[f"{name}_hz_error"], ".1%") for name in ("predicted", "dmd", "latent")),
        _number(medians["locked_in"], ".0%"),
        _number(medians["absolute_drift"], ".1%"),
        f"{medians['kept']:.0%} of the time",
        style="bold",
    )
    return table


def _modes_table(found: FrequencyStudy) -> Table:
    """Return the modes of the solution and of the prediction, side by side."""
    table = Table("case, solution / prediction", box=None, header_style="bold")
    names = ("variance (std²)", "in two POD modes", "their correlation", "DMD growth (1/s)")
    for name in (*names, "DMD correlation"):
        table.add_column(name, justify="right")
    for each in found.cases:
        modes = each.modes
        table.add_row(
            each.case,
            " / ".join(f"{value:.3g}" for value in modes.variances),
            " / ".join(f"{value:.0%}" for value in modes.leading_shares),
            f"{modes.pod_correlation:.2f}",
            " / ".join(_number(value, "+.2g") for value in modes.growth_rates),
            _number(modes.dmd_correlation, ".2f"),
        )
    return table


def _number(value: float, form: str) -> str:
    return format(value, form) if value == value else "none"
