"""How a command ends before its time: interrupted, or without a process that it needs. In seconds,
in one line, and alone.

Notable features:
- The first Ctrl-C is told to the work as KeyboardInterrupt; more of them change nothing, so that
  nobody cuts the tidying short.
- What has not ended by itself after GRACE_S is ended: this process, and everything that it has
  started.
- What the command cannot do without is looked at twice a second. Its loss ends the command in the
  same way.
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
from pathlib import Path
from types import FrameType
from typing import NoReturn

INTERRUPTED = "interrupted; the same command goes on from here"
INTERRUPTED_CODE = 130
#: How long the work has for its own end: to tell Prefect, to stop Ray.
GRACE_S = 8.0
LOOK_S = 0.5

Look = Callable[[], str | None]
Process = tuple[int, str]
"""Its id and when it was started: an id alone may be another's by now."""


class _State:
    """What this process knows of its end."""

    def __init__(self) -> None:
        self.begun = False
        self.loss: str | None = None
        self.looks: list[Look] = []
        self.leftovers: list[Callable[[], None]] = []
        self.started: set[Process] = set()
        self.watcher: threading.Thread | None = None


_state = _State()


def answer_interrupts() -> None:
    """From here on Ctrl-C ends the command in time; for the main thread."""
    signal.signal(signal.SIGINT, _interrupted)


def need(look: Look) -> None:
    """End the command when `look` says what is missing; it is called often, and quick."""
    _state.looks.append(look)
    if _state.watcher is None:
        _state.watcher = threading.Thread(target=_watch, name="watch-servers", daemon=True)
        _state.watcher.start()


def leave_nothing(remove: Callable[[], None]) -> None:
    """Have `remove` called at the end of this process, be it orderly or not."""
    _state.leftovers.append(remove)


def lost() -> str | None:
    """What the command needs and does not have any more."""
    if _state.loss is None:
        _state.loss = next(filter(None, (look() for look in _state.looks)), None)
    return _state.loss


def finish(code: int) -> int:
    """Say the last word and give the exit code; a command that was interrupted or has lost
    something ends here.
    """
    if _state.loss is not None:
        _end_now()
    if _state.begun or code == INTERRUPTED_CODE:
        _begin()
        # Now, because the last line is to stay the last.
        atexit._run_exitfuncs()
        _end_now()
    return code


def _interrupted(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _begin()
    raise KeyboardInterrupt


def _begin() -> None:
    """Nothing takes longer than GRACE_S from here."""
    if not _state.begun:
        _state.begun = True
        threading.Thread(target=_end_in_time, name="end-in-time", daemon=True).start()


def _end_in_time() -> None:
    time.sleep(GRACE_S)
    _end_now()


def _watch() -> None:
    while not _state.begun:
        _state.started |= _descendants()
        if lost() is not None:
            _begin()
            # A wait of the main thread is over with a signal that is its own.
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(LOOK_S)


def _end_now() -> NoReturn:
    """End whatever this process has started, remove what it would leave, say why, and be gone."""
    for process in _state.started | _descendants():
        if process == _identity(process[0]):
            with contextlib.suppress(OSError):
                os.kill(process[0], signal.SIGKILL)
    for remove in _state.leftovers:
        with contextlib.suppress(Exception):
            remove()
    sys.stdout.flush()
    print(f"error: {_state.loss}" if _state.loss else INTERRUPTED, file=sys.stderr, flush=True)
    os._exit(INTERRUPTED_CODE if _state.loss is None else 1)


def _descendants() -> set[Process]:
    """What this process has started, and what that has started."""
    found: set[Process] = set()
    ahead = [os.getpid()]
    while ahead:
        for listed in Path(f"/proc/{ahead.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                for child in map(int, listed.read_text().split()):
                    found.add(_identity(child))
                    ahead.append(child)
    return found


def _identity(process: int) -> Process:
    try:
        return process, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return process, ""
