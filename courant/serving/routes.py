"""Name the routes that ask for designs, with what they take and answer."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel

from courant.serving.dependence import Dependences
from courant.serving.designs import DesignAnswer, DesignRequest, answer_design
from courant.serving.explorer import Explored, answer_contributions, answer_section
from courant.serving.requests import Refusal
from courant.serving.sections import ContributionRequest, Contributions, Section, SectionRequest
from courant.serving.solved_designs import NearestDesigns, NearestRequest, answer_nearest
from courant.serving.surface import Surface, answer_surface

Route = Literal["designs", "sections", "contributions", "surfaces", "nearest", "dependences"]


class Types(NamedTuple):
    """What a route takes and answers."""

    request: type[BaseModel] | None
    """None where it takes nothing, which is a GET"""
    answer: type[BaseModel]
    meshes: bool
    """Whether a design may have to be meshed for it"""


TYPES: dict[Route, Types] = {
    "designs": Types(DesignRequest, DesignAnswer, True),
    "sections": Types(SectionRequest, Section, True),
    "contributions": Types(ContributionRequest, Contributions, True),
    "surfaces": Types(DesignRequest, Surface, True),
    "nearest": Types(NearestRequest, NearestDesigns, False),
    "dependences": Types(None, Dependences, False),
}


def status_of(answered: BaseModel) -> int:
    """Return the HTTP status of an answer."""
    return answered.status if isinstance(answered, Refusal) else 200


def answer_route(route: Route, body: bytes, explored: Explored) -> BaseModel:
    """Answer a request; a `Refusal` where it cannot be."""
    if route == "sections":
        return answer_section(body, explored)
    if route == "contributions":
        return answer_contributions(body, explored)
    if route == "surfaces":
        return answer_surface(body, explored)
    if route == "nearest":
        return answer_nearest(body, explored.solved)
    if route == "dependences":
        return explored.study.answer()
    return answer_design(body, explored.surrogate, explored.limits)
