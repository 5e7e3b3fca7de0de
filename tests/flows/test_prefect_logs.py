"""A flow goes on where nobody reads its log any more: its worker was killed."""

import subprocess
import sys

FLOW = """
import sys
from flows.artifacts import show_markdown  # as every flow
from prefect.logging.handlers import PrefectConsoleHandler
import logging

logger = logging.getLogger("a.flow")
logger.propagate = False
logger.addHandler(PrefectConsoleHandler(stream=sys.stderr))
logger.warning("first")
sys.stdin.readline()
for number in range(5):
    logger.warning("nobody reads this %d", number)
    print("nor this", flush=True)
open(sys.argv[1], "w").write("went on")
"""


def test_a_flow_goes_on_when_its_reader_is_gone(tmp_path) -> None:
    left = tmp_path / "left"
    process = subprocess.Popen(
        [sys.executable, "-c", FLOW, str(left)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout and process.stderr
    assert "first" in process.stderr.readline()
    process.stderr.close()
    process.stdout.close()
    process.stdin.write("go on\n")
    process.stdin.close()
    assert process.wait(120) == 0
    assert left.read_text() == "went on"
