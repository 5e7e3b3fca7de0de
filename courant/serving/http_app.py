"""Let the page have a design solved: a run that costs machine time, so it asks for a secret.

GET  /solving        whether this server can start the solver, and if not, why
POST /solves         start it on a design: {"parameters": {...}} -> Solve
GET  /solves/{id}    how far it is

The last two take the token of the address that the command prints, in the header X-Courant-Token: a
page of another site, or another user of this machine, does not have it. A browser's request from
another site's page is refused in any case. Who starts the solver is handed in: this package knows
nothing of it.
"""

# No `from __future__ import annotations` here: FastAPI reads the real types.

import asyncio
import json
import logging
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from typing import Any, Protocol
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator
from pydantic import BaseModel
from starlette.middleware.trustedhost import TrustedHostMiddleware

from courant.serving.explorer import DesignRequest, read_design
from courant.serving.model import ROUTES, Answer, Route
from courant.serving.predictions import Limits, ModelCard, Prediction, PredictRequest, Refusal
from simgen.errors import InputError

TOKEN = "x-courant-token"
logger = logging.getLogger("courant.serving")


class Solve(BaseModel):
    """A design that the solver was started on."""

    id: str
    state: str
    """in words, such as Running"""
    ended: bool
    url: str
    """a page that follows the run; empty where there is none"""
    reason: str
    """once it has ended: why the dataset has no accepted case of the design; else empty"""


class SolvingOffer(BaseModel):
    """Whether this server can start the solver."""

    available: bool
    reason: str
    """why not; else empty"""


class Solver(Protocol):
    """Starts the solver on a design. InputError for what cannot be done."""

    def begin(self, parameters: Mapping[str, float]) -> Solve: ...

    def look(self, solve: str) -> Solve: ...


@dataclass(frozen=True)
class Solving:
    """A solver for the page, with the token that it asks for; or why there is none."""

    solver: Solver | None = None
    reason: str = "only courant explore starts the solver"
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))


def add_solving(api: FastAPI, solving: Solving) -> None:
    """Add the routes to an application."""

    @api.get("/solving")
    async def offer() -> SolvingOffer:
        available = solving.solver is not None
        return SolvingOffer(available=available, reason="" if available else solving.reason)

    @api.post("/solves", response_model=Solve)
    async def begin(request: Request) -> Response:
        asked = read_design(await request.body(), DesignRequest)
        if isinstance(asked, Refusal):
            return _answer(422, asked)
        return await _carried_out(request, solving, lambda with_: with_.begin(asked.parameters))

    @api.get("/solves/{solve}", response_model=Solve)
    async def look(request: Request, solve: str) -> Response:
        return await _carried_out(request, solving, lambda with_: with_.look(solve))


async def _carried_out(
    request: Request, solving: Solving, what: Callable[[Solver], Solve]
) -> Response:
    if solving.solver is None:
        return _answer(404, Refusal(detail=solving.reason))
    if not _is_allowed(request, solving.token):
        return _answer(
            403, Refusal(detail="open the page by the whole address that the command has printed")
        )
    try:
        return _answer(200, await asyncio.to_thread(what, solving.solver))
    except InputError as error:
        return _answer(422, Refusal(detail=str(error)[:500]))
    except Exception:  # the page learns nothing of this machine, its log has it all
        logger.exception("the solver could not be asked")
        return _answer(502, Refusal(detail="Prefect's server could not be asked; the log says why"))


def _is_allowed(request: Request, token: str) -> bool:
    """Tell whether a request has the token, and does not come from another site's page."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        return False
    return secrets.compare_digest(request.headers.get(TOKEN, "").encode(), token.encode())


def _answer(status: int, content: BaseModel) -> Response:
    return Response(json.dumps(content.model_dump()), status, media_type="application/json")


MAX_REQUESTS = 64
"""Requests waiting or being answered"""
MAX_CONNECTIONS = 256
HEALTH_S = 5.0
RETRY_AFTER_S = 5
START_S = 60.0
STOP_S = 2
"""For answers in progress, when the command ends"""
logger = logging.getLogger("courant.serving")

PAGE = {
    "explorer.html": "text/html",
    "explorer.css": "text/css",
    **dict.fromkeys(
        (
            "explorer.js",
            "dependences.js",
            "nearest.js",
            "picture.js",
            "server.js",
            "solving.js",
            "surface.js",
            "tables.js",
        ),
        "text/javascript",
    ),
}
"""The files of the explorer's page, with their types"""


class Model(Protocol):
    """The model behind the routes."""

    async def predict(self, body: bytes) -> Answer: ...

    async def explore(self, route: Route, body: bytes) -> Answer: ...

    async def card(self) -> ModelCard: ...


