"""`make rehearse`: the cluster's shape on one machine, a whole job on it, and what it has left.

    python -m bench.rehearsal                 ends with a table of what was checked
    python -m bench.rehearsal --keep FOLDER   keeps logs and databases there

Every part is a process of its own, on loopback: PostgreSQL, Prefect's server over it with a
password, S3, two Ray nodes with scratch folders of their own that ask for a token, and a Prefect
worker that gives work to Ray as jobs. S3 is all that they share. It needs root and Debian's
postgresql beside what `make setup` installs. Whatever it starts it ends, by process ids, also after
Ctrl-C. Exit code 1 where something was not as it should be, with one line.
"""

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.chaos.attempt import adopt_orphans
from bench.chaos.check import chaos_experiment
from bench.chaos.schedule import KINDS, unavailable
from bench.chaos.site import Servers, deploy, deployment_run, start_prefect_worker
from bench.report import show
from simgen.errors import SimgenError
from simgen.foam.run import find_openfoam
from simgen.machine import descendants, start_of
from tests.end_to_end.conftest import BIN, ROOT, run, stop
from tests.ray_nodes import ray_head, ray_worker

CASES = 6
SETTINGS = {"end_time": 60, "mesh_size": 2}
#: Seconds that the job may take; two quiet cores need some two minutes.
BOUND_S = 2400.0
_ENDED = "select state_type || ' ' || count(*) from flow_run group by state_type"
#: For processes to end by themselves once they are asked to.
GRACE_S = 20.0
#: Somebody's own program, with the three lines of the README: no Prefect and no Ray.
ELSEWHERE = """
import json, sys, numpy, courant, simgen
dataset = simgen.open_dataset(f"{sys.argv[1]}/cylinder-flow")
case, surrogate = dataset[dataset.cases("test")[0]], courant.load(sys.argv[2])
predicted = surrogate.predict_case(case, start_s=20, steps=3)
print(json.dumps({
    "version": dataset.version, "cases": dataset.design["status"].value_counts().to_dict(),
    "splits": dataset.splits, "points": len(case.points), "snapshots": len(case.time),
    "predicted": predicted.shape, "finite": bool(numpy.isfinite(predicted).all()),
    "needless": sorted({"prefect", "ray"} & sys.modules.keys()),
}))
"""
screen = Console(highlight=False)


class RehearsalError(Exception):
    """What was not as it should be, in one line."""


def check(right: object, problem: str) -> None:
    """Raise RehearsalError where something is not as it should be."""
    if not right:
        raise RehearsalError(problem)


@dataclass
class Step:
    """A step under way; `found` is filled in by what it finds."""

    what: str
    found: str = ""
    seconds: float = 0.0


STEPS: list[Step] = []
"""That are over"""


@contextmanager
def step_of(what: str) -> Iterator[Step]:
    """Show a step while it lasts, and print it with its time at its end."""
    step, began = Step(what), time.monotonic()
    with screen.status(what):
        yield step
    step.seconds = time.monotonic() - began
    STEPS.append(step)
    screen.print(f"{step.seconds:5.0f} s  {what}")


@contextmanager
def ending_all() -> Iterator[None]:
    """Leave no process of the block behind, however it ends; Ctrl-C and SIGTERM interrupt it."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        # Nobody cuts the end short.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + GRACE_S
            for process, started in living():
                if start_of(process) == started:
                    with contextlib.suppress(OSError):
                        os.kill(process, number)
            while living() and time.monotonic() < deadline:
                time.sleep(0.2)


def living() -> set[tuple[int, int]]:
    """Processes that this one has started, with their start times; ended ones are collected."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return descendants(os.getpid())


@dataclass(frozen=True)
class Cluster:
    """The running parts, and the environments of those who use them."""

    servers: Servers
    base: str
    """Of stores, runs and reports: s3://bucket/prefix"""
    scratch: tuple[Path, Path]
    person: dict[str, str]
    """Of somebody who asks Prefect's server for runs; a reader elsewhere has S3's keys alone"""
    reader: dict[str, str]
    worker_log: Path


