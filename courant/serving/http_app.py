"""Serve a model over HTTP: routes, bounds and the server. GET /docs lists every route and field.

The model is loaded in this process (`ServedModel`) or on a cluster (`ray_serve`). uvicorn bounds
headers and connections; slow clients are the business of a proxy. A solve costs machine time, so
/solves takes the token of the address that the command prints (X-Courant-Token), and no request
from a page of another site.
"""

# No `from __future__ import annotations` here: FastAPI reads the real types.
import asyncio
import logging
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib import resources
from mimetypes import guess_type
from typing import Any, Protocol, get_type_hints
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry
from prometheus_fastapi_instrumentator import Instrumentator
from pydantic import BaseModel
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse
from starlette.routing import Route as FileRoute

from courant.prediction.surrogate import load
from courant.serving import predictions
from courant.serving.explorer import DesignRequest, Explored
from courant.serving.predictions import Answer, Limits, ModelCard, RequestError, read_json
from simgen.errors import InputError
from simgen.solving.preparation import keep_process_ready

#: Connections, designs meshed at a time, and bytes of a design's request.
MAX_CONNECTIONS, MAX_MESHED, MAX_DESIGN_BYTES = 64, 2, 10_000
HEALTH_S, START_S, STOP_S = 5.0, 60.0, 2  # for a description, a start, and answers at the end
logger = logging.getLogger("courant.serving")


#: Methods that answer a request for a design; `_types` reads theirs.
ROUTES: dict[str, Callable[..., BaseModel | bytes]] = {
    "designs": Explored.design,
    "sections": Explored.section,
    "contributions": Explored.contributions,
    "surfaces": Explored.surface,
    "exports": Explored.export,
    "nearest": Explored.nearest,
    "curves": Explored.curve,
}
FILE = "application/octet-stream"


def _types(route: str) -> tuple[type[BaseModel], type[BaseModel | bytes]]:
    """Return the types of a route's request and of its answer."""
    types = get_type_hints(ROUTES[route])
    return types["request"], types["return"]


class Model(Protocol):
    """The model behind the routes."""

    async def predict(self, body: bytes) -> Answer: ...

    async def explore(self, route: str, body: bytes) -> Answer: ...

    async def card(self) -> ModelCard: ...


class ServedModel:
    """A model that is loaded in this process, for one prediction at a time."""

    def __init__(self, explored: Explored) -> None:
        self.explored = explored
        self._predicting, self._meshing = asyncio.Lock(), asyncio.Semaphore(MAX_MESHED)

    @classmethod
    def load(
        cls, run: str, limits: Limits, dataset: str | None = None, verdict: str = ""
    ) -> "ServedModel":
        """Load a run; the others are those of `Explored`."""
        surrogate = load(run)
        if surrogate.step_s is None:
            keep_process_ready()
        return cls(Explored(surrogate, limits, dataset, verdict))

    async def predict(self, body: bytes) -> Answer:
        explored = self.explored
        async with self._predicting:
            given = (body, explored.surrogate, explored.limits)
            return await asyncio.to_thread(predictions.answer, *given)

    async def explore(self, route: str, body: bytes) -> Answer:
        kind, _ = _types(route)
        try:
            request = read_json(body, kind, MAX_DESIGN_BYTES)
            async with nullcontext() if route == "nearest" else self._meshing:
                found = await asyncio.to_thread(ROUTES[route], self.explored, request)
        except RequestError as error:
            return error.answer
        return 200, found if isinstance(found, bytes) else found.model_dump_json().encode()

    async def card(self) -> ModelCard:
        explored, trained = self.explored, None
        with suppress(RequestError):  # without the training's values colours are of mean and spread
            trained = explored.trained
        return predictions.describe(explored.surrogate, explored.limits, trained)


class Solve(BaseModel):
    """A design that the solver was started on."""

    id: str
    state: str
    ended: bool
    url: str  # a page that follows the run; empty where there is none
    reason: str  # once it has ended: why the dataset has no accepted case of the design; else empty


class SolvingOffer(BaseModel):
    """What the page shows of the run, and whether this server can start the solver."""

    available: bool
    reason: str
    verdict: str  # what the model's fields are good for; empty without an evaluation
    commands: dict[str, str]
    """for a terminal: `solve` design.csv, `calibrate`, train a model of `all_fields`"""


class Solver(Protocol):
    """Starts the solver on a design. InputError for what cannot be done."""

    def begin(self, parameters: Mapping[str, float]) -> Solve: ...

    def look(self, solve: str) -> Solve: ...