def build_app(
    name: str,
    model: Model,
    limits: Limits,
    *,
    solving: Solving | None = None,
    hosts: Sequence[str] = ("*",),
) -> FastAPI:
    """Build the application; `name` is shown to clients.

    A request is answered only if its `Host` is one of `hosts`. Another site's page may have its own
    name lead to this machine's loopback (DNS rebinding), and would then read every answer.
    """
    # The page of the API loads nothing from elsewhere.
    api = FastAPIOffline(redoc_url=None, title="Courant", description=f"Predictions of {name}")
    max_bytes = int(limits.max_megabytes * 1e6)
    api.add_middleware(
        BodyLimit, max_bytes=max_bytes, max_held_bytes=4 * max_bytes, max_requests=MAX_REQUESTS
    )
    # Each application has a registry of its own; paths that clients make up are one label.
    measured = Instrumentator(should_group_status_codes=False, registry=CollectorRegistry())
    measured.instrument(api).expose(api, include_in_schema=False)
    api.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)

    async def respond(answered: Awaitable[Answer]) -> Response:
        try:
            status, content = await answered
        except Exception:  # the client learns nothing of this machine, its log has it all
            logger.exception("a request could not be answered")
            return _refusal(500, "the server failed on this request; its log says why")
        return Response(content, status, media_type="application/json")

    @api.post("/predict", response_model=Prediction, openapi_extra=_body("PredictRequest"))
    async def predict(request: Request) -> Response:
        return await respond(model.predict(await request.body()))

    def add(route: Route) -> None:
        types = ROUTES[route]

        async def answer(request: Request) -> Response:
            return await respond(model.explore(route, await request.body()))

        answer.__name__ = route
        if types.request is None:
            api.get(f"/{route}", response_model=types.answer)(answer)
        else:
            body = _body(types.request.__name__)
            api.post(f"/{route}", response_model=types.answer, openapi_extra=body)(answer)

    for route in ROUTES:
        add(route)
    add_solving(api, solving or Solving())

    for file, media_type in PAGE.items():
        api.get(f"/{file.removesuffix('.html')}", include_in_schema=False)(_page(file, media_type))

    @api.get("/model", response_model=ModelCard)
    async def card() -> ModelCard | Response:
        try:
            return await asyncio.wait_for(model.card(), HEALTH_S)
        except Exception:
            logger.exception("the model does not describe itself")
            return _refusal(503, "the model does not answer")

    @api.get("/health")
    async def health() -> Response:
        described = await card()
        if isinstance(described, Response):
            return described
        return Response(json.dumps({"status": "ready"}), media_type="application/json")

    api.openapi = partial(_describe, api)  # type: ignore[method-assign]
    return api


def _refusal(status: int, detail: str) -> Response:
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else None
    return Response(json.dumps({"detail": detail}), status, headers, "application/json")


def _page(file: str, media_type: str) -> Callable[[], Awaitable[Response]]:
    """Return a handler for a file of the explorer's page; it loads nothing from elsewhere."""
    content = (resources.files("courant.serving") / "page" / file).read_bytes()
    headers = {"content-security-policy": "default-src 'self'", "cache-control": "no-cache"}

    async def page() -> Response:
        return Response(content, 200, headers, media_type)

    return page


def _body(name: str) -> dict[str, Any]:
    schema = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    return {"requestBody": {"required": True, "content": {"application/json": schema}}}


def _describe(api: FastAPI) -> dict[str, Any]:
    """Complete the OpenAPI page with the body of a request.

    The body is parsed where the model is, so FastAPI does not know its type.
    """
    if not api.openapi_schema:
        schema = get_openapi(
            title=api.title, version=api.version, description=api.description, routes=api.routes
        )
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        asked: list[type[BaseModel]] = [PredictRequest]
        asked += [each.request for each in ROUTES.values() if each.request is not None]
        for of in asked:
            request = of.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= request.pop("$defs", {})
            schemas[of.__name__] = request
        api.openapi_schema = schema
    return api.openapi_schema


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGI = Callable[[Message, Receive, Send], Awaitable[None]]


class BodyLimit:
    """Read the bodies of requests within bounds, before anything parses them.

    Answers 413 where a body has more than `max_bytes`; 503 where the bodies of all waiting or
    active requests would exceed `max_held_bytes`, or their number `max_requests`.
    """

    def __init__(self, app: ASGI, max_bytes: int, max_held_bytes: int, max_requests: int) -> None:
        self.app, self.max_bytes = app, max_bytes
        self.max_held_bytes, self.max_requests = max_held_bytes, max_requests
        self._held_bytes = self._requests = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        if scope["type"] != "http" or (scope["method"] in ("GET", "HEAD") and not has_body):
            await self.app(scope, receive, send)
            return
        body = bytearray()
        self._requests += 1
        try:
            length = headers.get(b"content-length", b"")[:20]  # Python reads no endless number
            refusal, more = self._refusal(int(length) if length.isdigit() else 0), True
            while more and refusal is None:
                message = await receive()
                if message["type"] != "http.request":  # the client has gone
                    return
                part, more = message.get("body", b""), message.get("more_body", False)
                body += part
                self._held_bytes += len(part)
                refusal = self._refusal(len(body))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            await self.app(scope, _replay(bytes(body), receive), send)
        finally:
            self._requests -= 1
            self._held_bytes -= len(body)

    def _refusal(self, num_bytes: int) -> Response | None:
        """Return the answer to a request that exceeds a bound; None where it does not."""
        if num_bytes > self.max_bytes:
            limit = f"{self.max_bytes / 1e6:g} MB, which this server takes at most"
            return _refusal(413, f"the request has more than {limit}")
        if self._requests > self.max_requests or self._held_bytes > self.max_held_bytes:
            again = f"try again in {RETRY_AFTER_S} s"
            return _refusal(503, f"too many requests wait to be answered; {again}")
        return None


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class HttpServer:
    """Serve `app` on a bound socket, in a thread of this process, until it is stopped."""

    def __init__(self, app: FastAPI, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            http="h11",  # which bounds headers
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
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