def start_cluster(folder: Path, until: contextlib.ExitStack) -> Cluster:
    """Start everything; it ends with the stack."""
    servers = until.enter_context(Servers(folder))
    with step_of("PostgreSQL") as step:
        step.found = servers.postgres.query("show server_version", "postgres")[0]
    with step_of("S3") as step:
        s3 = servers.s3.server
        step.found = f"SeaweedFS at {s3.endpoint}"
    keys = s3.environment
    with step_of("Prefect's server over PostgreSQL") as step:
        password = f"admin:{secrets.token_hex(16)}"
        own = servers.environment("prefect")
        own["PREFECT_API_DATABASE_CONNECTION_URL"] = servers.postgres.url
        own["PREFECT_SERVER_API_AUTH_STRING"] = own["PREFECT_API_AUTH_STRING"] = password
        person = servers.open_prefect("prefect-server", own, until)
        # Those who ask the server know neither its database nor how it checks passwords.
        for name in ("PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_API_AUTH_STRING"):
            person.pop(name)
        step.found = person["PREFECT_API_URL"]
    scratch = (folder / "node-1", folder / "node-2")
    with step_of("two Ray nodes") as step:
        own = {**servers.environment("nodes"), **keys, "COURANT_LOG_FORMAT": "json"}
        nodes = [{**own, "COURANT_SCRATCH": str(place)} for place in scratch]
        head = until.enter_context(ray_head(nodes[0], cpus=1, token=secrets.token_hex(32)))
        until.enter_context(ray_worker(head, nodes[1]))
        step.found = f"{head.dashboard}, with a token"
    base = f"{s3.url}/rehearsal"
    worker = {
        **person,
        **keys,
        **{f"COURANT_{name.upper()}": f"{base}/{name}" for name in ("store", "runs", "reports")},
        **head.authentication,
        "RAY_ADDRESS": head.dashboard,
        "COURANT_SCRATCH": str(folder / "nobody"),
        "COURANT_LOG_FORMAT": "json",
    }
    log = folder / "worker.log"
    with step_of("pool, deployments, worker") as step:
        deploy(worker)
        listed = run(worker, "prefect", "deployment", "ls", "--output", "json")
        num_deployments = listed.stdout.count('"entrypoint"')
        step.found = f"{num_deployments} deployments"
        started = start_prefect_worker(worker, log)
        until.callback(stop, started)
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    python = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return Cluster(servers, base, scratch, person, {**plain, **python, **keys}, log)


def rehearse(cluster: Cluster, folder: Path) -> None:
    """Run the deployment, then check every place that it has written to."""
    with step_of("prefect deployment run") as step:
        nodes = _run_deployment(cluster, folder)
        step.found = f"completed; cases on {len(nodes)} nodes"
        check(len(nodes) == 2, f"cases were solved on {sorted(nodes)} alone")
    with step_of("courant status --json") as step:
        places = ["--store", f"{cluster.base}/store", "--runs", f"{cluster.base}/runs"]
        status = _output(cluster, str(BIN / "courant"), "status", *places, "--json")
        (dataset,), (trained,) = status["datasets"], status["runs"]
        check(dataset["state"] == "published", f"the dataset is {dataset['state']}")
        check(trained["state"] == "finished", f"the training is {trained['state']}")
        step.found = f"{dataset['version']}, training {trained['epoch']}/{trained['epochs']}"
    with step_of("dataset and model, from Python elsewhere") as step:
        place = folder / "elsewhere"
        place.mkdir()
        script = [sys.executable, "-c", ELSEWHERE, f"{cluster.base}/store"]
        found = _output(cluster, *script, trained["url"], cwd=place)
        check(found["cases"] == {"accepted": CASES}, f"cases: {found['cases']}")
        check(found["finite"], "predicted values are not finite")
        check(not found["needless"], f"imported {found['needless']} for nothing")
        step.found = (
            f"{found['version']}, {found['splits']}; {found['snapshots']} x {found['points']}"
            f" points read, {tuple(found['predicted'])} predicted"
        )
    with step_of("Prefect's database") as step:
        step.found = ", ".join(cluster.servers.postgres.query(_ENDED))
        check(step.found.startswith("COMPLETED") and "," not in step.found, step.found)
    with step_of("log lines of cases") as step:
        # What the worker has printed of cases has their ids, and one flow run's.
        lines = [
            json.loads(line[line.index("{") :])
            for line in cluster.worker_log.read_text(errors="replace").splitlines()
            if '"case": ' in line
        ]
        cases, runs = {line["case"] for line in lines}, {line.get("flow_run") for line in lines}
        check(len(cases) == CASES, f"lines are of {len(cases)} of {CASES} cases")
        check(len(runs) == 1 and None not in runs, f"lines name the flow runs {runs}")
        step.found = f"{len(lines)} lines of {CASES} cases, one flow run"
    with step_of("scratch folders") as step:
        left = [path for place in cluster.scratch for path in place.glob("*")]
        check(not left, f"left behind: {left}")
        step.found = "empty"


