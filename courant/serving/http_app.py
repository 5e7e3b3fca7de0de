"""The HTTP side of a served model: routes, bounds and waiting; what answers is handed in, so that it can be anything.

POST /predict   PredictRequest -> Prediction; 422 with the reason where the request cannot be answered, 413 where it
                is too large, 503 with Retry-After where too much waits or the answer takes too long
GET  /model     what the model is and needs: ModelCard
GET  /health    200 once the model is loaded and answers
"""

# No `from __future__ import annotations` here: FastAPI reads the real types.
import asyncio
import json
import logging
from typing import Any, Protocol

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from courant.serving.body_limit import RETRY_AFTER_S, BodyLimit
from courant.serving.requests import Limits, ModelCard, Prediction, PredictRequest

MAX_REQUESTS = 64
"""That wait or are being answered."""
MAX_ASKED = 32
"""That the model has at the same time."""
ANSWER_S = 60.0
HEALTH_S = 5.0
logger = logging.getLogger("courant.serving")


class Model(Protocol):
    """What answers."""

    async def predict(self, body: bytes) -> tuple[int, bytes]:
        """Status and JSON body."""

    async def card(self) -> ModelCard: ...

    async def is_well(self) -> bool: ...


def build_app(name: str, model: Model, limits: Limits, *, answer_s: float = ANSWER_S) -> FastAPI:
    """The application; `name` is shown to clients."""
    api = FastAPI(title="Courant", description=f"Predictions of {name}")
    max_bytes = int(limits.max_megabytes * 1e6)
    api.add_middleware(BodyLimit, max_bytes=max_bytes, max_held_bytes=4 * max_bytes, max_requests=MAX_REQUESTS)
    turns = _Turns(model, max_bytes)

    @api.post("/predict", response_model=Prediction, openapi_extra=_REQUEST)
    async def predict(request: Request) -> Response:
        try:
            status, content = await turns.answer(await request.body(), answer_s)
        except TimeoutError:
            return _refusal(
                503, f"not answered within {answer_s:g} s; try again later, or ask for fewer points or steps"
            )
        except Exception:  # the client learns nothing of this machine, its log has it all
            logger.exception("a request could not be answered")
            return _refusal(500, "the server failed on this request; its log says why")
        return Response(content, status, media_type="application/json")

    @api.get("/model")
    async def card() -> ModelCard:
        return await model.card()

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
    """Requests go to the model while their bodies have at most `num_bytes` together, and they are MAX_ASKED or fewer.

    Who is not answered in time is told so, and keeps its place until the model is done with it: what cannot be
    called back must not make room for more.
    """

    def __init__(self, model: Model, num_bytes: int) -> None:
        self._model, self._all, self._free = model, num_bytes, num_bytes
        self._changed = asyncio.Condition()
        self._asked: set[asyncio.Task[tuple[int, bytes]]] = set()

    async def answer(self, body: bytes, seconds: float) -> tuple[int, bytes]:
        """The model's answer; TimeoutError where it does not come within that time."""
        share = min(max(len(body), self._all // MAX_ASKED), self._all)
        async with asyncio.timeout(seconds):
            async with self._changed:
                await self._changed.wait_for(lambda: self._free >= share)
                self._free -= share
            task = asyncio.create_task(self._ask(body, share))
            self._asked.add(task)
            task.add_done_callback(self._forget)
            return await asyncio.shield(task)

    async def _ask(self, body: bytes, share: int) -> tuple[int, bytes]:
        try:
            return await self._model.predict(body)
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


_REQUEST: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PredictRequest"}}},
    }
}


def _describe(api: FastAPI) -> dict[str, Any]:
    """The OpenAPI page: the body of a request is parsed where the model is, so FastAPI does not know its type."""
    if not api.openapi_schema:
        schema = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
        request = PredictRequest.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        schemas |= request.pop("$defs", {})
        schemas["PredictRequest"] = request
        api.openapi_schema = schema
    return api.openapi_schema
