"""`courant status` and `courant metrics`: what is on record, as tables or for Prometheus."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from courant.loopback import LOOPBACK, in_address
from flows.request_models import AllowedHosts, Host, Port, Runs, Store, option
from flows.settings import Settings, absolute, load_settings
from flows.terminal import errors, fail, print_line, screen
from simgen.errors import InputError
from simgen.log_lines import duration_text, size_text

if TYPE_CHECKING:
    from flows.observing import Overview, Watch

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
    every: Annotated[float, option("Seconds between two looks.", min=0.5, max=86_400.0)] = 3.0,
    once: Annotated[bool, option("Print once and end, as without a terminal.", "--once")] = False,
    as_json: Annotated[bool, option("Print once, as JSON.", "--json")] = False,
) -> None:
    """Show datasets, cases, trainings, sweeps and disks, from records alone; Ctrl-C ends it."""
    from flows.observing import Watch

    watch = Watch(places(store, runs))
    if not (as_json or once) and screen.is_terminal:
        # Ctrl-C is how this is meant to end, and no interruption.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            draw_until_interrupted(watch, every, screen)
        return
    with errors.status("reading"):
        overview = watch.look()
    if as_json:
        record = asdict(overview)
        for each, written in zip(overview.datasets, record["datasets"], strict=True):
            written |= {"state": each.state, "left_s": each.left_s, "silent_s": each.silent_s}
        for sweep, written in zip(overview.trials, record["trials"], strict=True):
            written["state"] = sweep.state
        typer.echo(json.dumps(record, indent=2, default=str))
    else:
        screen.print(draw(overview))
    if overview.problems:
        fail("\n".join(overview.problems))


@status_app.command(epilog="Example: courant metrics --store s3://bucket/store --port 9464")
def metrics(
    store: Store = None,
    runs: Runs = None,
    host: Host = LOOPBACK,
    port: Port = 9464,
    allow_host: AllowedHosts = None,
    every: Annotated[float, option("Seconds between readings.", min=1.0, max=86_400.0)] = 15.0,
) -> None:
    """Serve metrics of datasets, trainings and sweeps to Prometheus, from records alone."""
    from flows.observing import RecordMetrics, Watch, metrics_server

    with errors.status("reading"):
        exported = RecordMetrics(Watch(places(store, runs)), every)
    serve, taken = metrics_server(exported, host, port, allow_host or ())
    print_line(f"serving  http://{in_address(host)}:{taken}/metrics   end with Ctrl-C")
    serve()


def places(store: str | None, runs: str | None) -> Settings:
    """Return where to look; InputError for a folder that was named and is not there."""
    for named, given in (("--store", store), ("--runs", runs)):
        if given and "://" not in absolute(given) and not Path(absolute(given)).is_dir():
            raise InputError(f"{named} {given} is no folder; give an existing one or s3://…")
    settings = load_settings()
    return replace(
        settings,
        store=absolute(store or settings.store).rstrip("/"),
        runs=absolute(runs or settings.runs).rstrip("/"),
    )


def draw_until_interrupted(watch: Watch, every: float, screen: Console) -> None:
    """Draw on a terminal, again every so many seconds."""
    with Live(Text("reading"), console=screen, screen=True, auto_refresh=False) as live:
        while True:
            overview = watch.look()
            parts = [draw(overview), Text(f"{time.strftime('%H:%M:%S')}  Ctrl-C ends this", "dim")]
            if overview.problems:
                parts.append(Text(f"error: {overview.problems[0]}", "red"))
            live.update(Group(*parts), refresh=True)
            time.sleep(every)


def draw(overview: Overview) -> RenderableType:
    """Return the tables of what there is, and what to do where there is nothing."""
    parts: list[RenderableType] = []
    where = overview.places

    def add(title: str, place: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table of name, state and figures, where there is a row."""
        figures = [Column(each, justify="right", no_wrap=True) for each in columns]
        first = Column("name", overflow="fold", min_width=14), Column("state", no_wrap=True)
        table = Table(*first, *figures, box=None, header_style="dim", pad_edge=False)
        for name, state, *cells in rows:
            table.add_row(escape(name), Text(state, COLOURS.get(state, "")), *cells)
        if rows:
            parts.extend([Text.assemble((title, "bold"), f"  {place}", overflow="fold"), table, ""])

    def time_left(seconds: float | None, is_going_on: bool) -> str:
        return duration_text(seconds) if is_going_on and seconds is not None else ""

    rows = []
    for each in overview.datasets:
        name = f"{each.url.rsplit('/', 1)[-1]} {each.version or ''}".strip()
        numbers = [*each.num_cases.values(), "" if each.num_left is None else each.num_left]
        left = time_left(each.left_s, each.state == "solving")
        rows.append([name, each.state, *map(str, numbers), left, duration_text(each.solver_s)])
    add(
        "datasets",
        where.store,
        ["accepted", "rejected", "failed", "left", "time left", "core time"],
        rows,
    )
    rows = []
    for case in overview.cases:
        left = f", {duration_text(case.eta_s)} left" if case.eta_s is not None else ""
        rows.append([case.case_id, f"{case.fraction:.0%}", case.message + left])
    add("solving on this machine", "", [""], rows)
    ended = [run for run in overview.runs if run.state in ("finished", "stopped")]
    left_out, rows = max(0, len(ended) - MOST_ENDED), []
    for run in [*(run for run in overview.runs if run not in ended), *ended[left_out:]]:
        nmae = "" if run.validation_nmae is None else f"{run.validation_nmae:.3f}"
        speed = "" if run.samples_per_s is None else f"{run.samples_per_s:.3g}"
        left = time_left(run.left_s, run.state == "running")
        rows.append([run.name, run.state, f"{run.epoch}/{run.epochs}", nmae, speed, left])
    more = f", {left_out} more ended" if left_out else ""
    add("trainings", f"{where.runs}{more}", ["epoch", "NMAE", "samples/s", "time left"], rows)
    rows = []
    for sweep in overview.trials:
        best = "" if sweep.best_nmae is None else f"{sweep.best_nmae:.3f}"
        num = sweep.num_trials
        others = [f"{num[s]} {s}" for s in ("running", "interrupted", "failed") if num.get(s)]
        states = ", ".join([f"{sweep.num_ended}/{sum(num.values())} ended", *others])
        rows.append([sweep.name, sweep.state, states, best])
    add("sweeps and benchmarks", "", ("trials", "best NMAE"), rows)
    if not parts:
        nothing = f"nothing on record in {where.store} and {where.runs}"
        parts += [Text(nothing, overflow="fold"), Text("begin: courant run cylinder-flow"), ""]
    for disk in overview.disks:
        style = "red" if disk.free_bytes < LOW_DISK * disk.total_bytes else ""
        free = f"{size_text(disk.free_bytes)} of {size_text(disk.total_bytes)} free"
        line = Text.assemble(("disk", "bold"), f"  {disk.use}: ", (free, style), overflow="fold")
        parts.append(line)
    return Group(*parts)
