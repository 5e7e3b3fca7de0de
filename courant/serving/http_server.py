"""Run an ASGI application on a socket, in a thread of this process, until it is stopped."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import uvicorn
from fastapi import FastAPI

from courant.serving.http_deadlines import DeadlineProtocol

MAX_CONNECTIONS = 256
STOP_S = 3
"""For answers in progress; a command that is interrupted has 8 s for this and all else"""
START_S = 60.0


class HttpServer:
    """Serve `app` on a bound socket."""

    def __init__(
        self,
        app: FastAPI,
        listener: socket.socket,
        protocol: type[DeadlineProtocol] = DeadlineProtocol,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=STOP_S,
        )
        self._server, self._listener = uvicorn.Server(config), listener
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)

    def start(self) -> None:
        """Start; return once it answers."""
        self._thread.start()
        until = time.monotonic() + START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("the HTTP server did not start; its log says why")
            time.sleep(0.02)

    def stop(self) -> None:
        """Finish the answers in progress, within STOP_S."""
        self._server.should_exit = True
        self._thread.join(STOP_S + 1)

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listener]))
