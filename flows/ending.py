"""End a command: after an interruption in seconds, with one line, and with no process left.

Notable features:
- The first Ctrl-C raises KeyboardInterrupt in the work; further ones change nothing, so that nobody
  cuts the cleanup short. SIGTERM does the same.
- What fails in the clean-up of libraries once the command has returned is not printed: nothing of
  the work is left to lose, and on a busy machine zarr closes its event loop before it has stopped.
- If the work has not ended after GRACE_S, this process and everything that it has started are
  killed.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
from types import FrameType

from simgen import log_lines, machine

INTERRUPTED = "interrupted; the same command goes on from here"
INTERRUPTED_CODE = 130
TERMINATED = "terminated; the same command goes on from here"
TERMINATED_CODE = 143
GRACE_S = 3.5
"""For the work's own end: cases that ended are committed, jobs of a cluster are stopped"""
#: Back to the start of the line, without what a bar has drawn there, and with the cursor shown.
ERASED_LINE = "\r\x1b[2K\x1b[?25h"


class _Ending:
    """How this process ends."""

    line: str | None = None
    """None until it is interrupted"""
    code: int | None = None
    """The command's own code, once it has returned; after an interruption that of the signal"""


def answer_interrupts() -> None:
    """Make Ctrl-C and SIGTERM end the command in time; call this from the main thread, first."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.unraisablehook = _print_while_at_work
    atexit.register(_end)  # the first one that is registered is the last that is called


def exit_code(code: int) -> int:
    """Return the code to exit with, that of a signal after one, and write what is buffered."""
    if code == INTERRUPTED_CODE:
        _begin(INTERRUPTED, INTERRUPTED_CODE)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # no reader, or closed: Python would exit with 120
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if _Ending.code is None:
        _Ending.code = code
    logging.disable()
    return _Ending.code


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    if number == signal.SIGINT:
        _begin(INTERRUPTED, INTERRUPTED_CODE)
    else:
        _begin(TERMINATED, TERMINATED_CODE)
    raise KeyboardInterrupt


def _begin(line: str, code: int) -> None:
    """Make sure that everything ends within GRACE_S."""
    if _Ending.line is None:
        _Ending.line, _Ending.code = line, code
        in_time = threading.Timer(GRACE_S, _end)
        in_time.daemon = True
        in_time.start()


def _print_while_at_work(dropped: sys.UnraisableHookArgs) -> None:
    """Print what is dropped in a finalizer, as Python does, but not after the work's end."""
    if _Ending.code is None:
        sys.__unraisablehook__(dropped)


def _end() -> None:
    """Exit; after an interruption kill what this process has started, and write the last line.

    Without Python's own finalization: threads of libraries that wake up during it abort the
    process once in some hundred commands.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if _Ending.code is None:  # an error that Python has printed
        return
    if _Ending.line is not None:
        # Nothing else reaches standard error from here on: libraries print of processes that are
        # killed under them, and a thread may still draw a bar.
        screen = 2
        with contextlib.suppress(OSError):  # it is closed, or no file is left to open
            screen = os.dup(2)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        for process, start in machine.descendants(os.getpid()):
            if machine.start_of(process) == start:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
        with contextlib.suppress(OSError):
            begin = ERASED_LINE if os.isatty(screen) else ""
            line = log_lines.line_of(_Ending.line) if log_lines.is_json() else _Ending.line
            os.write(screen, f"{begin}{line}\n".encode())
    os._exit(_Ending.code)
