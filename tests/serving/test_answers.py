"""Requests that are answered together: one that fails takes no other with it."""

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
from courant.serving.http_app import MAX_BATCH, MAX_MESHED, ServedModel
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


def test_a_request_that_breaks_the_model_is_a_fault_of_its_own(
    surrogate: Surrogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, prepare = surrogate.predict_prepared, surrogate.prepare

    def predict(prepared: list[Any]) -> Any:
        if any(each.num_steps == 3 for each in prepared):
            raise MemoryError("no room for a secret")
        return together(prepared)

    def fail_at_four(*given: Any, **named: Any) -> Any:
        if named.get("steps") == 4:
            raise ZeroDivisionError
        return prepare(*given, **named)

    monkeypatch.setattr(surrogate, "predict_prepared", predict)
    monkeypatch.setattr(surrogate, "prepare", fail_at_four)
    half = asked(parameters={"\ud800": 1.0})  # what UTF-8 cannot hold
    requests = [asked(), asked(steps=3), asked(steps=4), half, asked()]
    answers = answer(requests, surrogate, Limits())
    assert [status for status, _ in answers] == [200, 500, 500, 422, 200]
    assert b"secret" not in answers[1][1]
    assert "unknown ?" in json.loads(answers[3][1])["detail"]


def test_what_goes_through_the_model_together_is_no_larger_than_one_answer_may_be(
    surrogate: Surrogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    together = surrogate.predict_prepared

    def predict(prepared: list[Any]) -> Any:
        passes.append(len(prepared))
        return together(prepared)

    monkeypatch.setattr(surrogate, "predict_prepared", predict)
    requests = [asked(), asked(), asked(steps=5), b"no", asked(steps=1)]
    answers = answer(requests, surrogate, Limits(max_point_steps=30))
    assert passes == [2, 1, 1]  # 24 points and steps; 30; 6
    steps = [len(json.loads(content).get("values", ())) for _, content in answers]
    assert steps == [2, 2, 5, 0, 1]


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


def test_predictions_that_wait_go_through_the_model_together() -> None:
    passes: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def predict(bodies: list[bytes]) -> list[tuple[int, bytes]]:
        passes.append(len(bodies))
        begun.set()
        assert go_on.wait(30)
        return [(200, body) for body in bodies]

    async def ask() -> list[tuple[int, bytes]]:
        served = ServedModel(SimpleNamespace())
        served._predict = predict
        first = asyncio.create_task(served.predict(b"first"))
        await asyncio.to_thread(begun.wait, 30)
        waiting = [asyncio.create_task(served.predict(b"%d" % n)) for n in range(MAX_BATCH + 1)]
        await asyncio.sleep(0)
        go_on.set()
        return [await each for each in (first, *waiting)]

    answers = asyncio.run(ask())
    assert [body for _, body in answers] == [b"first", *(b"%d" % n for n in range(MAX_BATCH + 1))]
    assert passes == [1, MAX_BATCH, 1]
