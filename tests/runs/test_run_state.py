"""A run that no process works on any more is interrupted, and whoever uses it is warned."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from courant.runs.directory import RunDirectory
from courant.runs.record import (
    HEARTBEAT,
    InUseError,
    check_unused,
    heartbeat,
    run_state,
    write_status,
)
from courant.runs.summary import read_run
from simgen.machine import start_of

BEATING = """
import sys
from courant.runs.directory import RunDirectory
from courant.runs.record import write_status
from courant.runs.record import heartbeat
run = RunDirectory(sys.argv[1])
with heartbeat(run):
    write_status(run, "running")
    print("beating", flush=True)
    sys.stdin.read()
"""

SLOWLY = """
import sys, time
from courant.runs import record
from courant.runs.directory import RunDirectory
record.ENDING_S = 0.0
write = RunDirectory.write_json
RunDirectory.write_json = lambda *given: (time.sleep(2), write(*given))
print("ready", flush=True)
sys.stdin.readline()
try:
    with record.heartbeat(RunDirectory(sys.argv[1])):
        print("trains", flush=True)
        sys.stdin.readline()
except record.InUseError:
    print("waits", flush=True)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def test_a_run_is_trained_by_one_process_of_a_machine_at_a_time(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one would replace finished weights by its own of an early epoch."""
    monkeypatch.setattr("courant.runs.record.ENDING_S", 0.5)
    worker = subprocess.Popen(
        [sys.executable, "-c", BEATING, run.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdout and worker.stdin
    try:
        assert worker.stdout.readline() == b"beating\n"
        said = f"is in use by process {worker.pid} of this machine"
        with pytest.raises(InUseError, match=said), heartbeat(run):
            pytest.fail("two processes train it")
        assert run_state(run) == "running"
        monkeypatch.setattr("courant.runs.record.ENDING_S", 600.0)
        threading.Timer(0.5, worker.kill).start()
        with heartbeat(run):  # waits for its end
            assert worker.wait(600) == -signal.SIGKILL
            assert run.read_object(HEARTBEAT)["process"] == os.getpid()
            check_unused(run)
        assert run_state(run) == "interrupted"
    finally:
        worker.kill()
        worker.wait(600)


def test_of_two_that_start_at_the_same_moment_one_trains(tmp_path: Path) -> None:
    """Each would find no sign of the other, which takes two seconds to write here."""
    command = [sys.executable, "-c", SLOWLY, str(tmp_path / "runs" / "new")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as other:
        for process in (one, other):
            assert process.stdout and process.stdout.readline() == b"ready\n"
        for process in (one, other):
            assert process.stdin
            process.stdin.write(b"go\n")
            process.stdin.flush()
        said = {process.stdout.readline() for process in (one, other) if process.stdout}
    assert said == {b"trains\n", b"waits\n"}


def test_a_run_whose_process_id_another_process_has_now_is_free(run: RunDirectory) -> None:
    with heartbeat(run):
        sign = run.read_object(HEARTBEAT)
    parent, started = os.getppid(), start_of(os.getppid())
    run.write_json(HEARTBEAT, sign | {"process": parent, "process_started": started})
    with pytest.raises(InUseError, match=f"process {parent} "):
        check_unused(run)
    run.write_json(HEARTBEAT, sign | {"process": parent, "process_started": started - 1})
    check_unused(run)


@pytest.mark.parametrize(("minutes", "expected"), [(1, "running"), (6, "interrupted")])
def test_of_a_worker_elsewhere_its_last_sign_of_life_is_what_counts(
    run: RunDirectory, minutes: int, expected: str
) -> None:
    seen = datetime.now(UTC) - timedelta(minutes=minutes)
    sign = {"host": f"not-{platform.node()}", "process": os.getpid(), "seen": seen.isoformat()}
    run.write_json(HEARTBEAT, sign)
    write_status(run, "running")
    assert run_state(run) == expected


@pytest.mark.parametrize("sign", ["[]", "{}", '{"seen": 3}', '{"seen": "2026-01-01"}', "\x00"])
def test_a_sign_that_makes_no_sense_is_none(run: RunDirectory, sign: str) -> None:
    run.write_bytes(HEARTBEAT, sign.encode())
    write_status(run, "running")
    assert run_state(run) == "interrupted"


def test_a_run_that_ended_keeps_its_state_and_no_sign_of_life(run: RunDirectory) -> None:
    with heartbeat(run):
        write_status(run, "finished", best_epoch=3)
    assert run_state(run) == "finished"
    assert HEARTBEAT not in run.names()


def test_the_test_error_of_a_run_that_was_trained_on_since_is_not_shown(
    waves_run: str, tmp_path: Path
) -> None:
    run = RunDirectory(shutil.copytree(waves_run, tmp_path / "tiny"))
    assert read_run(run).test_nmae is not None
    started = {**run.read_object("environment.json"), "started": "2999-01-01T00:00:00+00:00"}
    run.write_json("environment.json", started)
    assert read_run(run).test_nmae is None
