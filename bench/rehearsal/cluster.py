"""The cluster's shape on one machine: every part a process of its own, on loopback.

PostgreSQL, Prefect's server over it with a password, S3, two Ray nodes with scratch folders of
their own that ask for a token, and a Prefect worker that hands work to Ray as jobs. S3 is all that
they share.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.chaos.servers import Servers
from bench.rehearsal.steps import RehearsalError, Steps
from tests.end_to_end.conftest import BIN, ROOT, run, stop
from tests.ray_nodes import ray_head, ray_worker


@dataclass(frozen=True)
class Cluster:
    """The running parts, and the environments of those who use them."""

    servers: Servers
    base: str
    """Of stores, runs and reports: s3://bucket/prefix"""
    scratch: tuple[Path, Path]
    person: dict[str, str]
    """Of somebody who asks Prefect's server for runs"""
    reader: dict[str, str]
    """Of a process elsewhere, which has S3's keys alone"""
    worker_log: Path


def start_cluster(folder: Path, steps: Steps, until: contextlib.ExitStack) -> Cluster:
    """Start everything; it ends with the stack."""
    servers = until.enter_context(Servers(folder))
    with steps.step("PostgreSQL") as step:
        step.found = servers.postgres.query("show server_version", "postgres")[0]
    with steps.step("S3") as step:
        s3 = servers.s3
        step.found = f"SeaweedFS at {s3.server.endpoint}"
    keys = {**s3.keys, "AWS_ENDPOINT_URL": s3.server.endpoint}
    with steps.step("Prefect's server over PostgreSQL") as step:
        person = _start_prefect(servers, until)
        step.found = person["PREFECT_API_URL"]
    scratch = (folder / "node-1", folder / "node-2")
    with steps.step("two Ray nodes") as step:
        own = {**servers.environment("nodes"), **keys, "COURANT_LOG_FORMAT": "json"}
        nodes = [{**own, "COURANT_SCRATCH": str(place)} for place in scratch]
        head = until.enter_context(ray_head(nodes[0], cpus=1, token=secrets.token_hex(32)))
        until.enter_context(ray_worker(head, nodes[1]))
        step.found = f"{head.dashboard}, with a token"
    base = f"{s3.url}/rehearsal"
    places = {f"COURANT_{name.upper()}": f"{base}/{name}" for name in ("store", "runs", "reports")}
    worker = {
        **person,
        **keys,
        **places,
        **head.authentication,
        "RAY_ADDRESS": head.dashboard,
        "COURANT_SCRATCH": str(folder / "nobody"),
        "COURANT_LOG_FORMAT": "json",
    }
    log = folder / "worker.log"
    with steps.step("pool, deployments, worker") as step:
        step.found = f"{_deploy(worker)} deployments"
        _start_worker(worker, log, until)
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    python = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return Cluster(servers, base, scratch, person, {**plain, **python, **keys}, log)


def _start_prefect(servers: Servers, until: contextlib.ExitStack) -> dict[str, str]:
    password = f"admin:{secrets.token_hex(16)}"
    own = servers.environment("prefect")
    own["PREFECT_API_DATABASE_CONNECTION_URL"] = servers.postgres.url
    own["PREFECT_SERVER_API_AUTH_STRING"] = own["PREFECT_API_AUTH_STRING"] = password
    client = servers.open_prefect("prefect-server", own, until)
    # Those who ask the server know neither its database nor how it checks passwords.
    for name in ("PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_API_AUTH_STRING"):
        client.pop(name)
    return client


def _deploy(environment: dict[str, str]) -> int:
    pool = ["work-pool", "create", "local", "--type", "process", "--overwrite"]
    for command in (pool, ["--no-prompt", "deploy", "--all"]):
        done = run(environment, "prefect", *command)
        if done.returncode:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise RehearsalError(f"prefect {' '.join(command)}: {''.join(last)}")
    listed = run(environment, "prefect", "deployment", "ls", "--output", "json")
    return listed.stdout.count('"entrypoint"')


def _start_worker(environment: dict[str, str], log: Path, until: contextlib.ExitStack) -> None:
    with log.open("wb") as file:
        worker = subprocess.Popen(
            [str(BIN / "prefect"), "worker", "start", "--pool", "local"],
            env=environment,
            cwd=ROOT,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    until.callback(stop, worker)
