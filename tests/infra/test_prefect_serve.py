"""`make serve` lets nobody run commands but who has its password, and ends when it is stopped."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import free_ports

ROOT = Path(__file__).parents[2]


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    done = subprocess.run(
        [ROOT / "infra/prefect/serve"],
        env={**os.environ, "PREFECT_API_URL": "http://me:secret@127.0.0.1:1/api"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: no Prefect server answers at PREFECT_API_URL, http://***@127.0.0.1:1/api"
    ]


WORKER = """#!{python}
import os, signal, sys, time
if "worker" not in sys.argv:
    sys.exit()
# Prefect's worker, told to end, sends itself SIGINT, and ends by that.
signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
print(os.getpid(), flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    time.sleep(2)  # it ends its flow runs first
    sys.exit(0)
"""


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    """The address of something that answers like a server's health check."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/api"
        server.shutdown()


@pytest.mark.parametrize(("told", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_ends_with_its_worker_when_it_is_told_to(tmp_path, server, told, code):
    """As systemd and Ctrl-C do; a shell that runs a command answers only after that has ended.

    A second Ctrl-C leaves no worker behind.
    """
    (tmp_path / "infra/prefect").mkdir(parents=True)
    shutil.copy(ROOT / "infra/prefect/serve", tmp_path / "infra/prefect/serve")
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    (programs / "prefect").write_text(WORKER.format(python=sys.executable))
    (programs / "prefect").chmod(0o755)
    serving = subprocess.Popen(
        [tmp_path / "infra/prefect/serve"],
        env={**os.environ, "PREFECT_API_URL": server},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert serving.stdout is not None
        worker = next(int(line) for line in serving.stdout if line.strip().isdigit())
        serving.send_signal(told)
        time.sleep(0.5)
        serving.send_signal(told)
        assert serving.wait(60) == code
        assert not Path(f"/proc/{worker}").exists()
    finally:
        serving.kill()
        serving.wait()


PREFECT = """#!{python}
import os, sys, time
if "worker" in sys.argv:
    print("worker has", os.environ.get("PREFECT_API_AUTH_STRING"), flush=True)
    time.sleep(600)
if "deploy" not in sys.argv:
    os.execv({prefect!r}, [{prefect!r}, *sys.argv[1:]])
"""
#: A page can send these without a preflight, and the worker would run the command.
ATTACK = json.dumps({"job_variables": {"command": "touch owned"}}).encode()


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[tuple[str, list[str]]]:
    """The address of what `make serve` starts, and the lines that it prints."""
    folder = tmp_path_factory.mktemp("serve")
    shutil.copytree(ROOT / "infra/prefect", folder / "infra/prefect")
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    real = str(Path(sys.executable).with_name("prefect"))
    (programs / "prefect").write_text(PREFECT.format(python=sys.executable, prefect=real))
    (programs / "prefect").chmod(0o755)
    (port,) = free_ports(1)
    environment = {**os.environ, "PREFECT_HOME": str(folder), "PREFECT_SERVER_API_PORT": str(port)}
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
        environment.pop(name, None)
    serving = subprocess.Popen(
        [folder / "infra/prefect/serve"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert serving.stdout is not None
        lines = []
        for line in serving.stdout:
            lines.append(line.strip())
            if line.startswith("worker has"):
                break
        else:
            pytest.fail("\n".join(lines))
        yield f"http://127.0.0.1:{port}", lines
    finally:
        serving.terminate()
        serving.wait(60)


def ask(url: str, headers: dict[str, str], body: bytes | None = ATTACK) -> tuple[int, str | None]:
    """The status of an answer, and the origin whose pages may read it."""
    # urllib would add a content type to a body; a page's Blob has none.
    request = urllib.request.Request(url, body, {"Content-Type": "", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers.get("Access-Control-Allow-Origin")
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Access-Control-Allow-Origin")


def test_a_foreign_page_starts_no_run_and_reads_nothing(served) -> None:
    server, _ = served
    page = {"Origin": "http://page.example"}
    start = f"{server}/api/deployments/00000000-0000-0000-0000-000000000000/create_flow_run"
    assert ask(start, page) == (401, None)
    assert ask(f"{server}/api/work_pools/filter", page, b"{}") == (401, None)
    assert ask(f"{server}/api/health", page, None) == (200, None)


def test_a_page_whose_name_was_changed_to_this_machine_gets_no_answer(served) -> None:
    server, _ = served
    for path in ("/api/health", "/", "/ui-settings"):
        assert ask(server + path, {"Host": "page.example"}, None)[0] == 400


def test_the_worker_and_who_reads_the_printed_line_have_the_password(served) -> None:
    server, lines = served
    password = lines[-1].removeprefix("worker has ")
    assert len(password) > 48
    export = f"export PREFECT_API_URL={server}/api PREFECT_API_AUTH_STRING={password}"
    assert export in lines
    basic = {"Authorization": f"Basic {base64.b64encode(password.encode()).decode()}"}
    wanted = {**basic, "Content-Type": "application/json", "Origin": server}
    assert ask(f"{server}/api/work_pools/filter", wanted, b"{}") == (200, server)


def test_a_server_without_a_password_is_not_started() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PREFECT_API_AUTH_STRING"}
    done = subprocess.run(
        [sys.executable, ROOT / "infra/prefect/server.py"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "PREFECT_API_AUTH_STRING" in done.stderr
