"""Running an application: its log is read to the end, however slow the reader is, and no timer of
PyFoam's stays behind.
"""

import os
import threading
import time
from types import SimpleNamespace

from PyFoam.Execution.FoamThread import checkForStopFile

from simgen.foam.run import _FoamThread, run_application

#: Prints a line, and once that is read all others at once.
APPLICATION = """#!/bin/sh
echo 'Time = 1'
sleep 0.5
seq 2 400 | sed 's/^/Time = /'
echo End
"""


def test_a_reader_that_comes_late_loses_no_line(tmp_path, monkeypatch):
    program = tmp_path / "lateFoam"
    program.write_text(APPLICATION)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

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
