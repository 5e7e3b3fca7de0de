"""Requests and their answers; designs are meshed a few at a time."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

import courant
from courant.prediction.surrogate import Surrogate
from courant.serving import http_app
from courant.serving.explorer import DesignRequest, NearestDesigns
from courant.serving.http_app import MAX_MESHED, ServedModel
from courant.serving.predictions import Limits, answer
from tests.world import World

CASE = {
    "points": [[0.5 * x - 15, 5.0] for x in range(6)],
    "initial": [[1.0, 0.0]] * 6,
    "parameters": {"radius": 2.0, "center_x": 1.0, "center_y": -1.0},
    "steps": 2,
}


@pytest.fixture(scope="module")
def surrogate(world: World) -> Surrogate:
    return courant.load(world.waves_run(), device="cpu")


def asked(**changed: Any) -> bytes:
    return json.dumps({**CASE, **changed}).encode()


def test_a_request_that_breaks_the_model_shows_nothing_of_the_server(
    surrogate: Surrogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, body = answer(asked(), surrogate, Limits())
    assert status == 200 and len(json.loads(body)["values"]) == 2
    half = asked(parameters={"\ud800": 1.0})  # what UTF-8 cannot hold
    status, body = answer(half, surrogate, Limits())
    assert status == 422 and "unknown ?" in json.loads(body)["detail"]

    def fail(prepared: list[Any]) -> Any:
        raise MemoryError("no room for a secret")

    monkeypatch.setattr(surrogate, "predict_prepared", fail)
    status, body = answer(asked(), surrogate, Limits())
    assert status == 500 and b"secret" not in body


def test_no_more_designs_are_meshed_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a core; what needs no mesh does not wait for them."""
    meshing: list[int] = []
    most, near = [0], threading.Event()

    def mesh(_: object, request: DesignRequest) -> NearestDesigns:
        meshing.append(1)
        most[0] = max(most[0], len(meshing))
        assert near.wait(30)
        meshing.pop()
        return NearestDesigns(version="", designs=[], reason="")

    def look(_: object, request: DesignRequest) -> NearestDesigns:
        near.set()
        return NearestDesigns(version="", designs=[], reason="")

    for route, call in (("designs", mesh), ("sections", mesh), ("nearest", look)):
        monkeypatch.setitem(http_app.ROUTES, route, call)

    async def ask() -> list[tuple[int, bytes]]:
        served = ServedModel(SimpleNamespace())
        routes = [*("designs", "sections") * 3, "nearest"]
        return await asyncio.gather(*(served.explore(r, b'{"parameters": {}}') for r in routes))

    assert [status for status, _ in asyncio.run(ask())] == [200] * 7
    assert most[0] == MAX_MESHED
