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
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import free_ports

ROOT = Path(__file__).parents[2]
CLIENT = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")


def test_a_server_that_does_not_answer_or_has_no_password_is_an_error() -> None:
    url = {**os.environ, "PREFECT_API_URL": "http://me:secret@127.0.0.1:1/api"}
    done = subprocess.run([ROOT / "infra/prefect/serve"], env=url, capture_output=True, text=True)
    assert done.returncode == 1 and "secret" not in done.stderr
    assert "PREFECT_API_URL, http://***@127.0.0.1:1/api" in done.stderr
    none = {name: value for name, value in os.environ.items() if name not in CLIENT}
    command = [sys.executable, ROOT / "infra/prefect/server.py"]
    done = subprocess.run(command, env=none, capture_output=True, text=True)
    assert done.returncode == 2 and "PREFECT_API_AUTH_STRING" in done.stderr


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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of something that answers like a server's health check."""
    (tmp_path / "health").touch()
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def serve(folder: Path, prefect: str, **environment: str) -> subprocess.Popen[str]:
    """Start the script in a folder whose environment has another `prefect`."""
    shutil.copytree(ROOT / "infra/prefect", folder / "infra/prefect")
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    for name, script in (("python", python), ("prefect", prefect)):
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if name not in CLIENT}
    return subprocess.Popen(
        [folder / "infra/prefect/serve"],
        env=clean | environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_ends_with_its_worker_when_it_is_stopped(tmp_path, server, sent, code):
    """As systemd and Ctrl-C do, which may come twice."""
    worker = WORKER.format(python=sys.executable)
    serving = serve(tmp_path / "source", worker, PREFECT_API_URL=server)
    try:
        assert serving.stdout is not None
        process = next(int(line) for line in serving.stdout if line.strip().isdigit())
        serving.send_signal(sent)
        time.sleep(0.5)
        serving.send_signal(sent)
        assert serving.wait(60) == code
        assert not Path(f"/proc/{process}").exists()
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
    folder, (port,) = tmp_path_factory.mktemp("serve"), free_ports(1)
    real = str(Path(sys.executable).with_name("prefect"))
    prefect = PREFECT.format(python=sys.executable, prefect=real)
    serving = serve(folder, prefect, PREFECT_HOME=str(folder), PREFECT_SERVER_API_PORT=str(port))
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
    # Nor does one whose name was changed to this machine.
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
