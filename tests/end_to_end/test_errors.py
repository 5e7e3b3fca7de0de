"""Trouble of the machine and the designs: one line, a non-zero exit, nothing half-written."""

import os
import platform
import signal
import tarfile
from pathlib import Path

import pytest

from tests.end_to_end.conftest import MINUTE, courant_at_work, run, solvers, wait_for
from tests.ray_nodes import ray_head

LONG = ("--set", "end_time=300", "--set", "mesh_size=2")
pytestmark = pytest.mark.end_to_end


def refused(environment, *arguments):
    """The one line of the error, and all that was printed with it."""
    done = run(environment, "courant", "generate", "cylinder-flow", "--cases", "2", *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in done.stderr
    return line, done.stderr


@pytest.mark.openfoam
def test_designs_that_are_all_rejected_make_no_version(environment, tmp_path):
    store = str(tmp_path / "store")
    short = ("--set", "end_time=5", "--set", "time_step=1", "--store", store)
    line, told = refused(environment, *short)
    assert "none of 2 cases was accepted" in line and "maximum Courant number is" in line
    shown = run(environment, "courant", "dataset", "show", f"{store}/cylinder-flow")
    assert shown.returncode == 1
    assert "has no published version yet" in shown.stderr
    archives = list(Path(store).glob("failed/cylinder-flow/*.tar.gz"))
    assert len(archives) == 2
    for archive in archives:
        assert f"; archive: {archive}" in told


@pytest.mark.openfoam
def test_a_failed_case_is_archived_and_solved_again_on_request(environment, tmp_path):
    store = tmp_path / "store"
    command = ("generate", "cylinder-flow", "--cases", "1", *LONG, "--store", str(store))
    scratch = tmp_path / "scratch"

    def has_stepped():
        logs = scratch.glob("*/icoFoam.logfile")
        return any(b"Solving for Ux" in log.read_bytes() for log in logs)

    with courant_at_work({**environment, "COURANT_SCRATCH": str(scratch)}, *command) as driver:
        wait_for(lambda: solvers(scratch) and has_stepped(), 600)
        os.kill(solvers(scratch)[0], signal.SIGSEGV)
        output, _ = driver.communicate(timeout=600)
    assert driver.returncode == 1 and "icoFoam ended with exit code -11" in output
    (archive,) = store.glob("failed/cylinder-flow/*.tar.gz")
    with tarfile.open(archive) as packed:
        log = packed.extractfile(f"{archive.name.partition('.')[0]}/icoFoam.logfile")
        assert b"Solving for Ux" in log.read()
    retried = run(environment, "courant", *command, "--retry-failed", "--archive-raw")
    assert retried.returncode == 0, retried.stderr
    assert (store / "raw/cylinder-flow" / archive.name).is_file()


@pytest.mark.openfoam
def test_a_node_without_a_solver_is_named(environment, tmp_path):
    """It would take one case after the other, each in a moment."""
    environment = {**environment, "COURANT_SCRATCH": str(tmp_path / "scratch")}
    with ray_head({**environment, "WM_PROJECT_DIR": "/nowhere"}) as head:
        joined = {**environment, **head.authentication, "RAY_ADDRESS": head.address}
        line, _ = refused(joined, *MINUTE, "--store", str(tmp_path / "store"))
    assert f"on {platform.node()}: OpenFOAM's etc/controlDict is not under /nowhere" in line
