"""Serve a model over HTTP: routes, bounds and waiting; the model behind it can be anything.

POST /predict   PredictRequest -> Prediction; 422 with the reason where the request cannot be
                answered, 413 where it is too large, 503 with Retry-After where too many wait or
                the answer takes too long
POST /designs   DesignRequest -> DesignAnswer: a design that nobody has solved, which the server
                meshes; errors as above
POST /sections, /contributions, /surfaces, /nearest
                what the explorer's page asks for: Section, Contributions, Surface, NearestDesigns
GET  /dependences
                Sobol indices of the quantities, or that they are being computed: Dependences
     /solving, /solves
                have a design solved, see `courant.serving.solving`
GET  /explorer  the page: sliders, the predicted field, quantities with bands
GET  /model     what the model is and needs: ModelCard
GET  /metrics   requests and their latency, for Prometheus
GET  /health    200 once the model is loaded and answers
GET  /docs      every field, and a form to try them; needs no network
"""

# No `from __future__ import annotations` here: FastAPI reads the real types.
import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import resources
from typing import Any, Protocol

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel
from starlette.middleware.trustedhost import TrustedHostMiddleware

from courant.serving.body_limit import RETRY_AFTER_S, BodyLimit
from courant.serving.metrics import Measured, RequestMetrics
from courant.serving.requests import Limits, ModelCard, Prediction, PredictRequest
from courant.serving.routes import TYPES, Route
from courant.serving.solving import Solving, add_solving

MAX_REQUESTS = 64
"""Requests waiting or being answered"""
MAX_ASKED = 32
"""Requests that the model has at the same time"""
MAX_MESHED = 2
"""Designs that are meshed at the same time, on all routes together, a core each"""
ANSWER_S = 60.0
HEALTH_S = 5.0
logger = logging.getLogger("courant.serving")


Ask = Callable[[bytes], Awaitable[tuple[int, bytes]]]
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

    async def predict(self, body: bytes) -> tuple[int, bytes]:
        """Return status and JSON body."""

    async def explore(self, route: Route, body: bytes) -> tuple[int, bytes]:
        """Return status and JSON body of a request for a design."""

    async def card(self) -> ModelCard: ...

    async def is_well(self) -> bool: ...


def build_app(
    name: str,
    model: Model,
    limits: Limits,
    *,
    answer_s: float = ANSWER_S,
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
    metrics = RequestMetrics()
    api.add_middleware(Measured, metrics=metrics, routes=("predict", *TYPES))
    api.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    predicting, asking = _Turns(max_bytes), _Turns(max_bytes)
    meshing = _Turns(max_bytes, MAX_MESHED)

    async def respond(turns: _Turns, ask: Ask, request: Request) -> Response:
        try:
            status, content = await turns.answer(ask, await request.body(), answer_s)
        except TimeoutError:
            return _refusal(
                503,
                f"not answered within {answer_s:g} s;"
                " try again later, or ask for fewer points or steps",
            )
        except Exception:  # the client learns nothing of this machine, its log has it all
            logger.exception("a request could not be answered")
            return _refusal(500, "the server failed on this request; its log says why")
        return Response(content, status, media_type="application/json")

    @api.post("/predict", response_model=Prediction, openapi_extra=_body("PredictRequest"))
    async def predict(request: Request) -> Response:
        return await respond(predicting, model.predict, request)

    def add(route: Route) -> None:
        types, ask = TYPES[route], partial(model.explore, route)
        turns = meshing if types.meshes else asking

        async def answer(request: Request) -> Response:
            return await respond(turns, ask, request)

        answer.__name__ = route
        if types.request is None:
            api.get(f"/{route}", response_model=types.answer)(answer)
        else:
            body = _body(types.request.__name__)
            api.post(f"/{route}", response_model=types.answer, openapi_extra=body)(answer)

    for route in TYPES:
        add(route)
    add_solving(api, solving or Solving())

    for file, media_type in PAGE.items():
        api.get(f"/{file.removesuffix('.html')}", include_in_schema=False)(_page(file, media_type))

    @api.get("/metrics", include_in_schema=False)
    def exported() -> Response:
        return metrics.page()

    @api.get("/model", response_model=ModelCard)
    async def card() -> ModelCard | Response:
        try:
            return await asyncio.wait_for(model.card(), HEALTH_S)
        except Exception:
            logger.exception("the model does not describe itself")
            return _refusal(503, "the model does not answer")

    @api.get("/health")
    async def health() -> Response:
        try:
            well = await asyncio.wait_for(model.is_well(), HEALTH_S)
        except Exception:
            well = False
        if not well:
            return _refusal(503, "the model does not answer")
        return Response(json.dumps({"status": "ready"}), media_type="application/json")

    api.openapi = lambda: _describe(api)  # type: ignore[method-assign]
    return api


class _Turns:
    """Pass requests to the model within bounds.

    Those in the model have at most `num_bytes` of bodies together and number at most `most`. A
    client that is not answered in time gets an error; its request keeps its place until the model
    is done with it, because work that cannot be cancelled must not make room for more.
    """

    def __init__(self, num_bytes: int, most: int = MAX_ASKED) -> None:
        self._most = most
        self._all = self._free = num_bytes
        self._changed = asyncio.Condition()
        self._asked: set[asyncio.Task[tuple[int, bytes]]] = set()

    async def answer(self, ask: Ask, body: bytes, seconds: float) -> tuple[int, bytes]:
        """Return the model's answer; TimeoutError where it takes longer."""
        share = min(max(len(body), self._all // self._most), self._all)
        async with asyncio.timeout(seconds):
            async with self._changed:
                await self._changed.wait_for(lambda: self._free >= share)
                self._free -= share
            task = asyncio.create_task(self._ask(ask, body, share))
            self._asked.add(task)
            task.add_done_callback(self._forget)
            return await asyncio.shield(task)

    async def _ask(self, ask: Ask, body: bytes, share: int) -> tuple[int, bytes]:
        try:
            return await ask(body)
        finally:
            async with self._changed:
                self._free += share
                self._changed.notify_all()

    def _forget(self, task: asyncio.Task[tuple[int, bytes]]) -> None:
        self._asked.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, for those that nobody waits for any longer


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
        asked += [each.request for each in TYPES.values() if each.request is not None]
        for of in asked:
            request = of.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= request.pop("$defs", {})
            schemas[of.__name__] = request
        api.openapi_schema = schema
    return api.openapi_schema
