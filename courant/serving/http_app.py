"""Serve a model over HTTP: routes, bounds and the server. GET /docs lists every route and field.

The model is loaded in this process (`ServedModel`) or on a cluster (`ray_serve`), which parses the
bodies. Slow and silent clients are the business of a proxy: uvicorn bounds headers and the number
of connections, and `Bodies` the bodies. A request that cannot be answered gets a 422 with the
reason, one that is too large a 413, and where too many wait a 503 with Retry-After.

A solve costs machine time: /solves takes the token of the address that the command prints, in the
header X-Courant-Token. A page of another site, or another user of this machine, does not have it,
and a browser's request from another site's page gets a 403 in any case.
"""

# No `from __future__ import annotations` here: FastAPI reads the real types.
import asyncio
import logging
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator
from pydantic import BaseModel
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect

from courant.prediction.surrogate import load
from courant.serving.explorer import (
    ContributionRequest,
    Dependences,
    DesignAnswer,
    DesignRequest,
    Explored,
    NearestDesigns,
    NearestRequest,
    Section,
    SectionRequest,
    Surface,
    ValueSum,
)
from courant.serving.predictions import (
    FAULT,
    Answer,
    Limits,
    ModelCard,
    Prediction,
    PredictRequest,
    RequestError,
    answer,
    describe,
    read_json,
)
from simgen.errors import InputError
from simgen.solving.preparation import keep_process_ready

MAX_REQUESTS = 64
"""Requests waiting or being answered"""
MAX_CONNECTIONS = 256
MAX_BATCH = 16
"""Predictions in one pass through the model"""
MAX_MESHED = 2
"""Designs that are meshed at the same time, on all routes together, a core each"""
MAX_DESIGN_BYTES = 10_000
"""Of a request for a design, which is a handful of numbers"""
HEALTH_S = 5.0
RETRY_AFTER_S = 5
START_S = 60.0
STOP_S = 2
"""For answers in progress, when the command ends"""
TOKEN = "x-courant-token"
logger = logging.getLogger("courant.serving")

Asked = TypeVar("Asked", bound=BaseModel)
Route = Literal["designs", "sections", "contributions", "surfaces", "nearest", "dependences"]


class RouteTypes(NamedTuple):
    """The request and the answer of a route."""

    request: type[BaseModel] | None
    """None where it takes nothing, which is a GET"""
    answer: type[BaseModel]
    call: Callable[[Explored, Any], BaseModel]
    meshes: bool = True
    """Whether a design may have to be meshed for it"""


ROUTES: dict[Route, RouteTypes] = {
    "designs": RouteTypes(DesignRequest, DesignAnswer, Explored.design),
    "sections": RouteTypes(SectionRequest, Section, Explored.section),
    "contributions": RouteTypes(ContributionRequest, ValueSum, Explored.contributions),
    "surfaces": RouteTypes(DesignRequest, Surface, Explored.surface),
    "nearest": RouteTypes(NearestRequest, NearestDesigns, Explored.nearest, False),
    "dependences": RouteTypes(None, Dependences, lambda of, _: of.dependences(), False),
}


class Model(Protocol):
    """The model behind the routes."""

    async def predict(self, body: bytes) -> Answer: ...

    async def explore(self, route: Route, body: bytes) -> Answer: ...

    async def card(self) -> ModelCard: ...


