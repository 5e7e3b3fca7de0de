"""The explorer's server over a model of this process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from courant.serving.explorer import Explored
from courant.serving.http_app import ServedModel, Solving, build_app, running


@contextmanager
def serving_explored(explored: Explored, solving: Solving | None = None) -> Iterator[str]:
    """Serve on a free port; yields the address."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    app = build_app("explored", ServedModel(explored), explored.limits, solving=solving)
    with running(app, listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
