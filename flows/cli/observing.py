"""`courant status` and `courant metrics`: what is on record, in a table or for Prometheus."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from courant.loopback import LOOPBACK, in_address
from flows.cli.options import AllowedHosts, Runs, Store, allowed_hosts
from flows.settings import absolute, load_settings
from flows.terminal import errors, fail, one_line_errors, print_line, screen
from simgen.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from flows.observing.overview import Overview, Places, Watch


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
    with one_line_errors():
        from flows.observing.overview import Watch
        from flows.observing.screen import draw, problem_line

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
                keep_up(watch, every, screen)
            return
        if overview.problems:
            fail(problem_line(overview.problems))


def places(store: str | None, runs: str | None) -> Places:
    """Return where to look; InputError for a folder that was named and is not there."""
    from flows.observing.overview import Places

    settings = load_settings()
    for option, given in (("--store", store), ("--runs", runs)):
        if not given or "://" in absolute(given):
            continue
        try:
            is_folder = Path(absolute(given)).is_dir()
        except OSError as error:
            raise InputError(f"{option} {given} cannot be read: {error.strerror}") from error
        if not is_folder:
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
        for each, told in zip(getattr(overview, kind), record[kind], strict=True):
            told |= {name: getattr(each, name) for name in properties}
    return record


def keep_up(watch: Watch, every: float, screen: Console) -> None:
    """Draw on a terminal, again every so many seconds, until it is interrupted."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from flows.observing.screen import draw, problem_line

    with Live(Text("reading"), console=screen, screen=True, auto_refresh=False) as live:
        while True:
            overview = watch.look()
            told = [draw(overview), Text(f"{time.strftime('%H:%M:%S')}  Ctrl-C ends this", "dim")]
            if overview.problems:
                told.append(Text(f"error: {problem_line(overview.problems)}", "red"))
            live.update(Group(*told), refresh=True)
            time.sleep(every)


PORT = 9464

metrics_app = typer.Typer()


@metrics_app.command(epilog="Example: courant metrics --store s3://bucket/store --port 9464")
def metrics(
    store: Store = None,
    runs: Runs = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = PORT,
    allow_host: AllowedHosts = None,
    every: Annotated[
        float,
        typer.Option(min=1.0, max=86_400.0, help="Seconds between two readings of the records."),
    ] = 15.0,
) -> None:
    """Serve metrics of datasets, trainings and sweeps to Prometheus, until it is interrupted.

    Reads records alone, of a folder or S3: it may be started and ended at any time.
    """
    with one_line_errors():
        from flows.observing.metrics import RecordMetrics, metrics_server
        from flows.observing.overview import Watch

        names = allowed_hosts(allow_host)
        with errors.status("reading"):
            exported = RecordMetrics(Watch(places(store, runs)), every)
        serve, taken = metrics_server(exported, host, port, names)
        print_line(f"serving  http://{in_address(host)}:{taken}/metrics   end with Ctrl-C")
        serve()
