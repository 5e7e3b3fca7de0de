"""Answer requests with a model that is loaded in this process.

    model = ServedModel(run, Limits())
    status, body = await model.predict(request_body)

Predictions that wait while the model is busy go through it together, and few designs are meshed at
the same time. `ray_serve` places the same model on a cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from courant.prediction.surrogate import load
from courant.serving.explorer import (
    ContributionRequest,
    Contributions,
    Dependences,
    DesignAnswer,
    DesignRequest,
    Explored,
    NearestDesigns,
    NearestRequest,
    Section,
    SectionRequest,
    Surface,
    answer_contributions,
    answer_design,
    answer_nearest,
    answer_section,
    answer_surface,
)
from courant.serving.predictions import (
    Limits,
    ModelCard,
    Refusal,
    Unforeseen,
    answer,
    describe,
    in_parts,
    parse_request,
)
from simgen.solving.preparation import keep_process_ready

MAX_BATCH = 16
"""Predictions in one pass through the model"""
MAX_MESHED = 2
"""Designs that are meshed at the same time, on all routes together, a core each"""
logger = logging.getLogger("courant.serving")

Route = Literal["designs", "sections", "contributions", "surfaces", "nearest", "dependences"]
Answer = tuple[int, bytes]
"""HTTP status, and a body of JSON"""


class RouteTypes(NamedTuple):
    """What a route takes and returns."""

    request: type[BaseModel] | None
    """None where it takes nothing, which is a GET"""
    answer: type[BaseModel]
    call: Callable[[bytes, Explored], BaseModel]
    meshes: bool = True
    """Whether a design may have to be meshed for it"""


ROUTES: dict[Route, RouteTypes] = {
    "designs": RouteTypes(
        DesignRequest, DesignAnswer, lambda body, of: answer_design(body, of.surrogate, of.limits)
    ),
    "sections": RouteTypes(SectionRequest, Section, answer_section),
    "contributions": RouteTypes(ContributionRequest, Contributions, answer_contributions),
    "surfaces": RouteTypes(DesignRequest, Surface, answer_surface),
    "nearest": RouteTypes(
        NearestRequest, NearestDesigns, lambda body, of: answer_nearest(body, of.solved), False
    ),
    "dependences": RouteTypes(None, Dependences, lambda _, of: of.study.answer(), False),
}


class ServedModel:
    """The model, loaded once."""

    def __init__(self, explored: Explored) -> None:
        self.explored = explored
        self._waiting: list[tuple[bytes, asyncio.Future[Answer]]] = []
        self._predicting: asyncio.Task[None] | None = None
        self._meshing = asyncio.Semaphore(MAX_MESHED)

    @classmethod
    def load(cls, run: str, limits: Limits, dataset: str | None = None) -> ServedModel:
        """Load a run; `dataset` is the place of its dataset, None where it must not be opened."""
        surrogate = load(run)
        if surrogate.step_s is None:
            keep_process_ready()
        return cls(Explored.open(surrogate, limits, dataset))

    async def predict(self, body: bytes) -> Answer:
        """Answer a request for a prediction."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, answered))
        if self._predicting is None:
            self._predicting = asyncio.create_task(self._predict_waiting())
        return await answered

    async def explore(self, route: Route, body: bytes) -> Answer:
        """Answer a request for a design."""
        types = ROUTES[route]
        turn: AbstractAsyncContextManager[Any] = self._meshing if types.meshes else nullcontext()
        async with turn:
            return as_json(await asyncio.to_thread(types.call, body, self.explored))

    async def card(self) -> ModelCard:
        """Describe the model."""
        return describe(self.explored.surrogate, self.explored.limits)

    async def _predict_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            try:
                found = await asyncio.to_thread(self._predict, [body for body, _ in batch])
            except Exception:
                logger.exception("requests could not be answered")
                found = [as_json(Unforeseen())] * len(batch)
            for (_, answered), given in zip(batch, found, strict=True):
                if not answered.done():  # its client has gone
                    answered.set_result(given)
        self._predicting = None

    def _predict(self, bodies: list[bytes]) -> list[Answer]:
        surrogate, limits = self.explored.surrogate, self.explored.limits
        requests = [parse_request(body, limits) for body in bodies]
        return [
            as_json(given)
            for part in in_parts(requests, surrogate, limits)
            for given in answer(part, surrogate, limits)
        ]


def as_json(answered: BaseModel) -> Answer:
    """Return an answer's HTTP status and body."""
    status = answered.status if isinstance(answered, Refusal) else 200
    return status, answered.model_dump_json().encode()
