"""Run one program and leave nothing of it behind: python -IS guard.py PARENT LIMIT FOLDER PROGRAM…

The program may be a wrapper script, start daemons, or be mpirun. All that these start are children
of the guard once their own parents have ended (PR_SET_CHILD_SUBREAPER), whatever session or process
group they choose. The guard kills them all when the program has ended, after LIMIT seconds (0:
never; then it ends by SIGALRM), when the process PARENT ends, even by kill -9, and at a SIGTERM.

It ends as the program did, by the same exit code or signal. It is a script for a bare interpreter,
which starts in some 15 ms, so it imports nothing of the project.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
from types import FrameType
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
STOPS = (signal.SIGTERM, signal.SIGALRM)


class _Stop(BaseException):
    """A signal that ends the program, its number the only argument."""


def main(parent: int, limit_s: float, folder: str, program: list[str]) -> None:
    """Run the program in the folder, and end as it did."""
    libc = ctypes.CDLL(None)
    try:
        _set_stops(_stop)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before
            return
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        child = os.fork()
        if not child:
            # This child becomes the program, which dies with the guard in any case.
            try:
                _set_stops(signal.SIG_DFL)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                os.chdir(folder)
                os.execvp(program[0], program)
            except OSError as error:
                os.write(2, f"{program[0]}: {error.strerror}\n".encode())
            finally:
                os._exit(127)
        ended, status = os.wait()
        while ended != child:  # whatever else ends meanwhile is reaped
            ended, status = os.wait()
        _set_stops(signal.SIG_IGN)
    except _Stop as stop:
        status = stop.args[0]
    _end_children()
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    killed_by = os.WTERMSIG(status)
    if killed_by != signal.SIGKILL:
        signal.signal(killed_by, signal.SIG_DFL)
    os.kill(os.getpid(), killed_by)


def _stop(number: int, frame: FrameType | None) -> None:
    _set_stops(signal.SIG_IGN)
    raise _Stop(number)


def _set_stops(handler: Any) -> None:
    for number in STOPS:
        signal.signal(number, handler)


def _end_children() -> None:
    """Kill all children, and theirs, which become children of this process as their parents end."""
    own = str(os.getpid()).encode()
    while True:
        for process in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
            with contextlib.suppress(OSError):
                file = os.open(f"/proc/{process}/stat", os.O_RDONLY)
                try:
                    state, parent = os.read(file, 4096).rpartition(b")")[2].split(None, 2)[:2]
                finally:
                    os.close(file)
                if parent == own and state != b"Z":
                    os.kill(int(process), signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:])
