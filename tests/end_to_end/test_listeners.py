"""A command opens nothing beyond loopback, and nothing there without its token or password."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.end_to_end.conftest import SHORT, wait_for
from tests.end_to_end.interrupting import start_courant
from tests.end_to_end.processes import command_line, listeners, listeners_until_end, tree

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]

# What an unrelated process tries: the cluster's own address, as its listeners give it away.
INTRUDER = """
import sys, ray
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1]).internal_kv_keys(b"", namespace=None, timeout=10)
    print("in")
except ray.exceptions.AuthenticationError:
    print("refused")
"""
WITHOUT_TOKEN = [
    {},
    {"RAY_AUTH_MODE": "disabled"},
    {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
]


def test_the_main_job_listens_on_loopback_alone_and_lets_nobody_in(environment, tiny_experiment, tmp_path):
    alone = {name: value for name, value in environment.items() if name != "PREFECT_API_URL"}
    # Two workers, so that they talk to each other.
    experiment = json.loads(tiny_experiment.read_text())
    experiment["training"]["workers"] = 2
    (tmp_path / "experiment.json").write_text(json.dumps(experiment))
    job = start_courant(
        {**alone, "COURANT_SCRATCH": str(tmp_path / "scratch")},
        "run", "cylinder-flow", "--cases", "3", "--set", SHORT,
        "--experiment", str(tmp_path / "experiment.json"), "--out", str(tmp_path / "out"),
    )  # fmt: skip
    try:
        ray, prefect = _address(job, "gcs_server"), _address(job, "uvicorn")
        for variables in WITHOUT_TOKEN:
            assert _intrude(environment, ray, variables) == "refused"
        assert _answer(f"http://{prefect}/api/flows/count") == 401
        assert _answer(f"http://{prefect}/api/health") == 200
        secrets = _secrets(job)
        assert set(secrets) == {"RAY_AUTH_TOKEN", "PREFECT_API_AUTH_STRING"}
        lines = "\n".join(_read(job, "cmdline"))
        assert not [secret for secret in secrets.values() if secret in lines]
        # The work does not hang on its dashboard: this one is started again.
        server = next(one for one in tree(job.pid) if "uvicorn" in command_line(one))
        os.kill(server, signal.SIGKILL)
        found = listeners_until_end(job, 400)
        output = job.stdout.read().decode()
    finally:
        job.kill()
    assert job.returncode == 0, output
    assert "Prefect's server died; starting it again" in output
    assert "Traceback" not in output
    assert not [one for one in found if not one.on_loopback]
    names = " ".join(one.process for one in found)
    agents = ("DashboardAgent", "RuntimeEnvAgent")
    for expected in ("raylet", "gcs_server", *agents, "RayTrainWorker", "uvicorn"):
        assert expected in names
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left
    for path in left:
        content = path.read_bytes()
        assert not [secret for secret in secrets.values() if secret.encode() in content], path


def _address(job: subprocess.Popen[bytes], name: str) -> str:
    """Where the job's process of that name listens, once it does."""
    found: list[str] = []

    def look() -> bool:
        assert job.poll() is None, job.stdout.read().decode()
        found.extend(
            f"127.0.0.1:{one.port}" for one in listeners(tree(job.pid)) if name in one.process.partition("--")[0]
        )
        return bool(found)

    wait_for(look, 300)
    return found[0]


def _read(job: subprocess.Popen[bytes], file: str) -> list[str]:
    """What the kernel tells of each of the job's processes."""
    found = []
    for process in tree(job.pid):
        # It may end while it is looked at.
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{process}/{file}").read_bytes().decode(errors="replace"))
    return found


def _secrets(job: subprocess.Popen[bytes]) -> dict[str, str]:
    """From the environment of the job's processes, which only their own user can read."""
    found = {}
    for environment in _read(job, "environ"):
        for entry in environment.split("\0"):
            name, _, value = entry.partition("=")
            if name in ("RAY_AUTH_TOKEN", "PREFECT_API_AUTH_STRING"):
                found[name] = value
    return found


def _intrude(environment: dict[str, str], address: str, variables: dict[str, str]) -> str:
    own = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    tried = subprocess.run(
        [sys.executable, "-c", INTRUDER, address],
        env={**own, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return tried.stdout.strip() or tried.stderr


def _answer(url: str) -> int:
    body = None if url.endswith("health") else json.dumps({}).encode()
    request = urllib.request.Request(url, data=body)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