class ServedModel:
    """A model that is loaded in this process.

    Predictions that wait while the model is busy go through it together, and few designs are meshed
    at the same time.
    """

    def __init__(self, explored: Explored) -> None:
        self.explored = explored
        self._waiting: list[tuple[bytes, asyncio.Future[Answer]]] = []
        self._predicting: asyncio.Task[None] | None = None
        self._meshing = asyncio.Semaphore(MAX_MESHED)

    @classmethod
    def load(cls, run: str, limits: Limits, dataset: str | None = None) -> "ServedModel":
        """Load a run; `dataset` is the place of its dataset, None where it must not be opened."""
        surrogate = load(run)
        if surrogate.step_s is None:
            keep_process_ready()
        return cls(Explored(surrogate, limits, dataset))

    async def predict(self, body: bytes) -> Answer:
        """Answer a request for a prediction."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, answered))
        if self._predicting is None:
            self._predicting = asyncio.create_task(self._predict_waiting())
        return await answered

    async def _predict_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            try:
                found = await asyncio.to_thread(self._predict, [body for body, _ in batch])
            except Exception:
                logger.exception("requests could not be answered")
                found = [FAULT.answer] * len(batch)
            for (_, answered), given in zip(batch, found, strict=True):
                if not answered.done():  # its client has gone
                    answered.set_result(given)
        self._predicting = None

    def _predict(self, bodies: list[bytes]) -> list[Answer]:
        return answer(bodies, self.explored.surrogate, self.explored.limits)

    async def explore(self, route: Route, body: bytes) -> Answer:
        """Answer a request for a design."""
        types = ROUTES[route]
        turn: AbstractAsyncContextManager[Any] = self._meshing if types.meshes else nullcontext()
        try:
            request = None if types.request is None else read_design(body, types.request)
            async with turn:
                found = await asyncio.to_thread(types.call, self.explored, request)
        except RequestError as error:
            return error.answer
        return 200, found.model_dump_json().encode()

    async def card(self) -> ModelCard:
        """Describe the model."""
        return describe(self.explored.surrogate, self.explored.limits)


def read_design(body: bytes, kind: type[Asked]) -> Asked:
    """Read a request that names a design, and is short."""
    if len(body) > MAX_DESIGN_BYTES:
        raise RequestError(f"the request has more than {MAX_DESIGN_BYTES:,} bytes")
    return read_json(body, kind)


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

    async def call(self, request: Request, ask: Callable[[Solver], Solve]) -> Answer:
        """Ask the solver, for a request that has the token and is of this server's own page."""
        if self.solver is None:
            raise HTTPException(404, self.reason)
        headers = request.headers
        origin, token = headers.get("origin"), headers.get(TOKEN, "").encode()
        own = origin is None or urlsplit(origin).netloc == headers.get("host")
        if not own or not secrets.compare_digest(token, self.token.encode()):
            raise HTTPException(403, "open the page by the whole address that the command printed")
        try:
            found = await asyncio.to_thread(ask, self.solver)
        except InputError as error:
            return RequestError(str(error)).answer
        except Exception:  # the page learns nothing of this machine, its log has it all
            logger.exception("the solver could not be asked")
            raise HTTPException(
                502, "Prefect's server could not be asked; the log has the reason"
            ) from None
        return 200, found.model_dump_json().encode()


class Bodies:
    """The bodies of all requests that wait or are being answered, within bounds."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.max_held_bytes = max_bytes, 4 * max_bytes
        self._held_bytes = self._requests = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read a body, before anything parses it.

        413 where it has more than `max_bytes`; 503 where all bodies would exceed `max_held_bytes`,
        or their number MAX_REQUESTS.
        """
        length = request.headers.get("content-length", "")[:20]  # Python reads no endless number
        body = bytearray()
        self._requests += 1
        try:
            self._check(int(length) if length.isdigit() else 0)
            async for part in request.stream():
                body += part
                self._held_bytes += len(part)
                self._check(len(body))
            yield bytes(body)
        finally:
            self._requests -= 1
            self._held_bytes -= len(body)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self.max_bytes:
            limit = f"{self.max_bytes / 1e6:g} MB, which this server takes at most"
            raise HTTPException(413, f"the request has more than {limit}")
        if self._requests > MAX_REQUESTS or self._held_bytes > self.max_held_bytes:
            raise _overloaded(f"too many requests wait; try again in {RETRY_AFTER_S} s")


