"""End a command early: interrupted, or without a process that it needs.

It ends in seconds, with one line, and without leaving processes behind.

Notable features:
- The first Ctrl-C raises KeyboardInterrupt in the work; further ones change nothing, so that nobody
  cuts the cleanup short. SIGTERM does the same.
- A signal that comes while Python finalizes an object is raised again after that: Python drops
  what is raised in a finalizer, and prints it.
- If the work has not ended after GRACE_S, this process and everything that it has started are
  killed.
- What the command needs is checked twice a second. Its loss ends the command in the same way.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from simgen.log_lines import is_json, line_of
from simgen.process_start import descendants, start_of

INTERRUPTED = "interrupted; the same command goes on from here"
INTERRUPTED_CODE = 130
TERMINATED = "terminated; the same command goes on from here"
TERMINATED_CODE = 143
#: Time for the work's own end: to tell Prefect, to stop Ray.
GRACE_S = 8.0
LOOK_S = 0.5
#: Back to the start of the line, without what a bar has drawn there, and with the cursor shown.
ERASED_LINE = "\r\x1b[2K\x1b[?25h"
#: For a finalizer to return in.
FINALIZED_S = 0.05

Look = Callable[[], str | None]
Process = tuple[int, int]
"""A process id and its start time: the id alone may belong to another process by now"""


class _State:
    """The state of this process's ending."""

    def __init__(self) -> None:
        self.begun = False
        self.line, self.code = INTERRUPTED, INTERRUPTED_CODE
        self.loss: str | None = None
        self.looks: list[Look] = []
        self.leftovers: list[Callable[[], None]] = []
        self.started: set[Process] = set()
        self.watcher: threading.Thread | None = None


_state = _State()


def answer_interrupts() -> None:
    """Make Ctrl-C and SIGTERM end the command in time; call this from the main thread."""
    signal.signal(signal.SIGINT, _interrupted)
    signal.signal(signal.SIGTERM, _terminated)
    sys.unraisablehook = _raise_again


def need(look: Look) -> None:
    """End the command when `look` says what is missing; it is called often and must be quick."""
    _state.looks.append(look)
    if _state.watcher is None:
        _state.watcher = threading.Thread(target=_watch, name="watch-servers", daemon=True)
        _state.watcher.start()


def leave_nothing(remove: Callable[[], None]) -> None:
    """Have `remove` called at the end of this process, orderly or not."""
    _state.leftovers.append(remove)


def lost() -> str | None:
    """Say what the command needs and has lost, if anything."""
    if _state.loss is None:
        _state.loss = next(filter(None, (look() for look in _state.looks)), None)
    return _state.loss


def finish(code: int) -> int:
    """Print the last line and return the exit code.

    A command that was interrupted or has lost something ends here.
    """
    if _state.loss is not None:
        _end_now()
    if code == signal.SIGTERM:  # Ray's own answer, while a process connects to it
        _state.line, _state.code = TERMINATED, TERMINATED_CODE
        code = INTERRUPTED_CODE
    if _state.begun or code == INTERRUPTED_CODE:
        _begin()
        # Now, because the last line has to stay the last.
        atexit._run_exitfuncs()
        _end_now()
    return code


def _interrupted(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _begin()
    raise KeyboardInterrupt


def _terminated(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not _state.begun:
        _state.line, _state.code = TERMINATED, TERMINATED_CODE
    _begin()
    raise KeyboardInterrupt


def _raise_again(dropped: sys.UnraisableHookArgs) -> None:
    """Send a signal anew whose exception was dropped; have Python print anything else."""
    number = _signal_of(dropped.exc_value)
    if number is None:
        sys.__unraisablehook__(dropped)
        return
    if number == signal.SIGINT:
        signal.signal(signal.SIGINT, _interrupted)
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(FINALIZED_S, signal.pthread_kill, (main, number)).start()


def _signal_of(error: BaseException | None) -> int | None:
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    # Prefect's TerminationSignal, without an import of Prefect.
    number = getattr(error, "signal", None)
    return number if isinstance(number, int) else None


def _begin() -> None:
    """Make sure that everything ends within GRACE_S."""
    if not _state.begun:
        _state.begun = True
        threading.Thread(target=_end_in_time, name="end-in-time", daemon=True).start()


def _end_in_time() -> None:
    time.sleep(GRACE_S)
    _end_now()


def _watch() -> None:
    while not _state.begun:
        _state.started |= descendants(os.getpid())
        if lost() is not None:
            _begin()
            # A signal of its own ends a wait of the main thread.
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(LOOK_S)


def _end_now() -> NoReturn:
    """Kill whatever this process has started, remove its leftovers, say why, and exit."""
    screen = _take_screen()
    for process in _state.started | descendants(os.getpid()):
        if process[1] == start_of(process[0]):
            with contextlib.suppress(OSError):
                os.kill(process[0], signal.SIGKILL)
    for remove in _state.leftovers:
        with contextlib.suppress(Exception):
            remove()
    _say_last(f"error: {_state.loss}" if _state.loss else _state.line, screen)
    os._exit(_state.code if _state.loss is None else 1)


def _take_screen() -> int:
    """Return standard error as it is, after which nothing else of this process reaches it.

    Libraries tell of the servers that are killed under them, and a bar that is still drawn by a
    thread would stand under the last line. Lines as JSON stay: what waits is still written.
    """
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    screen = 2
    # Where standard error is closed, or no file is left to open, the end goes on all the same.
    with contextlib.suppress(OSError):
        screen = os.dup(2)
        if not is_json():
            _silence()
    return screen


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _say_last(line: str, screen: int) -> None:
    """Write the line to the screen, on a line of its own; nothing comes after it."""
    with contextlib.suppress(OSError):
        _silence()
        start = ERASED_LINE if os.isatty(screen) else ""
        os.write(screen, f"{start}{line_of(line) if is_json() else line}\n".encode())
