"""The HTTP side of a served model over real connections: deadlines, bounds, waiting; the model
itself is a stand-in.
"""

from __future__ import annotations

import asyncio
import http.client
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
from courant.serving.http_app import MAX_REQUESTS, build_app
from courant.serving.http_deadlines import DeadlineProtocol
from courant.serving.http_server import STOP_S, HttpServer
from courant.serving.requests import Limits, ModelCard
from courant.serving.solving import Solving
from flows.ending import GRACE_S

LIMITS = Limits(max_megabytes=0.01)
CHUNKED = b"POST /predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


class StandIn:
    """Answers with the length of the body; waits while `open` is not set."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.asked = 0
        self.exploring: list[str] = []
        self.most_meshing = 0

    async def predict(self, body: bytes) -> tuple[int, bytes]:
        self.asked += 1
        await asyncio.to_thread(self.open.wait, 60)
        if b"fail" in body:
            raise RuntimeError("a secret of this machine")
        return 200, str(len(body)).encode()

    async def explore(self, route: str, body: bytes) -> tuple[int, bytes]:
        self.exploring.append(route)
        self.most_meshing = max(self.most_meshing, sum(r != "nearest" for r in self.exploring))
        await asyncio.to_thread(self.open.wait, 60)
        self.exploring.remove(route)
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

    async def is_well(self) -> bool:
        return True


class Hasty(DeadlineProtocol):
    HEADERS_S = 1.0
    BODY_S = 1.0
    ANSWER_S = 2.0


@contextmanager
def serving(
    model: StandIn,
    *,
    answer_s: float = 60.0,
    protocol: type[DeadlineProtocol] = Hasty,
    solving: Solving | None = None,
    hosts: Sequence[str] = ("*",),
) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    app = build_app("tiny", model, LIMITS, answer_s=answer_s, solving=solving, hosts=hosts)
    server = HttpServer(app, listener, protocol)
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
    ("sent", "status"),
    [
        (b"", b"408"),
        (b"\r\n\r\n", b"408"),
        (b"POST /predict HTTP/1.1\r\nhost: x\r\n", b"408"),
        (b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab", b"408"),
        (b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nGET /health HTTP/1.1\r\n", b"200"),
        (b"GET /" + b"a" * 100_000, b"431"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000, b"431"),
        (CHUNKED + b"0\r\n" + b"a: b\r\n" * 40_000, b"431"),
        (CHUNKED + b"0\r\na: " + b"b" * 300_000, b"431"),
        (CHUNKED + b"1;" + b"a" * 300_000, b"431"),
        (b"no HTTP at all\r\n\r\n", b"400"),
    ],
)
def test_a_connection_that_does_not_come_to_the_point_is_closed(
    model: StandIn, sent: bytes, status: bytes
) -> None:
    with (
        serving(model) as port,
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        connection.sendall(sent)
        assert b"HTTP/1.1 " + status in read_all(connection)
        assert model.asked == 0


def test_a_body_in_small_parts_is_taken(model: StandIn) -> None:
    with (
        serving(model) as port,
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        connection.sendall(CHUNKED + b"8\r\n01234567\r\n" * 1000 + b"0\r\na: b\r\n\r\n")
        connection.settimeout(30)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


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


def test_answers_are_ended_within_the_time_of_an_interrupted_command() -> None:
    assert STOP_S + 3 < GRACE_S, "and the model is to be taken from the cluster"


def test_a_client_that_does_not_read_its_answer_is_cut_off(model: StandIn) -> None:
    model.open.clear()
    with (
        serving(model) as port,
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
    ):
        connection.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab")
        assert read_all(connection) == b""


@pytest.mark.parametrize("num_bytes", [30_000_000, 3_000_000])
def test_a_client_that_reads_none_of_a_written_answer_is_cut_off(
    model: StandIn, num_bytes: int
) -> None:
    """The server takes for sent what waits in its memory for the client."""

    async def large(body: bytes) -> tuple[int, bytes]:
        return 200, b"0" * num_bytes

    ended = threading.Event()

    class Watched(Hasty):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            ended.set()

    model.predict = large  # type: ignore[method-assign]
    with serving(model, protocol=Watched) as port, closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab")
        assert ended.wait(60)


def test_a_client_that_reads_slowly_but_steadily_has_all_of_its_answers(model: StandIn) -> None:
    async def large(body: bytes) -> tuple[int, bytes]:
        return 200, b"0" * 1_000_000

    model.predict = large  # type: ignore[method-assign]
    with serving(model) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        for _ in range(20):
            connection.request("POST", "/predict", b"ab")
            answered = connection.getresponse()
            threading.Event().wait(0.2)  # longer than ANSWER_S together
            assert len(answered.read()) == 1_000_000
        connection.close()


def test_several_requests_on_one_connection_are_answered(model: StandIn) -> None:
    with serving(model, protocol=DeadlineProtocol) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        for _ in range(3):
            connection.request("POST", "/predict", b"ab")
            answered = connection.getresponse()
            assert (answered.status, answered.read()) == (200, b"2")
        connection.close()
        assert model.asked == 3


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
        model.asked, model.exploring = 1, []
        assert ask(port, b"x" * 10_000)[:2] == (200, 10_000)
        assert model.asked == 2 and not model.exploring


def test_a_model_that_does_not_describe_itself_is_a_503_with_a_word(model: StandIn) -> None:
    async def fail() -> ModelCard:
        raise RuntimeError("a secret of this machine")

    model.card = fail  # type: ignore[method-assign]
    with serving(model) as port:
        status, answered, _ = ask(port, path="/model")
        assert (status, answered) == (503, {"detail": "the model does not answer"})


def test_an_answer_that_does_not_come_is_a_503_with_a_word(model: StandIn) -> None:
    model.open.clear()
    with serving(model, answer_s=0.3, protocol=DeadlineProtocol) as port:
        status, answered, headers = ask(port, b"x")
        assert (status, headers["retry-after"]) == (503, "5")
        assert "not answered within 0.3 s" in answered["detail"]
        assert ask(port, path="/health")[0] == 200


def test_what_the_model_has_no_room_for_waits_and_the_rest_is_refused(model: StandIn) -> None:
    model.open.clear()
    body = b"x" * 10_000
    with serving(model, protocol=DeadlineProtocol) as port, ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, port, body) for _ in range(6)]
        refused = [
            given
            for given in (future.result() for future in asked if _soon(future))
            if given[0] == 503
        ]
        # Bodies of four are held, one of them by the model, which alone has all the room there is.
        assert len(refused) == 2 and model.asked == 1
        assert all("too many requests wait" in answered["detail"] for _, answered, _ in refused)
        model.open.set()
        assert sorted(future.result()[0] for future in asked) == [200] * 4 + [503] * 2


def _soon(future: Any) -> bool:
    """Whether it is answered although the model is not; those that wait are given time enough to be
    refused.
    """
    try:
        future.result(timeout=3)
    except TimeoutError:
        return False
    return True


def test_the_number_of_waiting_requests_is_bounded(model: StandIn) -> None:
    model.open.clear()
    num = MAX_REQUESTS + 8
    with serving(model, protocol=DeadlineProtocol) as port, ThreadPoolExecutor(num) as pool:
        asked = [pool.submit(ask, port, b"x") for _ in range(num)]
        while sum(future.done() for future in asked) < 8:
            threading.Event().wait(0.05)
        model.open.set()
        assert sorted(future.result()[0] for future in asked) == [200] * MAX_REQUESTS + [503] * 8


def test_a_failure_of_the_server_tells_nothing_of_it(model: StandIn) -> None:
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


def test_designs_have_a_route_of_their_own_which_the_page_describes(model: StandIn) -> None:
    with serving(model) as port:
        body = b'{"parameters": {"radius": 2}}'
        status, told, _ = ask(port, body, "/designs")
        assert (status, told) == (422, {"detail": f"no design in {len(body)} bytes"})
        assert model.asked == 0, "it is not the route for points"
        _, page, _ = ask(port, path="/openapi.json")
    assert "parameters" in page["components"]["schemas"]["DesignRequest"]["properties"]
    assert "quantities" in page["components"]["schemas"]["DesignAnswer"]["properties"]


def test_no_more_than_two_designs_are_meshed_whatever_route_asks(model: StandIn) -> None:
    """Meshing takes a core, and a thread of those that predict."""
    model.open.clear()
    routes = ["designs", "sections", "contributions", "surfaces"] * 2
    with serving(model, protocol=DeadlineProtocol) as port, ThreadPoolExecutor(9) as pool:
        asked = [pool.submit(ask, port, b"{}", f"/{route}") for route in routes]
        while len(model.exploring) < 2:
            threading.Event().wait(0.02)
        assert not any(_soon(future) for future in asked[:1])
        near = pool.submit(ask, port, b"{}", "/nearest")
        while "nearest" not in model.exploring:
            threading.Event().wait(0.02)
        model.open.set()
        assert {future.result()[0] for future in [*asked, near]} == {422}
    assert model.most_meshing == 2


def test_requests_are_counted_and_timed_by_route_and_status(model: StandIn) -> None:
    with serving(model) as port:
        assert ask(port, b"1234")[0] == 200
        assert ask(port, b"fail")[0] == 500
        assert ask(port, b"x" * 20_000)[0] == 413
        assert ask(port, b"{}", "/designs")[0] == 422
        assert ask(port, b"{}", "/made-up-by-a-client")[0] == 404
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answered:
            page = answered.read().decode()
    for route, status in (("predict", 200), ("predict", 500), ("predict", 413), ("designs", 422)):
        line = f'courant_served_requests_total{{route="{route}",status="{status}"}} 1.0'
        assert line in page
    assert 'courant_served_request_seconds_count{route="predict"} 3.0' in page
    assert 'courant_served_requests_waiting{route="predict"} 0.0' in page
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
