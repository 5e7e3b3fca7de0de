"""Draw an overview for a terminal of eighty columns or more."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from courant.runs.summary import RunProgress
from courant.sweeps.sweep import TrialsProgress
from flows.observing.overview import Disk, Overview
from flows.terminal import counted
from simgen.case import Progress
from simgen.publish.card import size_text
from simgen.store.versions import DatasetProgress

COLOURS = {
    "solving": "green",
    "running": "green",
    "begun": "cyan",
    "silent": "yellow",
    "interrupted": "yellow",
    "unpublished": "yellow",
    "failed": "red",
}
MOST_ENDED = 5
"""Finished trainings that are shown; `courant runs ls` lists all"""
LOW_DISK = 0.05
"""Share of a disk that is too little"""


def draw(overview: Overview) -> RenderableType:
    """Return the tables of what there is, and what to do where there is nothing."""
    parts: list[RenderableType] = []
    if overview.datasets:
        parts += [_heading("datasets", overview.store), _datasets(overview.datasets), ""]
    if overview.cases:
        parts += [_heading("solving on this machine", ""), _cases(overview.cases), ""]
    running, ended = _in_order(overview.runs)
    if overview.runs:
        left_out = max(0, len(ended) - MOST_ENDED)
        shown = [*running, *ended[left_out:]]
        more = f"{overview.runs_url}{f', {left_out} more ended' if left_out else ''}"
        parts += [_heading("trainings", more), _runs(shown), ""]
    if overview.trials:
        parts += [_heading("sweeps and benchmarks", ""), _trials(overview.trials), ""]
    if not parts:
        where = f"nothing on record in {overview.store} and {overview.runs_url}"
        parts += [Text(where, overflow="fold"), Text("begin: courant run cylinder-flow"), ""]
    return Group(*parts, _disks(overview.disks))


def _heading(title: str, where: str) -> Text:
    return Text.assemble((title, "bold"), f"  {where}", overflow="fold")


def _table(*columns: str | Column) -> Table:
    return Table(*columns, box=None, header_style="dim", pad_edge=False, padding=(0, 1, 0, 0))


def _right(title: str) -> Column:
    return Column(title, justify="right", no_wrap=True)


def _name(title: str) -> Column:
    return Column(title, overflow="fold", min_width=14)


def _state(state: str) -> str:
    colour = COLOURS.get(state)
    return f"[{colour}]{state}[/{colour}]" if colour else state


def _datasets(found: Iterable[DatasetProgress]) -> Table:
    table = _table(
        _name("name"),
        Column("state", no_wrap=True),
        _right("accepted"),
        _right("rejected"),
        _right("failed"),
        _right("left"),
        _right("time left"),
        _right("core time"),
    )
    for each in found:
        name = each.url.rsplit("/", 1)[-1]
        table.add_row(
            escape(f"{name} {each.version or ''}".strip()),
            _state(each.state),
            *[str(number) for number in each.num_cases.values()],
            "" if each.num_left is None else str(each.num_left),
            short_time(each.left_s if each.state == "solving" else None),
            short_time(each.solver_s),
        )
    return table


def _cases(found: Iterable[Progress]) -> Table:
    table = _table(Column("", no_wrap=True), _right(""), Column("", overflow="fold"))
    table.show_header = False
    for each in found:
        left = f", {short_time(each.eta_s)} left" if each.eta_s is not None else ""
        table.add_row(each.case_id, f"{each.fraction:.0%}", escape(each.message + left))
    return table


def _in_order(runs: Iterable[RunProgress]) -> tuple[list[RunProgress], list[RunProgress]]:
    """Return those that may go on and those that have ended."""
    going = [run for run in runs if run.state not in ("finished", "stopped")]
    return going, [run for run in runs if run.state in ("finished", "stopped")]


def _runs(found: Iterable[RunProgress]) -> Table:
    table = _table(
        _name("name"),
        Column("state", no_wrap=True),
        _right("epoch"),
        _right("NMAE"),
        _right("samples/s"),
        _right("time left"),
    )
    for each in found:
        table.add_row(
            escape(each.name),
            _state(each.state),
            f"{each.epoch}/{each.epochs}",
            _error(each.validation_nmae),
            "" if each.samples_per_s is None else f"{each.samples_per_s:.3g}",
            short_time(each.left_s if each.state == "running" else None),
        )
    return table


def _trials(found: Iterable[TrialsProgress]) -> Table:
    table = _table(
        _name("name"), Column("state", no_wrap=True), Column("trials"), _right("best NMAE")
    )
    for each in found:
        table.add_row(
            escape(each.name), _state(each.state), _trial_states(each), _error(each.best_nmae)
        )
    return table


def _trial_states(sweep: TrialsProgress) -> str:
    """Format as `7/12 ended, 2 running`; failed and interrupted trials are told too."""
    told = [
        f"{sweep.num_trials[state]} {state}"
        for state in ("running", "interrupted", "failed")
        if sweep.num_trials.get(state)
    ]
    return ", ".join([f"{sweep.num_ended}/{sum(sweep.num_trials.values())} ended", *told])


def _error(nmae: float | None) -> str:
    return "" if nmae is None else f"{nmae:.3f}"


def _disks(disks: Iterable[Disk]) -> RenderableType:
    lines = []
    for disk in disks:
        low = disk.free_bytes < LOW_DISK * disk.total_bytes
        free = f"{size_text(disk.free_bytes)} of {size_text(disk.total_bytes)} free"
        lines.append(
            Text.assemble(
                ("disk", "bold"), f"  {disk.use}: ", (free, "red" if low else ""), overflow="fold"
            )
        )
    return Group(*lines)


def problem_line(problems: tuple[str, ...]) -> str:
    """Say in one line that something cannot be read."""
    more = f" ({counted(len(problems) - 1, 'further problem')})" if problems[1:] else ""
    return f"{problems[0]}{more}"


def short_time(seconds: float | None) -> str:
    """Format as `42 s`, `7 min`, `3.4 h` or `2.1 d`; an unknown time is empty."""
    if seconds is None:
        return ""
    for unit, scale, from_s in (("d", 86400, 2 * 86400), ("h", 3600, 5400), ("min", 60, 100)):
        if seconds >= from_s:
            amount = seconds / scale
            return f"{amount:.0f} {unit}" if unit == "min" else f"{amount:.1f} {unit}"
    return f"{seconds:.0f} s"
