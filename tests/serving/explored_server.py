"""The explorer's server over a model of this process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from courant.serving.explorer import Explored
from courant.serving.http_app import HttpServer, ServedModel, Solving, build_app


@contextmanager
def serving_explored(explored: Explored, solving: Solving | None = None) -> Iterator[str]:
    """Serve on a free port; yields the address."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    app = build_app("explored", ServedModel(explored), explored.limits, solving=solving)
    server = HttpServer(app, listener)
    server.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