@dataclass(frozen=True)
class Solving:
    """What the page has beside the model: a solver, with its token, or why there is none."""

    solver: Solver | None = None
    reason: str = "only courant explore starts the solver"
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    commands: Mapping[str, str] = field(default_factory=dict)
    verdict: str = ""

    async def call(self, request: Request, ask: Callable[[Solver], Solve]) -> Answer:
        """Ask the solver, for a request that has the token and is of this server's own page."""
        if self.solver is None:
            raise HTTPException(404, self.reason)
        headers = request.headers
        origin, token = headers.get("origin"), headers.get("x-courant-token", "").encode()
        own = origin is None or urlsplit(origin).netloc == headers.get("host")
        if not own or not secrets.compare_digest(token, self.token.encode()):
            raise HTTPException(403, "open the page by the whole address that the command printed")
        try:
            found = await asyncio.to_thread(ask, self.solver)
        except InputError as error:
            raise RequestError(str(error)) from None
        except Exception:
            logger.exception("the solver could not be asked")
            reason = "Prefect's server could not be asked; the log has the reason"
            raise HTTPException(502, reason) from None
        return 200, found.model_dump_json().encode()


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read a body, before anything parses it; 413 where it has more than `max_bytes`."""
    length = request.headers.get("content-length", "")[:20]  # Python reads no endless number
    body, announced = bytearray(), int(length) if length.isdigit() else 0
    if announced <= max_bytes:
        async for part in request.stream():
            body += part
            if len(body) > max_bytes:
                break
    if max(announced, len(body)) > max_bytes:
        limit = f"{max_bytes / 1e6:g} MB, which this server takes at most"
        raise HTTPException(413, f"the request has more than {limit}")
    return bytes(body)


def as_response(answer: Answer, is_file: bool = False) -> Response:
    kind = FILE if is_file and answer[0] == 200 else "application/json"
    return Response(answer[1], answer[0], media_type=kind)


def build_app(
    name: str, model: Model, limits: Limits, solving: Solving | None, hosts: Sequence[str] = ("*",)
) -> FastAPI:
    """Build the application; `name` is shown to clients.

    A request is answered only if its `Host` is one of `hosts`: the name of another site may lead to
    this machine's loopback (DNS rebinding).
    """
    # The page of the API loads nothing from elsewhere.
    api = FastAPIOffline(redoc_url=None, title="Courant", description=f"Predictions of {name}")
    max_bytes, offer = int(limits.max_megabytes * 1e6), solving or Solving()
    # Each application has a registry of its own; paths that clients make up are one label.
    measured = Instrumentator(should_group_status_codes=False, registry=CollectorRegistry())
    measured.instrument(api).expose(api, include_in_schema=False)
    api.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    api.add_exception_handler(ClientDisconnect, lambda *_: Response(status_code=400))
    api.add_exception_handler(RequestError, lambda _, error: as_response(error.answer))
    # The client learns nothing of this machine; uvicorn's log has the error.
    api.add_exception_handler(Exception, lambda *_: as_response(predictions.FAULT.answer))
    requests: list[type[BaseModel]] = []

    def add(
        path: str,
        request_type: type[BaseModel] | None,
        answer_type: type[BaseModel | bytes],
        ask: Callable[[Request, bytes], Awaitable[Answer]],
    ) -> None:
        """Add a route; one with a request is a POST, whose body is parsed where the model is."""

        async def respond(request: Request) -> Response:
            answer = await ask(request, await read_body(request, max_bytes))
            return as_response(answer, answer_type is bytes)

        more: dict[str, Any] = {"methods": ["GET"], "response_model": answer_type}
        if request_type is not None:
            requests.append(request_type)
            schema = {"schema": {"$ref": f"#/components/schemas/{request_type.__name__}"}}
            asked = {"required": True, "content": {"application/json": schema}}
            more |= {"methods": ["POST"], "openapi_extra": {"requestBody": asked}}
        if answer_type is bytes:
            more |= {"responses": {200: {"content": {FILE: {}}}}, "response_class": Response}
            more["response_model"] = None
        api.add_api_route(path, respond, name=path.split("/")[1], **more)

    async def begin(request: Request, body: bytes) -> Answer:
        asked = read_json(body, DesignRequest, MAX_DESIGN_BYTES)
        return await offer.call(request, lambda solver: solver.begin(asked.parameters))

    async def look(request: Request, _: bytes) -> Answer:
        return await offer.call(request, lambda solver: solver.look(request.path_params["solve"]))

    types = predictions.PredictRequest, predictions.Prediction
    add("/predict", *types, lambda _, body: model.predict(body))
    for route in ROUTES:

        async def ask(_: Request, body: bytes, route: str = route) -> Answer:
            return await model.explore(route, body)

        add(f"/{route}", *_types(route), ask)
    add("/solves", DesignRequest, Solve, begin)
    add("/solves/{solve}", None, Solve, look)

    @api.get("/solving", response_model=SolvingOffer)
    async def solving_offer() -> SolvingOffer:
        of_run: dict[str, Any] = {"verdict": offer.verdict, "commands": dict(offer.commands)}
        reason = "" if offer.solver else offer.reason
        return SolvingOffer(available=not reason, reason=reason, **of_run)

    headers = {"content-security-policy": "default-src 'self'", "cache-control": "no-cache"}
    for file in (resources.files("courant.serving") / "page").iterdir():
        path, kind = f"/{file.name.removesuffix('.html')}", guess_type(file.name)[0]
        # A response is an ASGI application itself.
        api.router.routes.append(FileRoute(path, Response(file.read_bytes(), 200, headers, kind)))

    api.router.routes.append(FileRoute("/", RedirectResponse("explorer")))

    @api.get("/model", response_model=ModelCard)
    async def card() -> ModelCard:
        try:
            return await asyncio.wait_for(model.card(), HEALTH_S)
        except Exception:
            logger.exception("the model does not describe itself")
            raise HTTPException(503, "the model does not answer") from None

    @api.get("/health")
    async def health() -> dict[str, str]:
        await card()
        return {"status": "ready"}

    # Routes that read their own bodies have no schema of them; FastAPI keeps the one that it made.
    schemas = api.openapi()["components"]["schemas"]
    for of in requests:
        request_schema = of.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= request_schema.pop("$defs", {})
        schemas[of.__name__] = request_schema
    return api


@contextmanager
def running(app: FastAPI, listener: socket.socket) -> Iterator[None]:
    """Serve on a bound socket, in a thread of this process; answers in progress have STOP_S."""
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
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="http", daemon=True)
    thread.start()
    try:
        until = time.monotonic() + START_S
        while not server.started:
            if not thread.is_alive() or time.monotonic() > until:
                raise RuntimeError("the HTTP server did not start; its log has the reason")
            time.sleep(0.02)
        yield
    finally:
        server.should_exit = True
        thread.join(STOP_S + 1)
