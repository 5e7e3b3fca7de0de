"""Running an application: its log is read to the end, however slow the reader is, and nothing that
it has started stays behind.
"""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from simgen.errors import MachineError, SolverError
from simgen.foam.run import run_application, run_solver
from simgen.machine import start_of
from simgen.meshing import check_mesh

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
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
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
    asked = []

    def ask_to_end(log):
        if not asked:
            # While the main thread waits for more output, where it nearly always is.
            asked.append(threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)))
            asked[0].start()

    with pytest.raises(KeyboardInterrupt):
        run_application("endlessFoam", tmp_path, on_step=ask_to_end)
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


def test_a_letter_of_another_encoding_does_not_end_a_solve(tmp_path, program):
    program(
        "latinFoam", b"#!/bin/sh\nprintf 'Rapha\\353l\\n'\nsleep 0.2\necho 'Time = 7'\necho End\n"
    )
    log, _ = run_application("latinFoam", tmp_path)
    assert log.finished and log.time == 7


def test_a_time_limit_ends_a_solver_behind_a_wrapper(tmp_path, program):
    program("wrappedFoam", WRAPPER)
    started = time.monotonic()
    with pytest.raises(SolverError, match="wrappedFoam passed its time limit of 1 s at t = 1 s"):
        run_application("wrappedFoam", tmp_path, time_limit_s=1)
    assert has_ended(tmp_path)
    assert time.monotonic() - started < 300, "the wrapped solver takes 600 s"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_driver(tmp_path, program, number):
    program("wrappedFoam", WRAPPER)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, "wrappedFoam", tmp_path], stdout=subprocess.PIPE
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == b"steps\n"
    driver.send_signal(number)
    driver.wait()
    deadline = time.monotonic() + 60
    while not has_ended(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_solver_that_starts_a_daemon_leaves_none_behind(tmp_path, program):
    program("forkingFoam", DAEMON)
    log, seconds = run_application("forkingFoam", tmp_path)
    assert log.finished
    assert has_ended(tmp_path)
    assert seconds < 300, "the daemon has the log open for 600 s"


@pytest.mark.parametrize("name", ["HUP", "INT", "KILL", "TERM"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_signal_from_outside_is_no_failure_of_the_case(tmp_path, program, name, wrapped):
    kill = f"kill -{name} $$"
    line = f"bash -c '{kill}'" if wrapped else kill
    program("killedFoam", f"#!/bin/bash\necho Time = 1\n{line}\nexit $?\n")
    with pytest.raises(MachineError, match=f"killedFoam, at t = 1 s, was killed by SIG{name}"):
        run_application("killedFoam", tmp_path)


@pytest.mark.parametrize("name", ["SEGV", "FPE", "ABRT"])
def test_a_crash_is_a_failure_of_the_case(tmp_path, program, name):
    program("crashingFoam", f"#!/bin/bash\necho Time = 1\nkill -{name} $$\n")
    with pytest.raises(SolverError, match="crashingFoam ended with exit code -"):
        run_application("crashingFoam", tmp_path)


def test_checkmesh_has_a_time_limit(tmp_path, program):
    program("checkMesh", ENDLESS)
    with pytest.raises(SolverError, match="checkMesh passed its time limit of 1 s"):
        check_mesh(tmp_path, 1)
    assert has_ended(tmp_path)


@pytest.mark.parametrize("endless", ["decomposePar", "reconstructPar"])
def test_cutting_and_joining_a_case_have_a_time_limit(tmp_path, program, monkeypatch, endless):
    for name in ("decomposePar", "reconstructPar", "mpirun"):
        program(name, ENDLESS if name == endless else "#!/bin/sh\necho End\n")
    monkeypatch.setattr("simgen.foam.run._longest_axis", lambda _: 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    (tmp_path / "system").mkdir()
    with pytest.raises(SolverError, match=f"{endless} passed its time limit of 1 s"):
        run_solver("anyFoam", tmp_path, 2, time_limit_s=1)
    assert has_ended(tmp_path)
