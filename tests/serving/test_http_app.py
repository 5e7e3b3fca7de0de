"""The HTTP side of a served model over real connections; the model is a stand-in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from courant.loopback import OWN_NAMES, answered_names
from courant.serving.http_app import MAX_REQUESTS, HttpServer, Solving, build_app
from courant.serving.predictions import Limits, ModelCard

LIMITS = Limits(max_megabytes=0.01)
CHUNKED = b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


class StandIn:
    """Answers with the length of the body; waits while `open` is not set."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.asked = 0
        self.explored: list[str] = []

    async def predict(self, body: bytes) -> tuple[int, bytes]:
        self.asked += 1
        await asyncio.to_thread(self.open.wait, 60)
        if b"fail" in body:
            raise RuntimeError("a secret of this machine")
        return 200, str(len(body)).encode()

    async def explore(self, route: str, body: bytes) -> tuple[int, bytes]:
        self.explored.append(route)
        return 422, json.dumps({"detail": f"no design in {len(body)} bytes"}).encode()

    async def card(self) -> ModelCard:
        return ModelCard(
            run="tiny",
            family="f",
            dataset="d",
            version="v1",
            channels=[],
            parameters=[],
            patch_kinds=[],
            step_s=None,
            input_steps=0,
            needs=[],
            limits=LIMITS,
        )


@contextmanager
def serving(
    model: StandIn, *, solving: Solving | None = None, hosts: Sequence[str] = ("*",)
) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    app = build_app("tiny", model, LIMITS, solving=solving, hosts=hosts)
    server = HttpServer(app, listener)
    server.start()
    try:
        yield listener.getsockname()[1]
    finally:
        model.open.set()
        server.stop()


@pytest.fixture
def model() -> StandIn:
    return StandIn()


