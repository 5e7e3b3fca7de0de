"""Applications are read to their end and leave no process; archives of raw cases are whole."""

import os
import pickle
import signal
import subprocess
import sys
import tarfile
import threading
import time

import fsspec
import numpy as np
import pytest

from flows.solving import archive_case
from simgen.errors import CaseError, MachineError, ProgramError, SolverError, StoreError
from simgen.foam.run import run_application, run_solver
from simgen.machine import start_of
from simgen.meshing import check_mesh
from simgen.solving.preparation import as_program_error
from tests.end_to_end.conftest import wait_for

#: Prints a line, and once that is read all others at once.
APPLICATION = """#!/bin/sh
echo 'Time = 1'
sleep 0.5
seq 2 400 | sed 's/^/Time = /'
echo End
"""

#: Prints until somebody ends it, and says which process it is.
ENDLESS = """#!/bin/sh
echo $$ > "$(dirname "$0")/pid"
while :; do echo 'Time = 1'; sleep 0.01; done
"""

#: Starts the solver as a site's wrapper does, which waits for it, and notes which process it is.
WRAPPER = """#!/bin/sh
sleep 600 &
echo $! > "$(dirname "$0")/pid"
echo 'Time = 1'
wait
"""

#: Leaves a process of a session of its own behind, which has the log open.
DAEMON = """#!/bin/sh
echo 'Time = 1'
setsid sleep 600 &
echo $! > "$(dirname "$0")/pid"
sleep 0.3
echo End
"""

