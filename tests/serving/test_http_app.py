"""A served model over real connections, for most tests a stand-in; requests and their answers."""

import asyncio
import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from courant.loopback import LOOPBACK, answered_names, in_address
from courant.prediction.surrogate import Surrogate
from courant.serving import http_app
from courant.serving.explorer import DesignRequest, NearestDesigns
from courant.serving.http_app import MAX_MESHED, ServedModel, Solving, build_app, running
from courant.serving.predictions import Limits, ModelCard, answer

LIMITS = Limits(max_megabytes=0.01)
CHUNKED = b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


class StandIn:
    """Answers with the length of the body."""

    def __init__(self) -> None:
        self.asked = 0

    async def predict(self, body: bytes) -> tuple[int, bytes]:
        self.asked += 1
        if b"fail" in body:
            raise RuntimeError("a secret of this machine")
        return 200, str(len(body)).encode()

    async def explore(self, route: str, body: bytes) -> tuple[int, bytes]:
        self.asked += 1
        return 422, json.dumps({"detail": f"no design in {len(body)} bytes"}).encode()

    async def card(self) -> ModelCard:
        of: Any = {key: [] for key in ("channels", "parameters", "patch_kinds", "needs")}
        names = dict.fromkeys(("run", "family", "dataset", "version"), "tiny")
        return ModelCard(**names, **of, input_steps=0, step_s=None, limits=LIMITS)


@contextmanager
def serving(
    model: StandIn, *, solving: Solving | None = None, hosts: Sequence[str] = ("*",)
) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    with running(build_app("tiny", model, LIMITS, solving=solving, hosts=hosts), listener):
        yield listener.getsockname()[1]


