"""Serve the metrics of records over HTTP until the process is interrupted."""

from __future__ import annotations

import signal
import threading
from socketserver import BaseServer

from prometheus_client import CollectorRegistry, start_http_server

from courant.loopback import cannot_listen
from flows.observing.metrics import RecordMetrics
from simgen.errors import InputError


def serve_metrics(metrics: RecordMetrics, host: str, port: int) -> tuple[BaseServer, int]:
    """Serve at http://host:port/metrics in a thread; return the server and its port.

    InputError where the port cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise InputError(cannot_listen(host, port, error)) from error
    return server, int(server.server_port)


def refresh_until_asked_to_end(metrics: RecordMetrics, every_s: float) -> None:
    """Read the records every so many seconds, until SIGTERM or Ctrl-C."""
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    metrics.keep_fresh(every_s, asked_to_end)
