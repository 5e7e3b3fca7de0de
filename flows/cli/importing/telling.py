"""Tell what an import would do, what it refuses, and what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from flows.terminal import counted, errors, progress_bar, say, screen, tell

if TYPE_CHECKING:
    from simgen.imports.folder_plan import FolderPlan
    from simgen.imports.importing import Imported

OnProgress = Callable[[int, int], None]
OnRefused = Callable[[str, str], None]


def import_or_tell(
    plan: FolderPlan,
    kinds: list[str],
    run: Callable[[OnProgress, OnRefused], Imported],
    dry_run: bool,
) -> None:
    """Tell what is refused, then import, or say what would be."""
    for each in plan.refused:
        _print_refused(each.case, each.reason)
    for each in plan.left_out:
        text = escape(f"{each.case}: {each.reason}")
        errors.print(f"[yellow]left out[/yellow] {text}", highlight=False, soft_wrap=True)
    for note in plan.notes:
        _print_note(note)
    if dry_run:
        _print_plan(plan, kinds)
        return
    with progress_bar("importing cases") as on_progress:
        done = run(on_progress, _print_refused)
    for name, number in done.in_double.items():
        _print_note(
            f"{name} is stored in double precision in {counted(number, 'case')}: single precision"
            " would round away what varies of it"
        )
    for case in done.left_out:
        _print_note(
            f"{case} has nearly all of the variance of a field, as a diverged case has: statistics,"
            f" training and validation leave it out, a test does not; to remove it:"
            f" courant dataset withdraw {done.url} {case}"
        )
    refused = done.num_refused + len(plan.refused)
    say(
        f"{done.url} {done.version}: {counted(done.num_cases, 'case')} of the folder,"
        f" {done.num_new} new{f', {refused} refused' if refused else ''}{_num_left_out(plan)}"
    )


def _num_left_out(plan: FolderPlan) -> str:
    return f", {len(plan.left_out)} left out" if plan.left_out else ""


def _print_note(text: str) -> None:
    errors.print(f"[yellow]note:[/yellow] {escape(text)}", soft_wrap=True)


def _print_refused(case: str, reason: str) -> None:
    text = escape(f"{case}: {reason}")
    errors.print(f"[bold yellow]refused[/bold yellow] {text}", highlight=False, soft_wrap=True)


def _print_plan(plan: FolderPlan, kinds: list[str]) -> None:
    """Print the schema, the cases and their splits."""
    schema = plan.schema
    form = "transient" if schema.transient else "steady"
    tell(f"[bold]{escape(plan.url)}[/bold]: {form} cases in {schema.dimension} dimensions")
    for field in schema.fields:
        text = f"{field.name} ({field.unit}): {', '.join(field.components)}"
        file = f", from {field.openfoam}" if field.openfoam else ""
        given = ", given" if field.role == "given" else ""
        tell(f"  {escape(text + file + given)}")
    for each in schema.parameters:
        unit = f" {each.unit}" if each.unit else ""
        tell(f"  parameter {escape(f'{each.name}: {each.low:g} to {each.high:g}{unit}')}")
    for text in kinds:
        tell(f"  patches of kind {escape(text)}")
    table = Table(box=None, header_style="bold")
    names = [each.name for each in schema.parameters]
    for title in ("case", "place", *names, "times", "split", ""):
        table.add_column(title, overflow="fold")
    for case in plan.cases:
        times = "last" if case.times is None else f"{len(case.times)} to {case.times[-1]:g} s"
        values = [f"{case.parameters[name]:g}" for name in names]
        there = "on record" if case.name in plan.on_record else ""
        table.add_row(
            case.name, escape(case.place), *values, times, plan.splits.get(case.name, ""), there
        )
    screen.print(table)
    splits = list(plan.splits.values())
    counts = ", ".join(f"{splits.count(each)} {each}" for each in dict.fromkeys(splits))
    say(
        f"would import {counted(len(plan.cases) - len(plan.on_record), 'new case')}"
        f" ({counts} in all), {len(plan.refused)} refused{_num_left_out(plan)}; values are checked"
        " as they are read"
    )
