"""End whatever this process has started, by process ids, also what its children left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator

from simgen.process_start import descendants, start_of

#: linux/prctl.h: orphans of this process's children become its own children.
PR_SET_CHILD_SUBREAPER = 36
#: For processes to end by themselves once they are asked to.
GRACE_S = 20.0


@contextlib.contextmanager
def ending_all() -> Iterator[None]:
    """Leave no process of the block behind, however it ends; Ctrl-C and SIGTERM interrupt it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        # Nobody cuts the end short.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end(signal.SIGTERM, GRACE_S)
        _end(signal.SIGKILL, GRACE_S)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def living() -> set[tuple[int, int]]:
    """Processes that this one has started, with their start times; ended ones are collected."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return descendants(os.getpid())


def _end(number: int, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    for process, started in living():
        if start_of(process) == started:
            with contextlib.suppress(OSError):
                os.kill(process, number)
    while living() and time.monotonic() < deadline:
        time.sleep(0.2)