DRIVER = """
import sys
from pathlib import Path
from simgen.foam.run import run_application

run_application(sys.argv[1], Path(sys.argv[2]), on_step=lambda _: print("steps", flush=True))
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    def put(name, text):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return put


def has_ended(tmp_path):
    return start_of(int((tmp_path / "pid").read_text())) is None


def test_a_reader_that_comes_late_loses_no_line(tmp_path, program):
    program("lateFoam", APPLICATION)

    def be_late(log):
        # Longer than the application takes for all the others.
        if log.num_steps == 1:
            time.sleep(1)

    log, _ = run_application("lateFoam", tmp_path, on_step=be_late)
    assert log.finished
    assert (log.time, log.num_steps) == (400.0, 400)
    assert (tmp_path / "lateFoam.logfile").read_text().splitlines()[-1] == "End"


def test_ctrl_c_ends_the_application_and_is_no_failure_of_its_own(tmp_path, program, capsys):
    program("endlessFoam", ENDLESS)
    # While the main thread waits for more output, where it nearly always is.
    interrupt = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        run_application("endlessFoam", tmp_path)
    assert has_ended(tmp_path)
    assert capsys.readouterr().out == ""


def test_a_log_that_cannot_be_written_ends_the_application(tmp_path, program):
    program("endlessFoam", ENDLESS)
    (tmp_path / "endlessFoam.logfile").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        run_application("endlessFoam", tmp_path)
    assert has_ended(tmp_path)


def test_an_application_that_cannot_be_started_is_named(tmp_path):
    with pytest.raises(SolverError, match="anyFoam ended with exit code 127") as error:
        run_application("anyFoam", tmp_path, time_limit_s=60.0)
    assert error.value.log_tail == "anyFoam: No such file or directory"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_driver(tmp_path, program, number):
    program("wrappedFoam", WRAPPER)
    command = [sys.executable, "-c", DRIVER, "wrappedFoam", tmp_path]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert driver.stdout.readline() == b"steps\n"
    driver.send_signal(number)
    driver.wait()
    wait_for(lambda: has_ended(tmp_path), 60)


def test_a_solver_that_starts_a_daemon_leaves_none_behind(tmp_path, program):
    program("forkingFoam", DAEMON)
    log, _ = run_application("forkingFoam", tmp_path)  # the daemon has the log open for 600 s
    assert log.finished and has_ended(tmp_path)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", ["HUP", "INT", "KILL", "TERM", "SEGV", "FPE", "ABRT"])
def test_a_signal_from_outside_is_no_failure_of_the_case_and_a_crash_is_one(
    tmp_path, program, name, wrapped
):
    crash = name in ("SEGV", "FPE", "ABRT")
    kill = f"kill -{name} $$"
    line = f"bash -c '{kill}'" if wrapped else kill
    program("killedFoam", f"#!/bin/bash\necho Time = 1\n{line}\nexit $?\n")
    reason = "exit code" if crash else f"at t = 1 s, was killed by SIG{name}"
    with pytest.raises(SolverError if crash else MachineError, match=reason):
        run_application("killedFoam", tmp_path)


@pytest.mark.parametrize("endless", ["checkMesh", "decomposePar", "reconstructPar"])
def test_checking_cutting_and_joining_have_a_time_limit(tmp_path, program, monkeypatch, endless):
    for name in ("checkMesh", "decomposePar", "reconstructPar", "mpirun"):
        program(name, ENDLESS if name == endless else "#!/bin/sh\necho End\n")
    monkeypatch.setattr("simgen.foam.run.read_points", lambda _: np.eye(3))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    (tmp_path / "system").mkdir()
    with pytest.raises(SolverError, match=f"{endless} passed its time limit of 1 s"):
        if endless == "checkMesh":
            check_mesh(tmp_path, 1)
        else:
            run_solver("anyFoam", tmp_path, 2, time_limit_s=1)
    assert has_ended(tmp_path)


def write_case(parameters: dict[str, float]) -> float:
    return parameters["radus"]


def test_a_mistake_is_one_line_with_its_class_and_place_and_keeps_its_trace() -> None:
    with pytest.raises(ProgramError) as found, as_program_error("abc"):
        write_case({"radius": 1.0})
    error = pickle.loads(pickle.dumps(found.value))  # as it comes back from a worker
    assert str(error).startswith("case abc: KeyError: 'radus', in write_case (")
    assert "test_run.py, line " in str(error)
    assert 'return parameters["radus"]' in error.trace
    with pytest.raises(CaseError), as_program_error("abc"):
        raise CaseError("diverged")


WITH_LAST = {"system/controlDict", "constant/polyMesh/points", "icoFoam.logfile", "0/U", "2/U"}
FILES = WITH_LAST | {"1/U"}


@pytest.fixture
def case(tmp_path):
    directory = tmp_path / "scratch" / "0123456789ab"
    for name in FILES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)
    return directory


def names(url, **options):
    with fsspec.open(url, "rb", **options) as file, tarfile.open(fileobj=file) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


def test_a_raw_case_is_kept_whole_and_a_failed_one_with_its_last_time(case, tmp_path):
    store = f"{tmp_path}/store/cylinder-flow"
    assert names(archive_case(case, store, "raw")) == FILES
    url = archive_case(case, store, "failed")
    assert url == f"{tmp_path}/store/failed/cylinder-flow/0123456789ab.tar.gz"
    assert names(url) == WITH_LAST


def test_an_archive_that_could_not_be_replaced_is_as_it_was(case, tmp_path, monkeypatch):
    url = archive_case(case, f"{tmp_path}/store/cylinder-flow", "raw")

    def full(packed, target, length):
        target.write(packed.read(10))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("simgen.whole_file.shutil.copyfileobj", full)
    with pytest.raises(StoreError, match="No space left"):
        archive_case(case, f"{tmp_path}/store/cylinder-flow", "raw")
    assert "1/U" in names(url)
    assert len(list((tmp_path / "store/raw/cylinder-flow").iterdir())) == 1


def test_on_s3(case, s3):
    store = f"{s3.url}/archive/cylinder-flow"
    url = archive_case(case, store, "failed")
    assert url == f"{s3.url}/archive/failed/cylinder-flow/{case.name}.tar.gz"
    assert "icoFoam.logfile" in names(url)
