"""`make serve` says in one line where a Prefect server is missing, and ends when it is told to."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_a_server_that_does_not_answer_is_named() -> None:
    done = subprocess.run(
        [ROOT / "infra/prefect/serve"],
        env={**os.environ, "PREFECT_API_URL": "http://127.0.0.1:1/api"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: no Prefect server answers at PREFECT_API_URL, http://127.0.0.1:1/api"
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
