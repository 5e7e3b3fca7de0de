"""Killed in the middle: no solver lives on, what was done stays done, the same command goes on from there."""

import os
import signal
from pathlib import Path

import pytest

import simgen
from tests.end_to_end.conftest import run, solvers, wait_for
from tests.end_to_end.interrupting import done_cases, parent, start_courant

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]

CASES = 5
COMMAND = ["generate", "cylinder-flow", "--cases", str(CASES), "--set", "end_time=60", "--store"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "ctrl-c"])
def test_a_generation_that_is_cut_off_goes_on_where_it_stopped(prefect_server, tmp_path, how):
    scratch = tmp_path / "scratch"
    environment = {**prefect_server, "COURANT_SCRATCH": str(scratch)}
    url = f"{tmp_path}/store/cylinder-flow"
    driver = start_courant(environment, *COMMAND, str(tmp_path / "store"))
    try:
        wait_for(lambda: len(done_cases(url)) >= 1 and solvers(scratch), 240)
        driver.send_signal(how)
        output, _ = driver.communicate(timeout=60)
    finally:
        driver.kill()
    wait_for(lambda: not solvers(scratch), 20)
    before = done_cases(url)
    assert 1 <= len(before) < CASES, "the test has to interrupt a run that is under way"
    if how == signal.SIGINT:
        assert driver.returncode == 130
        assert b"goes on from here" in output
        assert b"Traceback" not in output

    again = run(environment, "courant", *COMMAND, str(tmp_path / "store"))
    assert again.returncode == 0, again.stderr
    dataset = simgen.open_dataset(url)
    assert len(dataset) == CASES
    assert set(before) <= set(dataset.cases())
    told = (again.stdout + again.stderr).splitlines()
    solved = [case for case in dataset.cases() for line in told if line.startswith(f"case {case}")]
    assert sorted(solved) == sorted(set(dataset.cases()) - set(before)), "no case is solved twice"


def test_a_killed_solver_fails_its_case_and_a_killed_worker_loses_none(prefect_server, tmp_path):
    scratch, store = tmp_path / "scratch", str(tmp_path / "store")
    environment = {**prefect_server, "COURANT_SCRATCH": str(scratch)}
    driver = start_courant(environment, *COMMAND, store)
    try:
        wait_for(lambda: solvers(scratch), 240)
        victim = solvers(scratch)[0]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: [solver for solver in solvers(scratch) if solver != victim], 60)
        running = next(solver for solver in solvers(scratch) if solver != victim)
        os.kill(parent(running), signal.SIGKILL)
        output, _ = driver.communicate(timeout=240)
    finally:
        driver.kill()
    assert driver.returncode == 0, output.decode()
    design = simgen.open_dataset(f"{store}/cylinder-flow").design
    assert sorted(design["status"]) == ["accepted"] * (CASES - 1) + ["failed"]
    assert "icoFoam ended with exit code -9" in design[design["status"] == "failed"]["reason"].item()
    retried = run(environment, "courant", *COMMAND, store, "--retry-failed")
    assert retried.returncode == 0, retried.stderr
    assert len(simgen.open_dataset(f"{store}/cylinder-flow")) == CASES


def test_a_command_that_is_killed_takes_its_prefect_server_along(environment, tmp_path):
    alone = {name: value for name, value in environment.items() if name != "PREFECT_API_URL"}
    alone["COURANT_SCRATCH"] = str(tmp_path / "scratch")
    driver = start_courant(alone, *COMMAND, str(tmp_path / "store"))
    try:
        wait_for(lambda: solvers(tmp_path / "scratch"), 240)
        servers = prefect_servers(driver.pid)
        assert len(servers) == 1
    finally:
        driver.kill()
        driver.wait()
    wait_for(lambda: not any(Path(f"/proc/{server}").exists() for server in servers), 30)


def prefect_servers(parent: int) -> list[int]:
    """Process ids of the API servers that a process has started."""
    children = Path(f"/proc/{parent}/task").glob("*/children")
    processes = [int(child) for listed in children for child in listed.read_text().split()]
    return [child for child in processes if b"uvicorn" in Path(f"/proc/{child}/cmdline").read_bytes()]
