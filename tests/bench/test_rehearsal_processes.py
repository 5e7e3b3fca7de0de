"""The rehearsal leaves no process behind, also none whose parent has ended."""

import subprocess
import sys

import pytest

from simgen.machine import start_of

pytestmark = pytest.mark.nightly

INTERRUPTED = """
import os, signal, subprocess, time
from bench.rehearsal import ending_all, living

started = set()
try:
    with ending_all():
        # An orphan in a session of its own, which does not end when it is asked to.
        deaf = "trap '' TERM; while true; do sleep 1000; done"
        subprocess.run(["setsid", "sh", "-c", f"({deaf}) > /dev/null 2>&1 &"])
        while len(living()) < 2:
            time.sleep(0.05)
        started = living()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)
except KeyboardInterrupt:
    print(*(f"{process}:{start}" for process, start in started))
"""


def test_what_was_started_is_ended_whoever_its_parent_was() -> None:
    program = f"import bench.rehearsal as p; p.GRACE_S = 1.0\n{INTERRUPTED}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    started = [tuple(map(int, each.split(":"))) for each in done.stdout.split()]
    assert len(started) >= 2
    assert [process for process, start in started if start_of(process) == start] == []