def ask(port: int, body: bytes | None = None, path: str = "/predict") -> tuple[int, Any, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body)
    try:
        with urllib.request.urlopen(request, timeout=600) as answered:
            return answered.status, json.load(answered), answered.headers
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused), refused.headers


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes; fails where it does not."""
    connection.settimeout(30)
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
        CHUNKED + b"0\r\n" + b"a: b\r\n" * 40_000,
        CHUNKED + b"0\r\na: " + b"b" * 300_000,
        b"no HTTP at all\r\n\r\n",
    ],
)
def test_headers_without_end_and_what_is_no_http_are_refused(model: StandIn, sent: bytes) -> None:
    with (
        serving(model) as port,
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        assert b"HTTP/1.1 200" not in read_all(connection)
        assert model.asked == 0
        assert ask(port, path="/health")[0] == 200


@pytest.mark.parametrize(
    ("host", "names", "any_name"),
    [
        ("127.0.0.1", (), False),
        ("127.0.0.2", (), False),
        ("LOCALHOST", (), False),
        ("0.0.0.0", (), True),
        ("0.0.0.0", ("only.example.com",), False),
    ],
)
def test_only_a_server_for_all_takes_any_name(
    host: str, names: tuple[str, ...], any_name: bool
) -> None:
    with closing(socket.create_server((host, 0))) as listener:
        hosts = answered_names(listener, host, names)
    assert (hosts == ["*"]) == any_name
    assert any_name or {host, *OWN_NAMES, *names} == set(hosts)


def test_a_request_above_the_limit_is_refused_announced_or_not(model: StandIn) -> None:
    with serving(model) as port:
        status, answered, _ = ask(port, b"x" * 10_001)
        assert (status, "more than 0.01 MB" in answered["detail"]) == (413, True)
        with closing(socket.create_connection(("127.0.0.1", port))) as connection:
            chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
            connection.sendall(
                b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
                + 3 * chunk
            )
            assert b"HTTP/1.1 413" in connection.recv(65536)
        # A GET has a body where it announces one.
        for head in (b"GET /dependences", b"POST /predict"):
            for length in (b"10001", b"9" * 5000, b"-1"):
                with closing(socket.create_connection(("127.0.0.1", port))) as connection:
                    connection.sendall(
                        head + b" HTTP/1.1\r\nhost: x\r\ncontent-length: " + length + b"\r\n\r\n"
                    )
                    assert connection.recv(65536).split()[1] in (b"413", b"400")
        with closing(socket.create_connection(("127.0.0.1", port))) as connection:
            length = b"0" * 5000 + b"2"
            connection.sendall(
                b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: " + length + b"\r\n\r\nab"
            )
            assert connection.recv(65536).split()[1] in (b"200", b"400")
        assert not model.explored
        assert ask(port, b"x" * 10_000)[:2] == (200, 10_000)


def test_a_model_that_does_not_describe_itself_is_a_503_with_a_word(model: StandIn) -> None:
    async def fail() -> ModelCard:
        raise RuntimeError("a secret of this machine")

    model.card = fail  # type: ignore[method-assign]
    with serving(model) as port:
        status, answered, _ = ask(port, path="/model")
        assert (status, answered) == (503, {"detail": "the model does not answer"})


def test_the_bodies_of_waiting_requests_are_bounded_together(model: StandIn) -> None:
    model.open.clear()
    with serving(model) as port, ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, port, b"x" * 10_000) for _ in range(6)]
        while sum(future.done() for future in asked) < 2:
            threading.Event().wait(0.05)
        model.open.set()
        assert sorted(future.result()[0] for future in asked) == [200] * 4 + [503] * 2


def test_the_number_of_waiting_requests_is_bounded(model: StandIn) -> None:
    model.open.clear()
    num = MAX_REQUESTS + 8
    with serving(model) as port, ThreadPoolExecutor(num) as pool:
        asked = [pool.submit(ask, port, b"x") for _ in range(num)]
        while sum(future.done() for future in asked) < 8:
            threading.Event().wait(0.05)
        model.open.set()
        assert sorted(future.result()[0] for future in asked) == [200] * MAX_REQUESTS + [503] * 8


def test_a_failure_of_the_server_shows_nothing_of_it(model: StandIn) -> None:
    with serving(model) as port:
        status, answered, _ = ask(port, b"fail")
        assert status == 500 and "secret" not in json.dumps(answered)
        assert ask(port, b"x")[0] == 200


def test_the_page_of_the_interface_has_the_types_of_a_request(model: StandIn) -> None:
    with serving(model) as port:
        schemas = ask(port, path="/openapi.json")[1]["components"]["schemas"]
        assert {"PredictRequest", "DistanceField", "Prediction", "ModelCard"} <= set(schemas)
        assert ask(port, path="/model")[1]["run"] == "tiny"


def test_the_page_of_the_api_loads_nothing_from_elsewhere() -> None:
    with serving(StandIn()) as port:
        base = f"http://127.0.0.1:{port}"
        page = urllib.request.urlopen(f"{base}/docs").read().decode()
        assert not re.search(r"https?://", page)
        loaded = re.findall(r"(?:src|href)=\"(/[^\"]+)\"", page)
        assert any(path.endswith(".js") for path in loaded)
        for path in loaded:
            assert urllib.request.urlopen(f"{base}{path}").status == 200


def test_requests_are_counted_by_route_and_status(model: StandIn) -> None:
    with serving(model) as port:
        assert ask(port, b"1234")[0] == 200
        assert ask(port, b"fail")[0] == 500
        assert ask(port, b"x" * 20_000)[0] == 413
        assert ask(port, b"{}", "/designs")[0] == 422
        assert ask(port, b"{}", "/made-up-by-a-client")[0] == 404
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answered:
            page = answered.read().decode()
    lines = r'^http_requests_total\{handler="([^"]*)",.*status="(\d+)"\} 1.0'
    counted = set(re.findall(lines, page, re.MULTILINE))
    assert {("/predict", "200"), ("/predict", "413"), ("/designs", "422")} <= counted
    assert "made-up" not in page


@pytest.mark.parametrize(
    ("name", "status"),
    [
        (b"127.0.0.1:80", b"200"),
        (b"LOCALHOST", b"200"),
        (b"[::1]:8000", b"200"),
        (b"courant.example.com", b"200"),
        (b"attacker.example.org:80", b"400"),
        (b"localhost.attacker.example.org", b"400"),
        (b"", b"400"),
    ],
)
def test_a_name_that_is_not_this_servers_gets_no_answer(model: StandIn, name: bytes, status: bytes):
    hosts = [*OWN_NAMES, "courant.example.com"]
    with (
        serving(model, hosts=hosts) as port,
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        connection.sendall(
            b"GET /health HTTP/1.1\r\nhost: " + name + b"\r\nconnection: close\r\n\r\n"
        )
        assert read_all(connection).startswith(b"HTTP/1.1 " + status)