def _overloaded(detail: str) -> HTTPException:
    return HTTPException(503, detail, {"retry-after": str(RETRY_AFTER_S)})


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
    bodies, offer = Bodies(int(limits.max_megabytes * 1e6)), solving or Solving()
    # Each application has a registry of its own; paths that clients make up are one label.
    measured = Instrumentator(should_group_status_codes=False, registry=CollectorRegistry())
    measured.instrument(api).expose(api, include_in_schema=False)
    api.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    api.add_exception_handler(ClientDisconnect, lambda *_: Response(status_code=400))

    def add(
        path: str,
        request_type: type[BaseModel] | None,
        answer_type: type[BaseModel],
        ask: Callable[[Request, bytes], Awaitable[Answer]],
    ) -> None:
        """Add a route; one with a request is a POST, whose body is parsed where the model is."""

        async def respond(request: Request) -> Response:
            async with bodies.read(request) as body:
                try:
                    status, content = await ask(request, body)
                except HTTPException:
                    raise
                except Exception:  # the client learns nothing of this machine, its log has it all
                    logger.exception("a request could not be answered")
                    status, content = FAULT.answer
                headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else None
                return Response(content, status, headers, "application/json")

        respond.__name__ = path.split("/")[1]
        if request_type is None:
            api.get(path, response_model=answer_type)(respond)
            return
        schema = {"schema": {"$ref": f"#/components/schemas/{request_type.__name__}"}}
        body_of = {"requestBody": {"required": True, "content": {"application/json": schema}}}
        api.post(path, response_model=answer_type, openapi_extra=body_of)(respond)

    async def begin(request: Request, body: bytes) -> Answer:
        try:
            asked = read_design(body, DesignRequest)
        except RequestError as error:
            return error.answer
        return await offer.call(request, lambda solver: solver.begin(asked.parameters))

    async def look(request: Request, _: bytes) -> Answer:
        return await offer.call(request, lambda solver: solver.look(request.path_params["solve"]))

    async def is_offered(*_: object) -> Answer:
        reason = "" if offer.solver else offer.reason
        offered = SolvingOffer(available=offer.solver is not None, reason=reason)
        return 200, offered.model_dump_json().encode()

    add("/predict", PredictRequest, Prediction, lambda _, body: model.predict(body))
    for route, types in ROUTES.items():

        async def ask(_: Request, body: bytes, route: Route = route) -> Answer:
            return await model.explore(route, body)

        add(f"/{route}", types.request, types.answer, ask)
    add("/solving", None, SolvingOffer, is_offered)
    add("/solves", DesignRequest, Solve, begin)
    add("/solves/{solve}", None, Solve, look)

    for file in (resources.files("courant.serving") / "page").iterdir():
        path = f"/{file.name.removesuffix('.html')}"
        api.get(path, include_in_schema=False)(_page(file.name, file.read_bytes()))

    @api.get("/model", response_model=ModelCard)
    async def card() -> ModelCard:
        try:
            return await asyncio.wait_for(model.card(), HEALTH_S)
        except Exception:
            logger.exception("the model does not describe itself")
            raise _overloaded("the model does not answer") from None

    @api.get("/health")
    async def health() -> dict[str, str]:
        await card()
        return {"status": "ready"}

    def describe_api() -> dict[str, Any]:
        if not api.openapi_schema:
            schema = get_openapi(
                title=api.title, version=api.version, description=api.description, routes=api.routes
            )
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            asked: list[type[BaseModel]] = [PredictRequest]
            asked += [each.request for each in ROUTES.values() if each.request]
            for of in asked:
                request = of.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas |= request.pop("$defs", {})
                schemas[of.__name__] = request
            api.openapi_schema = schema
        return api.openapi_schema

    api.openapi = describe_api  # type: ignore[method-assign]
    return api


def _page(file: str, content: bytes) -> Callable[[], Awaitable[Response]]:
    """Return a handler for a file of the explorer's page; it loads nothing from elsewhere."""
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
    headers = {"content-security-policy": "default-src 'self'", "cache-control": "no-cache"}

    async def page() -> Response:
        return Response(content, 200, headers, kinds[file.rpartition(".")[2]])

    return page


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
        self._server = uvicorn.Server(config)
        serve = self._server.serve
        self._thread = threading.Thread(
            target=lambda: asyncio.run(serve(sockets=[listener])), name="http", daemon=True
        )

    def start(self) -> None:
        """Start; return once it answers."""
        self._thread.start()
        until = time.monotonic() + START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("the HTTP server did not start; its log has the reason")
            time.sleep(0.02)

    def stop(self) -> None:
        """Finish the answers in progress, within STOP_S."""
        self._server.should_exit = True
        self._thread.join(STOP_S + 1)