def ask(
    port: int, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    method, url = "GET" if body is None else "POST", f"http://127.0.0.1:{port}{path}"
    answered = requests.request(method, url, data=body, headers=headers, timeout=600)
    return answered.status_code, answered.json()


def send(port: int, sent: bytes) -> bytes:
    """The status line of the answer to what is sent, if there is one."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        with contextlib.suppress(ConnectionError):
            return connection.recv(65536).partition(b"\r\n")[0]
    return b""


def test_headers_without_end_and_what_is_no_http_are_refused() -> None:
    model = StandIn()
    sent = (
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
        CHUNKED + b"0\r\n" + b"a: b\r\n" * 40_000,
        b"no HTTP at all\r\n\r\n",
    )
    with serving(model) as port:
        for each in sent:
            assert b" 200" not in send(port, each)
        assert model.asked == 0 and ask(port, "/health")[0] == 200


def test_only_a_server_for_all_takes_any_name() -> None:
    for host, names in (("127.0.0.1", ()), ("0.0.0.0", ()), ("0.0.0.0", ("only.example.com",))):
        with closing(socket.create_server((host, 0))) as listener:
            hosts = answered_names(listener, host, names)
        any_name = host == "0.0.0.0" and not names
        assert set(hosts) == ({"*"} if any_name else {host, *map(in_address, LOOPBACK), *names})


def test_a_request_above_the_limit_is_refused_announced_or_not() -> None:
    model = StandIn()
    with serving(model) as port:
        status, answered = ask(port, "/predict", b"x" * 10_001)
        assert (status, "more than 0.01 MB" in answered["detail"]) == (413, True)
        assert b"413" in send(port, CHUNKED + 3 * (b"1000\r\n" + b"x" * 4096 + b"\r\n"))
        # A GET has a body where it announces one.
        for head in (b"GET /solves/one", b"POST /predict"):
            for length in (b"10001", b"9" * 5000, b"-1"):
                line = b" HTTP/1.1\r\nhost: x\r\ncontent-length: " + length + b"\r\n\r\n"
                assert send(port, head + line).split()[1] in (b"413", b"400")
        assert model.asked == 0
        assert ask(port, "/predict", b"x" * 10_000) == (200, 10_000)


def test_a_failure_of_the_server_shows_nothing_of_it() -> None:
    model = StandIn()

    async def fail() -> ModelCard:
        raise RuntimeError("a secret of this machine")

    with serving(model) as port:
        status, answered = ask(port, "/predict", b"fail")
        assert status == 500 and "secret" not in json.dumps(answered)
        assert ask(port, "/model")[1]["run"] == "tiny"
        model.card = fail  # type: ignore[method-assign]
        assert ask(port, "/model") == (503, {"detail": "the model does not answer"})


def test_the_page_of_the_api_has_all_types_and_loads_nothing_from_elsewhere() -> None:
    with serving(StandIn()) as port:
        schemas = ask(port, "/openapi.json")[1]["components"]["schemas"]
        assert {"PredictRequest", "DistanceField", "Prediction", "ModelCard"} <= set(schemas)
        base = f"http://127.0.0.1:{port}"
        page = requests.get(f"{base}/docs", timeout=60).text
        assert not re.search(r"https?://", page)
        loaded = re.findall(r"(?:src|href)=\"(/[^\"]+)\"", page)
        assert any(path.endswith(".js") for path in loaded)
        for path in loaded:
            assert requests.get(f"{base}{path}", timeout=60).ok
    for file in (Path(http_app.__file__).parent / "page").iterdir():
        assert "//" not in file.read_text().replace("// ", "")


def test_requests_are_counted_by_route_and_status() -> None:
    model = StandIn()
    with serving(model) as port:
        asked = {"/predict": b"1234", "/designs": b"{}", "/made-up-by-a-client": b"{}"}
        assert [ask(port, path, body)[0] for path, body in asked.items()] == [200, 422, 404]
        assert ask(port, "/predict", b"x" * 20_000)[0] == 413
        page = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    lines = r'^http_requests_total\{handler="([^"]*)",.*status="(\d+)"\} 1.0'
    counted = set(re.findall(lines, page, re.MULTILINE))
    assert {("/predict", "200"), ("/predict", "413"), ("/designs", "422")} <= counted
    assert "made-up" not in page


def test_a_name_that_is_not_this_servers_gets_no_answer() -> None:
    model = StandIn()
    known = (b"127.0.0.1:80", b"LOCALHOST", b"[::1]:8000", b"courant.example.com")
    others = (b"attacker.example.org:80", b"localhost.attacker.example.org", b"")
    with serving(model, hosts=[*map(in_address, LOOPBACK), "courant.example.com"]) as port:
        for name in (*known, *others):
            found = send(port, b"GET /health HTTP/1.1\r\nhost: " + name + b"\r\n\r\n")
            assert found.split()[1] == (b"200" if name in known else b"400"), name


CASE = {
    "points": [[0.5 * x - 15, 5.0] for x in range(6)],
    "initial": [[1.0, 0.0]] * 6,
    "parameters": {"radius": 2.0, "center_x": 1.0, "center_y": -1.0},
    "steps": 2,
}


def request_of(**changed: Any) -> bytes:
    return json.dumps({**CASE, **changed}).encode()


def test_a_request_that_breaks_the_model_shows_nothing_of_the_server(
    surrogate: Surrogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer(request_of(), surrogate, Limits())[0] == 200
    half = request_of(parameters={"\ud800": 1.0})  # what UTF-8 cannot hold
    status, body = answer(half, surrogate, Limits())
    assert status == 422 and "unknown ?" in json.loads(body)["detail"]

    def fail(prepared: Any) -> Any:
        raise MemoryError("no room for a secret")

    monkeypatch.setattr(surrogate, "predict_prepared", fail)
    status, body = answer(request_of(), surrogate, Limits())
    assert status == 500 and b"secret" not in body


def test_no_more_designs_are_meshed_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a core; what needs no mesh does not wait for them."""
    meshing, most, near = list[int](), [0], threading.Event()
    answered = NearestDesigns(version="", designs=[], reason="")

    def mesh(_: object, request: DesignRequest) -> NearestDesigns:
        meshing.append(1)
        most[0] = max(most[0], len(meshing))
        assert near.wait(30)
        meshing.pop()
        return answered

    def look(_: object, request: DesignRequest) -> NearestDesigns:
        near.set()
        return answered

    for route, call in (("designs", mesh), ("sections", mesh), ("nearest", look)):
        monkeypatch.setitem(http_app.ROUTES, route, call)

    async def ask() -> list[tuple[int, bytes]]:
        served = ServedModel(SimpleNamespace())
        routes = [*("designs", "sections") * 3, "nearest"]
        return await asyncio.gather(*(served.explore(r, b'{"parameters": {}}') for r in routes))

    assert [status for status, _ in asyncio.run(ask())] == [200] * 7
    assert most[0] == MAX_MESHED