def _run_deployment(cluster: Cluster, folder: Path) -> set[str]:
    """Return the nodes on whose scratch disks cases were seen."""
    experiment = folder / "experiment.json"
    experiment.write_text(chaos_experiment().model_dump_json())
    report = f"{cluster.base}/reports/rehearsal"
    around = {"cases": CASES, "settings": SETTINGS, "experiment": str(experiment)}
    program, *arguments = deployment_run(cluster.base, report, **around)
    command = [str(BIN / program), *arguments]
    log, seen, deadline = folder / "deployment.log", set(), time.monotonic() + BOUND_S
    with log.open("wb") as file:
        asked = subprocess.Popen(command, env=cluster.person, cwd=ROOT, stdout=file, stderr=file)
    while asked.poll() is None:
        check(time.monotonic() < deadline, f"not done after {BOUND_S:g} s: {log}")
        seen |= {place.name for place in cluster.scratch if any(place.glob("*/system"))}
        time.sleep(0.1)
    check(asked.returncode == 0, f"the flow run failed, see {cluster.worker_log}")
    return seen


def _output(cluster: Cluster, *command: str, cwd: Path = ROOT) -> Any:
    """Return the JSON that a command of somebody elsewhere prints."""
    done = subprocess.run(
        command, env=cluster.reader, cwd=cwd, capture_output=True, text=True, timeout=BOUND_S
    )
    last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    check(not done.returncode, f"{Path(command[0]).name}: {last}")
    return json.loads(done.stdout)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="make rehearse", description="the cluster on one machine")
    parser.add_argument("--keep", type=Path, help="folder for logs and databases, kept")
    kept: Path | None = parser.parse_args().keep
    try:
        # What this machine lacks is an error before anything is started.
        find_openfoam(("icoFoam", "gmshToFoam", "checkMesh"))
        missing = unavailable(KINDS["PostgreSQL restarted"])
        check(missing is None, f"this {missing}: apt-get install postgresql, as root")
        is_new = kept is None or not kept.exists() or not any(kept.iterdir())
        check(is_new, f"{kept} is not empty: give --keep a new folder")
        # PostgreSQL's user enters it, and the paths of Ray's sockets are short.
        folder = kept.absolute() if kept else Path(tempfile.mkdtemp(prefix="rehearse-", dir="/tmp"))
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        try:
            with ending_all(), contextlib.ExitStack() as until:
                rehearse(start_cluster(folder, until), folder)
            check(not living(), f"still running: {sorted(living())}")
        finally:
            if not kept:
                shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        screen.print("interrupted; everything that was started has ended")
        return 130
    except (RehearsalError, SimgenError, RuntimeError, AssertionError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        hint = "" if kept else " (--keep FOLDER keeps the logs)"
        screen.print(f"[red]error:[/red] {lines[0]}{hint}", soft_wrap=True)
        return 1
    show([{"checked": e.what, "found": e.found, "seconds": round(e.seconds)} for e in STEPS])
    print(f"together {sum(each.seconds for each in STEPS) / 60:.1f} min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
