"""Serve the metrics of records over HTTP until the process is interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from prometheus_client import CollectorRegistry, make_asgi_app
from starlette.middleware.trustedhost import TrustedHostMiddleware

from courant.loopback import answered_names, listen
from flows.observing.metrics import RecordMetrics

MAX_CONNECTIONS = 64


@contextmanager
def serving_metrics(
    metrics: RecordMetrics, host: str, port: int, names: Sequence[str] = ()
) -> Iterator[int]:
    """Serve at http://host:port/metrics in a thread; yield the port.

    On loopback, and where `names` are given, requests for other hosts are not answered. InputError
    where the port cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
    listener = listen(host, port, MAX_CONNECTIONS)
    hosts = answered_names(listener, host, names)
    app = TrustedHostMiddleware(make_asgi_app(registry), allowed_hosts=hosts, www_redirect=False)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()


def refresh_until_asked_to_end(metrics: RecordMetrics, every_s: float) -> None:
    """Read the records every so many seconds, until SIGTERM or Ctrl-C."""
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    metrics.keep_fresh(every_s, asked_to_end)
