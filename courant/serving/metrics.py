"""Measure the requests to a served model, for Prometheus at GET /metrics.

Each application has a registry of its own. Only the routes that ask the model are measured, under
their own names: a path that a client makes up never becomes a label. Requests that are turned away
at the door count as well.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from fastapi import Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from courant.serving.body_limit import ASGI, Message, Receive, Send

#: Seconds: from a small model on a GPU to one that meshes first, and the time limit.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
GONE = "gone"
"""In place of a status, where the client has gone before its answer"""


class RequestMetrics:
    """Count and time requests by route."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "courant_served_requests",
            "Requests to the model, answered or turned away",
            ("route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "courant_served_request_seconds",
            "From a request's first byte to its answer",
            ("route",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "courant_served_requests_waiting",
            "Requests that wait for the model or are being answered",
            ("route",),
            registry=self.registry,
        )

    def page(self) -> Response:
        """Return what Prometheus reads."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


class Measured:
    """Measure the requests to some routes, as ASGI middleware outside of all other."""

    def __init__(self, app: ASGI, metrics: RequestMetrics, routes: Collection[str]) -> None:
        self.app, self._metrics, self._routes = app, metrics, routes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        route = str(scope.get("path", "")).removeprefix("/")
        if scope["type"] != "http" or route not in self._routes:
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), GONE

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        self._metrics.waiting.labels(route).inc()
        try:
            await self.app(scope, receive, note_status)
        finally:
            self._metrics.waiting.labels(route).dec()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - began)
            self._metrics.requests.labels(route, status).inc()
