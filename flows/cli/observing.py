"""`courant status` and `courant metrics`: what is on record, as tables or for Prometheus."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from courant.loopback import LOOPBACK, in_address
from flows.cli.options import AllowedHosts, Host, Port, Runs, Store
from flows.settings import absolute, load_settings
from flows.terminal import add_row, counted, errors, fail, print_line, screen
from simgen.errors import InputError

if TYPE_CHECKING:
    from flows.observing import Overview, Places, Watch

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

status_app = typer.Typer()


@status_app.command(epilog="Example: courant status --store demo-run/store --runs demo-run/runs")
def status(
    store: Store = None,
    runs: Runs = None,
    every: Annotated[
        float, typer.Option(min=0.5, max=86_400.0, help="Seconds between two looks, on a terminal.")
    ] = 3.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print once and end, as without a terminal.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print once, as JSON.")] = False,
) -> None:
    """Show what is going on: datasets, cases, trainings, sweeps, disks. Ctrl-C ends it.

    Reads records alone: no server has to run, and the store may be on S3.
    """
    from flows.observing import Watch

    watch = Watch(places(store, runs))
    if as_json:
        overview = watch.look()
        typer.echo(json.dumps(as_record(overview), indent=2, default=str))
    elif once or not screen.is_terminal:
        with errors.status("reading"):
            overview = watch.look()
        screen.print(draw(overview))
    else:
        # Ctrl-C is how this is meant to end, and no interruption.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            draw_until_interrupted(watch, every, screen)
        return
    if overview.problems:
        fail(problem_line(overview.problems))


@status_app.command(epilog="Example: courant metrics --store s3://bucket/store --port 9464")
def metrics(
    store: Store = None,
    runs: Runs = None,
    host: Host = LOOPBACK,
    port: Port = 9464,
    allow_host: AllowedHosts = None,
    every: Annotated[
        float,
        typer.Option(min=1.0, max=86_400.0, help="Seconds between two readings of the records."),
    ] = 15.0,
) -> None:
    """Serve metrics of datasets, trainings and sweeps to Prometheus, until it is interrupted.

    Reads records alone, of a folder or S3: it may be started and ended at any time.
    """
    from flows.observing import RecordMetrics, Watch, metrics_server

    with errors.status("reading"):
        exported = RecordMetrics(Watch(places(store, runs)), every)
    serve, taken = metrics_server(exported, host, port, allow_host or ())
    print_line(f"serving  http://{in_address(host)}:{taken}/metrics   end with Ctrl-C")
    serve()


def places(store: str | None, runs: str | None) -> Places:
    """Return where to look; InputError for a folder that was named and is not there."""
    from flows.observing import Places

    settings = load_settings()
    for option, given in (("--store", store), ("--runs", runs)):
        if given and "://" not in absolute(given) and not Path(absolute(given)).is_dir():
            raise InputError(f"{option} {given} is no folder; give an existing one or s3://…")
    return Places(
        absolute(store or settings.store).rstrip("/"),
        absolute(runs or settings.runs).rstrip("/"),
        settings.scratch,
    )


def as_record(overview: Overview) -> dict[str, object]:
    """Return everything that is known, with states and times that follow from it."""
    record = asdict(overview)
    for kind, properties in (("datasets", ("state", "left_s", "silent_s")), ("trials", ("state",))):
        for each, written in zip(getattr(overview, kind), record[kind], strict=True):
            written |= {name: getattr(each, name) for name in properties}
    return record


def draw_until_interrupted(watch: Watch, every: float, screen: Console) -> None:
    """Draw on a terminal, again every so many seconds."""
    with Live(Text("reading"), console=screen, screen=True, auto_refresh=False) as live:
        while True:
            overview = watch.look()
            parts = [draw(overview), Text(f"{time.strftime('%H:%M:%S')}  Ctrl-C ends this", "dim")]
            if overview.problems:
                parts.append(Text(f"error: {problem_line(overview.problems)}", "red"))
            live.update(Group(*parts), refresh=True)
            time.sleep(every)


def problem_line(problems: tuple[str, ...]) -> str:
    """Return one line on what cannot be read."""
    more = f" ({counted(len(problems) - 1, 'further problem')})" if problems[1:] else ""
    return f"{problems[0]}{more}"


def draw(overview: Overview) -> RenderableType:
    """Return the tables of what there is, and what to do where there is nothing."""
    from simgen.publish.card import size_text

    parts: list[RenderableType] = []
    if overview.datasets:
        table = _table(*["accepted", "rejected", "failed", "left"], "time left", "core time")
        for each in overview.datasets:
            table.add_row(
                escape(f"{each.url.rsplit('/', 1)[-1]} {each.version or ''}".strip()),
                _state(each.state),
                *[str(number) for number in each.num_cases.values()],
                "" if each.num_left is None else str(each.num_left),
                short_time(each.left_s if each.state == "solving" else None),
                short_time(each.solver_s),
            )
        parts += [_heading("datasets", overview.store), table, ""]
    if overview.cases:
        table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 1, 0, 0))
        for case in overview.cases:
            left = f", {short_time(case.eta_s)} left" if case.eta_s is not None else ""
            add_row(table, case.case_id, f"{case.fraction:.0%}", case.message + left)
        parts += [_heading("solving on this machine", ""), table, ""]
    if overview.runs:
        ended = [run for run in overview.runs if run.state in ("finished", "stopped")]
        left_out = max(0, len(ended) - MOST_ENDED)
        table = _table("epoch", "NMAE", "samples/s", "time left")
        for run in [*(run for run in overview.runs if run not in ended), *ended[left_out:]]:
            table.add_row(
                escape(run.name),
                _state(run.state),
                f"{run.epoch}/{run.epochs}",
                "" if run.validation_nmae is None else f"{run.validation_nmae:.3f}",
                "" if run.samples_per_s is None else f"{run.samples_per_s:.3g}",
                short_time(run.left_s if run.state == "running" else None),
            )
        more = f"{overview.runs_url}{f', {left_out} more ended' if left_out else ''}"
        parts += [_heading("trainings", more), table, ""]
    if overview.trials:
        table = _table(Column("trials"), "best NMAE")
        for sweep in overview.trials:
            best = "" if sweep.best_nmae is None else f"{sweep.best_nmae:.3f}"
            num = sweep.num_trials
            others = [f"{num[s]} {s}" for s in ("running", "interrupted", "failed") if num.get(s)]
            states = ", ".join([f"{sweep.num_ended}/{sum(num.values())} ended", *others])
            table.add_row(escape(sweep.name), _state(sweep.state), states, best)
        parts += [_heading("sweeps and benchmarks", ""), table, ""]
    if not parts:
        where = f"nothing on record in {overview.store} and {overview.runs_url}"
        parts += [Text(where, overflow="fold"), Text("begin: courant run cylinder-flow"), ""]
    for disk in overview.disks:
        style = "red" if disk.free_bytes < LOW_DISK * disk.total_bytes else ""
        free = f"{size_text(disk.free_bytes)} of {size_text(disk.total_bytes)} free"
        parts.append(
            Text.assemble(("disk", "bold"), f"  {disk.use}: ", (free, style), overflow="fold")
        )
    return Group(*parts)


def _heading(title: str, where: str) -> Text:
    return Text.assemble((title, "bold"), f"  {where}", overflow="fold")


def _table(*columns: str | Column) -> Table:
    """Return a table of name, state and figures."""
    figures = [
        each if isinstance(each, Column) else Column(each, justify="right", no_wrap=True)
        for each in columns
    ]
    first = Column("name", overflow="fold", min_width=14), Column("state", no_wrap=True)
    table = Table(*first, *figures, box=None, header_style="dim", padding=(0, 1, 0, 0))
    table.pad_edge = False
    return table


def _state(state: str) -> str:
    colour = COLOURS.get(state)
    return f"[{colour}]{state}[/{colour}]" if colour else state


def short_time(seconds: float | None) -> str:
    """Format as `42 s`, `7 min`, `3.4 h` or `2.1 d`; an unknown time is empty."""
    if seconds is None:
        return ""
    for unit, scale, from_s in (("d", 86400, 2 * 86400), ("h", 3600, 5400), ("min", 60, 100)):
        if seconds >= from_s:
            amount = seconds / scale
            return f"{amount:.0f} {unit}" if unit == "min" else f"{amount:.1f} {unit}"
    return f"{seconds:.0f} s"
