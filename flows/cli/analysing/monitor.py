"""Define `courant analyse monitor`: calibrate a run's rollout monitor, and judge it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from flows.cli.analysing.scores import ChosenCases, OutFolder
from flows.cli.options import MovedDataset, RunUrl
from flows.settings import absolute
from flows.terminal import one_line_errors, progress_bar, say, screen

if TYPE_CHECKING:
    from courant.analysis.dynamics.detection import DetectionRate
    from courant.analysis.dynamics.monitoring import MonitorJudgement

JUDGEMENT_FILE = "monitor_judgement.json"


def analyse_monitor(
    run: RunUrl, case: ChosenCases = None, out: OutFolder = "analysis", dataset: MovedDataset = None
) -> None:
    """Calibrate the monitor of a transient model's rollouts, and judge it on test cases.

    The run keeps it as monitor.json; `surrogate.predict(..., monitor=True)` then tells from the
    latents when a rollout leaves the dynamics that the model was trained on.
    """
    with one_line_errors():
        from courant.analysis.dynamics.monitoring import (
            calibrate_monitor,
            judge_monitor,
            write_monitor,
        )
        from courant.prediction.surrogate import load
        from courant.runs.directory import RunDirectory

        folder, surrogate = RunDirectory(absolute(out)), load(absolute(run))
        RunDirectory(surrogate.url).check_writable()
        opened = surrogate.open_dataset(absolute(dataset) if dataset else None)
        with progress_bar("calibrating") as progress:
            monitor = calibrate_monitor(surrogate, opened, progress)
        write_monitor(surrogate, monitor)
        say(
            f"monitor  {surrogate.url}/monitor.json, from {monitor.rollouts} validation rollouts of"
            f" {monitor.horizon} steps"
        )
        chosen = list(case or ()) or opened.cases("test")
        if not chosen:
            return
        with progress_bar("judging") as progress:
            found = judge_monitor(surrogate, opened, monitor, chosen, progress)
        screen.print(_table(found))
        say(
            f"false alarms  {found.false_alarms:.1%} of {found.num_rollouts} rollouts of"
            f" {monitor.horizon} steps, of cases that it was not calibrated on"
        )
        say(_detection(found.detection))
        folder.write_json(JUDGEMENT_FILE, found.to_json())
        say(f"numbers  {folder.url.rstrip('/')}/{JUDGEMENT_FILE}")


def _detection(found: DetectionRate) -> str:
    """Say how many doublings of the error were flagged in time, and how many flags were idle."""
    if found.rate is None:
        told = f"none of {found.rollouts} rollouts to a case's end doubles its error"
    else:
        told = (
            f"{found.detected} of {found.doubled} rollouts whose error doubles are flagged at"
            f" least one step before ({found.rate:.0%})"
        )
        if found.median_lead is not None:
            told += f", by {found.median_lead:g} steps in the median"
    others = found.rollouts - found.doubled
    return f"detection  {told}; {found.flagged_in_vain} of the {others} others are flagged too"


def _table(found: MonitorJudgement) -> Table:
    table = Table("case, rolled out to its end", box=None, header_style="bold")
    names = ("steps", "flag at step", "error doubled at", "lead")
    for name in (*names, "error before (std)", "error from there on (std)"):
        table.add_column(name, justify="right")
    for each in found.watched:
        flag = each.quality.flagged_at
        before = each.errors[: None if flag is None else flag - 1]
        after = each.errors[len(each.errors) if flag is None else flag - 1 :]
        table.add_row(
            each.case,
            str(len(each.times)),
            "never" if flag is None else str(flag),
            "never" if each.detection.doubled_at is None else str(each.detection.doubled_at),
            "" if each.detection.lead is None else str(each.detection.lead),
            *(f"{part.mean():.2f}" if len(part) else "" for part in (before, after)),
        )
    return table
