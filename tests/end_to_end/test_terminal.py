"""Ctrl-C at a terminal while the servers start; at later stages it is among the faults of
`bench/chaos`.
"""

import pytest

from tests.end_to_end.conftest import MINUTE, wait_for
from tests.end_to_end.processes import lives
from tests.end_to_end.terminal import in_a_terminal

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam]

# A quiet machine needs a few seconds; a busy one several times as long.
BAR_S = 60
LAST_LINE = "interrupted; the same command goes on from here"


def test_ctrl_c_ends_a_command_whose_servers_start(environment, tmp_path):
    alone = {name: value for name, value in environment.items() if name != "PREFECT_API_URL"}
    alone["COURANT_SCRATCH"] = str(tmp_path / "scratch")
    command = ["generate", "cylinder-flow", "--cases", "4", *MINUTE, "--store", str(tmp_path / "s")]
    with in_a_terminal(alone, *command) as job:
        wait_for(lambda: "starting" in job.printed or job.process.poll() is not None, 300)
        assert job.process.poll() is None, job.printed
        seconds, processes = job.interrupt()
    assert (job.process.returncode, job.last_line) == (130, LAST_LINE), job.printed
    assert "Traceback" not in job.printed
    assert seconds < BAR_S
    wait_for(lambda: not any(map(lives, processes)), 60)
