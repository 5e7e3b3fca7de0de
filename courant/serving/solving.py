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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

from courant.serving.designs import DesignRequest, read_design
from courant.serving.predictions import Refusal
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
