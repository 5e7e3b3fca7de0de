"""The explorer's server over a model of this process, without Ray."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from courant.serving.answers import answer
from courant.serving.explorer import Explored
from courant.serving.http_app import build_app
from courant.serving.http_server import HttpServer
from courant.serving.requests import ModelCard, Refusal, describe, parse_request
from courant.serving.routes import Route, answer_route
from courant.serving.solving import Solving


class InProcess:
    """Answers as the Ray deployment does."""

    def __init__(self, explored: Explored) -> None:
        self._explored = explored

    async def predict(self, body: bytes) -> tuple[int, bytes]:
        limits = self._explored.limits
        asked = [parse_request(body, limits)]
        (given,) = await asyncio.to_thread(answer, asked, self._explored.surrogate, limits)
        return 422 if isinstance(given, Refusal) else 200, given.model_dump_json().encode()

    async def explore(self, route: Route, body: bytes) -> tuple[int, bytes]:
        given = await asyncio.to_thread(answer_route, route, body, self._explored)
        return 422 if isinstance(given, Refusal) else 200, given.model_dump_json().encode()

    async def card(self) -> ModelCard:
        return describe(self._explored.surrogate, self._explored.limits)

    async def is_well(self) -> bool:
        return True


@contextmanager
def serving_explored(explored: Explored, solving: Solving | None = None) -> Iterator[str]:
    """Serve on a free port; yields the address."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    app = build_app("explored", InProcess(explored), explored.limits, solving=solving)
    server = HttpServer(app, listener)
    server.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
