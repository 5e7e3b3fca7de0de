"""`courant metrics`: what is on record, for Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer

from courant.loopback import LOOPBACK, in_address
from flows.cli.observing.status import places
from flows.cli.options import AllowedHosts, Runs, Store, allowed_hosts
from flows.terminal import errors, one_line_errors, say

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
        say(f"serving  http://{in_address(host)}:{taken}/metrics   end with Ctrl-C")
        serve()
