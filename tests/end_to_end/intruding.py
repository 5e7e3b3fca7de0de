"""An unrelated process beside a running command: where it listens, and whether it lets one in."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.end_to_end.conftest import wait_for
from tests.end_to_end.processes import listeners, tree

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


def address(job: subprocess.Popen[bytes], name: str) -> str:
    """Where the job's process of that name listens, once it does."""
    found: list[str] = []

    def look() -> bool:
        assert job.poll() is None, job.stdout.read().decode()
        found.extend(
            f"127.0.0.1:{one.port}"
            for one in listeners(tree(job.pid))
            if name in one.process.partition("--")[0]
        )
        return bool(found)

    wait_for(look, 300)
    return found[0]


def read_of_each(job: subprocess.Popen[bytes], file: str) -> list[str]:
    """What the kernel tells of each of the job's processes."""
    found = []
    for process in tree(job.pid):
        # It may end while it is looked at.
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{process}/{file}").read_bytes().decode(errors="replace"))
    return found


def secrets_of(job: subprocess.Popen[bytes]) -> dict[str, str]:
    """From the environment of the job's processes, which only their own user can read."""
    found = {}
    for environment in read_of_each(job, "environ"):
        for entry in environment.split("\0"):
            name, _, value = entry.partition("=")
            if name in ("RAY_AUTH_TOKEN", "PREFECT_API_AUTH_STRING"):
                found[name] = value
    return found


def intrude(environment: dict[str, str], address: str, variables: dict[str, str]) -> str:
    own = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    tried = subprocess.run(
        [sys.executable, "-c", INTRUDER, address],
        env={**own, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return tried.stdout.strip() or tried.stderr


def answer(url: str) -> int:
    body = None if url.endswith("health") else json.dumps({}).encode()
    request = urllib.request.Request(url, data=body)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
