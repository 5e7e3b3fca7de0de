"""Ask for the job as a person does, and look at what it has left, each from where it is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.chaos.reference import chaos_experiment
from bench.rehearsal.cluster import Cluster
from bench.rehearsal.steps import RehearsalError, Steps, check
from tests.end_to_end.conftest import BIN, ROOT

CASES = 6
SETTINGS = {"end_time": 60, "mesh_size": 2}
#: Seconds that the job may take; two quiet cores need some two minutes.
BOUND_S = 2400.0
DEPLOYMENT = "generate-and-train/cylinder-flow"
_ENDED = "select state_type || ' ' || count(*) from flow_run group by state_type"


def rehearse(cluster: Cluster, folder: Path, steps: Steps) -> None:
    """Run the deployment, then check every place that it has written to."""
    with steps.step(f"prefect deployment run {DEPLOYMENT}") as step:
        nodes = _run_deployment(cluster, folder)
        step.found = f"completed; cases on {len(nodes)} nodes"
        check(len(nodes) == 2, f"cases were solved on {sorted(nodes)} alone")
    with steps.step("courant status --json") as step:
        step.found, run = _status(cluster)
    with steps.step("dataset and model, from Python elsewhere") as step:
        step.found = _elsewhere(cluster, run, folder)
    with steps.step("Prefect's database") as step:
        step.found = ", ".join(cluster.servers.postgres.query(_ENDED))
        check(step.found.startswith("COMPLETED") and "," not in step.found, step.found)
    with steps.step("log lines of cases") as step:
        step.found = _log_lines(cluster)
    with steps.step("scratch folders") as step:
        left = [path for place in cluster.scratch for path in place.glob("*")]
        check(not left, f"left behind: {left}")
        step.found = "empty"


def _run_deployment(cluster: Cluster, folder: Path) -> set[str]:
    """Return the nodes on whose scratch disks cases were seen."""
    experiment = folder / "experiment.json"
    experiment.write_text(chaos_experiment().model_dump_json())
    parameters: dict[str, Any] = {
        "cases": CASES,
        "settings": SETTINGS,
        "experiment": str(experiment),
        "store": f"{cluster.base}/store",
        "runs": f"{cluster.base}/runs",
        "report": f"{cluster.base}/reports/rehearsal",
    }
    options = [
        part
        for name, value in parameters.items()
        for part in ("--param", f"{name}={json.dumps(value)}")
    ]
    command = [str(BIN / "prefect"), "deployment", "run", DEPLOYMENT, "--watch", *options]
    log, seen, deadline = folder / "deployment.log", set(), time.monotonic() + BOUND_S
    with log.open("wb") as file:
        asked = subprocess.Popen(command, env=cluster.person, cwd=ROOT, stdout=file, stderr=file)
    while asked.poll() is None:
        check(time.monotonic() < deadline, f"not done after {BOUND_S:g} s: {log}")
        seen |= {place.name for place in cluster.scratch if any(place.glob("*/system"))}
        time.sleep(0.1)
    check(asked.returncode == 0, f"the flow run failed: {cluster.worker_log} says why")
    return seen


def _status(cluster: Cluster) -> tuple[str, str]:
    """Return what `courant status` finds on S3, and the run's URL."""
    places = ["--store", f"{cluster.base}/store", "--runs", f"{cluster.base}/runs"]
    found = json.loads(_output(cluster, str(BIN / "courant"), "status", *places, "--json"))
    (dataset,), (run,) = found["datasets"], found["runs"]
    check(dataset["state"] == "published", f"the dataset is {dataset['state']}")
    check(run["state"] == "finished", f"the training is {run['state']}")
    told = f"{dataset['version']} {dataset['state']}, training {run['epoch']}/{run['epochs']}"
    return f"{told} {run['state']}", run["url"]


def _elsewhere(cluster: Cluster, run: str, folder: Path) -> str:
    """Return what a plain Python process reads and predicts, in a folder of its own."""
    place = folder / "elsewhere"
    place.mkdir()
    script = [sys.executable, "-m", "bench.rehearsal.elsewhere"]
    found = json.loads(_output(cluster, *script, f"{cluster.base}/store", run, cwd=place))
    check(found["cases"] == {"accepted": CASES}, f"cases: {found['cases']}")
    check(found["finite"], "predicted values are not finite")
    check(not found["needless"], f"imported {found['needless']} for nothing")
    return (
        f"{found['version']}, {found['splits']}; {found['snapshots']} x {found['points']} points"
        f" read, {tuple(found['predicted'])} predicted"
    )


def _output(cluster: Cluster, *command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        command, env=cluster.reader, cwd=cwd, capture_output=True, text=True, timeout=BOUND_S
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RehearsalError(f"{os.path.basename(command[0])}: {last}")  # noqa: PTH119
    return done.stdout


def _log_lines(cluster: Cluster) -> str:
    """Check that what the worker has printed of cases carries their ids, one flow run's."""
    lines = [
        json.loads(line[line.index("{") :])
        for line in cluster.worker_log.read_text(errors="replace").splitlines()
        if '"case": ' in line
    ]
    cases, runs = {line["case"] for line in lines}, {line.get("flow_run") for line in lines}
    check(len(cases) == CASES, f"lines tell of {len(cases)} of {CASES} cases")
    check(len(runs) == 1 and None not in runs, f"lines name the flow runs {runs}")
    return f"{len(lines)} lines of {CASES} cases, one flow run"
