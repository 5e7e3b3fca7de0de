"""A served model bounds its work, and predicts together what waits together."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from courant.serving import http_app
from courant.serving.explorer import DesignRequest, NearestDesigns
from courant.serving.http_app import MAX_BATCH, MAX_MESHED, RouteTypes, ServedModel

BODY = b'{"parameters": {}}'


def test_no_more_designs_are_meshed_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a core; what needs no mesh does not wait for them."""
    meshing: list[int] = []
    most, near = [0], threading.Event()

    def mesh(*_: object) -> NearestDesigns:
        meshing.append(1)
        most[0] = max(most[0], len(meshing))
        assert near.wait(30)
        meshing.pop()
        return NearestDesigns(version="", designs=[], reason="")

    def look(*_: object) -> NearestDesigns:
        near.set()
        return NearestDesigns(version="", designs=[], reason="")

    for route in ("designs", "sections"):
        monkeypatch.setitem(http_app.ROUTES, route, RouteTypes(DesignRequest, NearestDesigns, mesh))
    monkeypatch.setitem(
        http_app.ROUTES, "nearest", RouteTypes(DesignRequest, NearestDesigns, look, False)
    )

    async def ask() -> list[tuple[int, bytes]]:
        served = ServedModel(SimpleNamespace())
        asked = [served.explore(route, BODY) for route in ("designs", "sections") * 3]
        return await asyncio.gather(*asked, served.explore("nearest", BODY))

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


def test_a_pass_that_fails_is_an_answer_to_each_of_its_requests() -> None:
    async def ask() -> list[tuple[int, bytes]]:
        served = ServedModel(SimpleNamespace())
        return list(await asyncio.gather(served.predict(b"{}"), served.predict(b"{}")))

    found = asyncio.run(ask())
    assert [status for status, _ in found] == [500, 500] and b"SimpleNamespace" not in found[0][1]
