"""`make serve` lets nobody run commands but who has its password, and ends when it is stopped."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
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


PREFECT = """#!{python}
import os, signal, sys, time
if "worker" in sys.argv:
    # Prefect's worker, told to end, sends itself SIGINT, and ends by that.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    print("worker", os.getpid(), "has", os.environ.get("PREFECT_API_AUTH_STRING"), flush=True)
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        time.sleep(2)  # it ends its flow runs first
        sys.exit(0)
if "deploy" not in sys.argv:
    os.execv({prefect!r}, [{prefect!r}, *sys.argv[1:]])
"""
#: A page can send these without a preflight, and the worker would run the command.
ATTACK = json.dumps({"job_variables": {"command": "touch owned"}}).encode()


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[tuple[str, list[str], subprocess.Popen[str]]]:
    """The address of what `make serve` starts, the lines that it prints, and its process."""
    folder, (port,) = tmp_path_factory.mktemp("serve"), free_ports(1)
    shutil.copytree(ROOT / "infra/prefect", folder / "infra/prefect")
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    real = str(Path(sys.executable).with_name("prefect"))
    scripts = {
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        "prefect": PREFECT.format(python=sys.executable, prefect=real),
    }
    for name, script in scripts.items():
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if name not in CLIENT}
    serving = subprocess.Popen(
        [folder / "infra/prefect/serve"],
        env={**clean, "PREFECT_HOME": str(folder), "PREFECT_SERVER_API_PORT": str(port)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert serving.stdout is not None
        lines = []
        for line in serving.stdout:
            lines.append(line.strip())
            if line.startswith("worker"):
                break
        else:
            pytest.fail("\n".join(lines))
        yield f"http://127.0.0.1:{port}", lines, serving
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
    server, _, _ = served
    page = {"Origin": "http://page.example"}
    start = f"{server}/api/deployments/00000000-0000-0000-0000-000000000000/create_flow_run"
    assert ask(start, page) == (401, None)
    assert ask(f"{server}/api/work_pools/filter", page, b"{}") == (401, None)
    assert ask(f"{server}/api/health", page, None) == (200, None)
    # Nor does one whose name was changed to this machine.
    for path in ("/api/health", "/", "/ui-settings"):
        assert ask(server + path, {"Host": "page.example"}, None)[0] == 400


def test_the_worker_and_who_reads_the_printed_line_have_the_password(served) -> None:
    server, lines, _ = served
    password = lines[-1].split()[-1]
    assert len(password) > 48
    export = f"export PREFECT_API_URL={server}/api PREFECT_API_AUTH_STRING={password}"
    assert export in lines
    basic = {"Authorization": f"Basic {base64.b64encode(password.encode()).decode()}"}
    wanted = {**basic, "Content-Type": "application/json", "Origin": server}
    assert ask(f"{server}/api/work_pools/filter", wanted, b"{}") == (200, server)


def test_it_ends_with_its_worker_when_it_is_stopped(served) -> None:
    """As systemd and Ctrl-C do, which may come twice."""
    _, lines, serving = served
    serving.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    serving.send_signal(signal.SIGTERM)
    assert serving.wait(60) == 143
    assert not Path(f"/proc/{lines[-1].split()[1]}").exists()
