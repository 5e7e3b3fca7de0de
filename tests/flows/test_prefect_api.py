"""Prefect's server away: said, waited for, and then the command ends in one line."""

import http.server
import threading
import time

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.cluster.prefect_api import OtherServer
from flows.cluster.prefect_clients import keep_asking
from flows.cluster.prefect_server import answers
from flows.settings import load_settings
from simgen.errors import InputError
from tests.conftest import free_ports


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def start_server(port: int) -> http.server.HTTPServer:
    server = http.server.HTTPServer(("127.0.0.1", port), Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def stop(server: http.server.HTTPServer) -> None:
    server.shutdown()
    server.server_close()


def wait_for(condition) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_server_that_goes_away_is_said_once_and_so_is_its_return(monkeypatch, capsys):
    monkeypatch.setattr("flows.cluster.prefect_api.LOOK_S", 0.05)
    (port,) = free_ports(1)
    server = start_server(port)
    watched = OtherServer(f"http://127.0.0.1:{port}/api", patience_s=600)
    watched.wait_until_it_answers()
    assert capsys.readouterr().err == ""
    stop(server)
    told = ""

    def said(line: str) -> bool:
        nonlocal told
        told += " ".join(capsys.readouterr().err.split()) + " "
        return line in told

    wait_for(lambda: said("does not answer; waiting up to 600 s (COURANT_PREFECT_PATIENCE_S)"))
    assert watched.lost() is None
    start_server(port)
    wait_for(lambda: said("Prefect's server answers again"))
    assert told.count("does not answer") == 1


def test_a_server_that_stays_away_ends_the_command_in_one_line(monkeypatch):
    monkeypatch.setattr("flows.cluster.prefect_api.LOOK_S", 0.05)
    (port,) = free_ports(1)
    watched = OtherServer(f"http://127.0.0.1:{port}/api", patience_s=0.2)
    with pytest.raises(InputError, match=r"has not answered for 0.2 s; what was done is kept"):
        watched.wait_until_it_answers()


def test_a_new_client_waits_for_a_server_that_is_starting_again(monkeypatch):
    (port,) = free_ports(1)
    # Its connection tries for a second and a half; what waits longer is Prefect's own patience.
    monkeypatch.setattr(
        "prefect.client.base.time.sleep", lambda seconds: seconds > 1 and start_server(port)
    )
    keep_asking()
    settings = {PREFECT_API_URL: f"http://127.0.0.1:{port}/api", PREFECT_CLIENT_MAX_RETRIES: 6}
    with temporary_settings(settings), get_client(sync_client=True) as client:
        assert client.request("GET", "/health").status_code == 200


@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan"])
def test_a_patience_that_is_no_time_is_named(monkeypatch, given):
    monkeypatch.setenv("COURANT_PREFECT_PATIENCE_S", given)
    with pytest.raises(InputError, match="COURANT_PREFECT_PATIENCE_S is"):
        load_settings()


@pytest.mark.parametrize(
    ("status", "there"), [(200, True), (401, True), (502, False), (503, False)]
)
def test_a_proxy_without_its_server_is_no_server(status: int, there: bool) -> None:
    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert answers(f"http://127.0.0.1:{server.server_port}/api") is there
    finally:
        server.shutdown()
        server.server_close()
