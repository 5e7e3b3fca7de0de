"""Ray nodes as processes of their own, with their own ports and folders, ended by their process
ids.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import free_ports
from tests.end_to_end.processes import tree

BIN = Path(sys.executable).parent
START_S = 600.0
#: On a machine that starts several at a time, agents take longer than Ray waits by itself.
PATIENT = {"RAY_agent_register_timeout_ms": "150000", "RAY_worker_register_timeout_seconds": "600"}


@dataclass(frozen=True)
class RayNode:
    """A node of a cluster: the `ray start` process, which takes its children along."""

    process: subprocess.Popen[bytes]
    address: str
    """host:port of the cluster's head, for processes that join it"""
    dashboard: str
    """http://host:port, for jobs"""
    authentication: dict[str, str]
    """variables of a process that talks to this cluster"""
    folder: Path
    """where the node keeps its sockets and logs"""

    @property
    def headers(self) -> dict[str, str]:
        """Of a request to the dashboard."""
        token = self.authentication.get("RAY_AUTH_TOKEN")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str) -> bytes:
        """The dashboard's answer."""
        request = urllib.request.Request(f"{self.dashboard}{path}", headers=self.headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()

    def kill(self) -> None:
        """As a power cut would: every process of the node at once."""
        if self.process.poll() is not None:
            return
        for process in reversed(tree(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def ray_head(
    environment: Mapping[str, str], cpus: int = 2, token: str | None = None
) -> Iterator[RayNode]:
    """A head with its dashboard on loopback, ready for jobs; it asks for the token where there is
    one.
    """
    port, dashboard, agent = free_ports(3)
    authentication = (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        if token
        else {"RAY_AUTH_MODE": "disabled"}
    )
    # Not pytest's folder: paths of Unix sockets are short.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        node = RayNode(
            _start(
                {**environment, **authentication},
                folder,
                "--head",
                f"--port={port}",
                f"--num-cpus={cpus}",
                f"--temp-dir={folder}",
                "--include-dashboard=true",
                "--dashboard-host=127.0.0.1",
                f"--dashboard-port={dashboard}",
                # Of another Ray's agent on this machine it would be taken: no job would start.
                f"--dashboard-agent-listen-port={agent}",
            ),
            f"127.0.0.1:{port}",
            f"http://127.0.0.1:{dashboard}",
            authentication,
            Path(folder),
        )
        try:
            _wait(node, Path(folder) / "start.log")
            _wait_for_another(node, set())
            yield node
        finally:
            node.kill()


@contextlib.contextmanager
def ray_worker(head: RayNode, environment: Mapping[str, str], cpus: int = 1) -> Iterator[RayNode]:
    """One more node of the head's cluster, which has joined."""
    known = _alive(head)  # one that was killed just now may still be among them
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        process = _start(
            {**environment, **head.authentication},
            folder,
            f"--address={head.address}",
            f"--dashboard-agent-listen-port={free_ports(1)[0]}",
            f"--num-cpus={cpus}",
            f"--temp-dir={folder}",
        )
        node = RayNode(process, head.address, head.dashboard, head.authentication, Path(folder))
        try:
            _wait_for_another(head, known)
            yield node
        finally:
            node.kill()


def _start(environment: Mapping[str, str], folder: str, *arguments: str) -> subprocess.Popen[bytes]:
    fixed = [
        "--block",
        "--node-ip-address=127.0.0.1",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--disable-usage-stats",
    ]
    with (Path(folder) / "start.log").open("wb") as log:
        return subprocess.Popen(
            [str(BIN / "ray"), "start", *arguments, *fixed],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**PATIENT, **environment, "PATH": f"{BIN}:{environment['PATH']}"},
        )


def _wait(node: RayNode, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert node.process.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(OSError):
            node.get("/api/jobs/")
            return
        time.sleep(0.5)
    raise AssertionError(f"Ray did not come up: {log.read_text()[-2000:]}")


def _alive(head: RayNode) -> set[str]:
    """Ids of the nodes that the head takes for alive."""
    nodes = [of["raylet"] for of in json.loads(head.get("/nodes?view=summary"))["data"]["summary"]]
    return {node["nodeId"] for node in nodes if node.get("state") == "ALIVE"}


def _wait_for_another(head: RayNode, known: set[str]) -> None:
    deadline = time.monotonic() + START_S
    while not _alive(head) - known:
        assert time.monotonic() < deadline, f"no other node than {known} after {START_S} s"
        time.sleep(0.5)
