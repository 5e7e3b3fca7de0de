"""Running an application: its log is read to the end, however slow the reader is, and neither a
timer of PyFoam's nor the application stays behind.
"""

import errno
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from PyFoam.Execution.FoamThread import checkForStopFile

from simgen.foam.run import _FoamThread, run_application

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


@pytest.fixture
def program(tmp_path, monkeypatch):
    def put(name, text):
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        (tmp_path / name).chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return put


def has_ended(tmp_path):
    try:
        os.kill(int((tmp_path / "pid").read_text()), 0)
    except ProcessLookupError:
        return True
    return False


def test_a_reader_that_comes_late_loses_no_line(tmp_path, program):
    program("lateFoam", APPLICATION)

    def be_late(log):
        # Longer than PyFoam waits before it throws away what nobody has read.
        if log.num_steps == 1:
            time.sleep(4)

    log, _ = run_application("lateFoam", tmp_path, on_step=be_late)
    assert log.finished
    assert (log.time, log.num_steps) == (400.0, 400)
    assert (tmp_path / "lateFoam.logfile").read_text().splitlines()[-1] == "End"


def test_an_application_that_ends_while_a_timer_looks_leaves_no_timer(tmp_path):
    thread = _FoamThread("true", SimpleNamespace(dir=str(tmp_path)))
    thread.isLinux = False
    thread.timer2 = threading.Timer(600, print)
    thread.timer2.start()
    thread.stopTimer()
    checkForStopFile(thread)  # which was under way when the application ended
    thread.timer2.join(60)
    assert not thread.timer2.is_alive()


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


def test_an_application_that_cannot_be_started_is_told(tmp_path, monkeypatch):
    def start(*arguments, **options):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("PyFoam.Execution.FoamThread.subprocess.Popen", start)
    with pytest.raises(OSError, match="Too many open files"):
        run_application("anyFoam", tmp_path, time_limit_s=60.0)


def test_a_letter_of_another_encoding_does_not_end_a_solve(tmp_path, program):
    program(
        "latinFoam", b"#!/bin/sh\nprintf 'Rapha\\353l\\n'\nsleep 0.2\necho 'Time = 7'\necho End\n"
    )
    log, _ = run_application("latinFoam", tmp_path)
    assert log.finished and log.time == 7
