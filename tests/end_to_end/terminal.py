"""A command in a terminal of its own: what it prints, and Ctrl-C as the keyboard sends it."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping

from tests.end_to_end.conftest import BIN, ROOT
from tests.end_to_end.processes import tree

# Of the terminal that is its input, the command becomes the first process, as a shell would.
AS_A_SHELL_DOES = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A running command and what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], keyboard: int) -> None:
        self.process, self._keyboard = process, keyboard
        self._printed: list[bytes] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def printed(self) -> str:
        """What it has printed, without the codes that move a cursor."""
        text = b"".join(self._printed).decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)

    @property
    def num_blocks(self) -> int:
        """Of what it has printed; grows with each."""
        return len(self._printed)

    @property
    def last_line(self) -> str:
        return self.printed.strip().splitlines()[-1].strip()

    def interrupt(self) -> tuple[float, list[int]]:
        """Press Ctrl-C and wait: how long the command took, and what processes it had."""
        processes = tree(self.process.pid)
        began = time.monotonic()
        self.press_ctrl_c()
        self.process.wait(60)
        took = time.monotonic() - began
        self._reader.join(10)
        return took, processes

    def press_ctrl_c(self) -> None:
        """As the keyboard does: SIGINT goes to every process in the foreground."""
        os.write(self._keyboard, b"\x03")

    def close(self) -> None:
        """End the command, if it has not ended, and leave."""
        self.process.kill()
        self.process.wait()
        self._reader.join(1)
        os.close(self._keyboard)

    def _read(self) -> None:
        # Reading a terminal that nobody is left at is an error.
        with contextlib.suppress(OSError):
            while text := os.read(self._keyboard, 4096):
                self._printed.append(text)


def open_terminal(environment: Mapping[str, str], *command: str) -> Terminal:
    """Start a program of the environment's so; it lives until it ends or the terminal is closed."""
    keyboard, screen = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", AS_A_SHELL_DOES, str(BIN / command[0]), *command[1:]],
            env=environment,
            cwd=ROOT,
            start_new_session=True,
            stdin=screen,
            stdout=screen,
            stderr=screen,
        )
    except BaseException:
        os.close(keyboard)
        raise
    finally:
        os.close(screen)
    return Terminal(process, keyboard)


@contextlib.contextmanager
def in_a_terminal(environment: Mapping[str, str], *arguments: str) -> Iterator[Terminal]:
    """Start `courant` so; it does not outlive the block."""
    terminal = open_terminal(environment, "courant", *arguments)
    try:
        yield terminal
    finally:
        terminal.close()
