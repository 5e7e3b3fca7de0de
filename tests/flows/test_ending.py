"""How signals end a command, at bad moments too."""

import signal
import subprocess
import sys

import pytest

from flows.ending import INTERRUPTED, TERMINATED

# A finalizer in which a signal arrives, whose exception Python drops: the work goes on.
COMMAND = """
import signal, sys, time
from flows.ending import answer_interrupts

answer_interrupts()

class Finalized:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))

Finalized()
print("finalized", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("number", "line"), [(2, INTERRUPTED), (15, TERMINATED)])
def test_a_signal_within_a_finalizer_still_ends_the_command(number: int, line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, str(number)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["finalized"]
    assert done.stderr == f"{line}\n"


# A library whose thread would abort the process while Python finalizes.
ABORTING = """
import atexit, os, sys, time
from flows.ending import answer_interrupts, exit_code

answer_interrupts()
import zarr

atexit.register(print, "callbacks are called")
zarr.core.sync._get_loop().call_soon_threadsafe(time.sleep, 1)  # it outlasts zarr's patience

class Aborting:
    def __del__(self):
        os.abort()

kept = Aborting()
sys.exit(exit_code(3))
"""


def test_a_command_that_returned_ends_with_its_code_whatever_libraries_do_at_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", ABORTING], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "callbacks are called\n", "")


# A command whose work does not end by itself, with a library that notices that it is killed.
KILLED = """
import os, sys, threading, time
from flows import ending
from flows import __main__

ending.GRACE_S = 0.2

class Cli:
    def app():
        held, other = os.pipe()
        if os.fork() == 0:
            time.sleep(600)
        os.close(other)

        def tell():
            os.read(held, 1)
            os.write(2, b"a server was lost\\n")
            os.write(1, b"a server was lost\\n")

        threading.Thread(target=tell, daemon=True).start()
        words = ["up"]
        while True:
            try:
                while words:
                    print(words.pop(), flush=True)
                time.sleep(0.1)
            except KeyboardInterrupt:
                pass

sys.modules["flows.cli.app"] = Cli
__main__.main()
"""


@pytest.mark.parametrize(
    ("number", "line", "code"),
    [(signal.SIGINT, INTERRUPTED, 130), (signal.SIGTERM, TERMINATED, 143)],
)
def test_a_signal_ends_a_command_in_one_line_and_kills_what_it_has_started(
    number: signal.Signals, line: str, code: int
) -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert command.stdout is not None and command.stdout.readline() == "up\n"
    command.send_signal(number)
    out, _ = command.communicate(timeout=60)
    assert (out, command.returncode) == (f"{line}\n", code)
