"""Run OpenFOAM's applications through PyFoam, so that none outlives the process that started it.

Notable properties:
- The application is started under `setpriv --pdeathsig KILL`: the kernel ends it when this process
  dies, even by kill -9, where no handler could run.
- PyFoam reads its pipe a byte at a time and matches each line against ten expressions, while the
  solver flushes every line that it prints: a tenth of a short case's time. `_BlockReader` lets the
  pipe fill for a moment and hands PyFoam many lines as one, so that the solver does not lose its
  core some ten times in each time step.
- A time limit ends the application and raises `SolverError` like any other failure, with the log's
  tail.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import select
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PyFoam import configuration as pyfoam_configuration
from PyFoam.Basics.LineReader import LineReader
from PyFoam.Execution.BasicRunner import BasicRunner
from PyFoam.Execution.FoamThread import FoamThread

from simgen.errors import SolverError
from simgen.foam.log import SolverLog

OnStep = Callable[[SolverLog], None]

PATIENCE_S = 0.2
PIPE_BYTES = 1 << 18

# PyFoam logs each start, end and error of an application, which a case's log need not repeat.
pyfoam_configuration().set("Logging", "default", "CRITICAL")
# PyFoam's own expression for the time takes the rest of a block of lines for part of the number,
# and warns.
pyfoam_configuration().set("SolverOutput", "timeregexp", r"^(Time =) ([-+.\deE]+)s?(?:\n|$)")


class _PatientPipe:
    """A pipe that is read at most once every PATIENCE_S, and then completely."""

    def __init__(self, pipe: io.RawIOBase) -> None:
        self._pipe, self._rest = pipe, b""
        self._end = select.poll()
        self._end.register(pipe.fileno(), 0)  # wakes at the application's end alone
        # Room for what a small case prints in that time, some 1 MB a second; otherwise the solver
        # would wait for its reader.
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def readline(self) -> bytes:
        """Return all lines finished since the last call; empty at the end."""
        while True:
            self._end.poll(1000 * PATIENCE_S)
            block = self._pipe.read(PIPE_BYTES)
            if not block:
                rest, self._rest = self._rest, b""
                return rest
            lines, newline, rest = block.rpartition(b"\n")
            if newline:
                lines, self._rest = self._rest + lines + newline, rest
                return lines
            self._rest += block


class _BlockReader(LineReader):
    """PyFoam's reader of lines, given many at once."""

    def __init__(self) -> None:
        super().__init__(stripAllSpaces=False)
        self._pipe: _PatientPipe | None = None

    def read(self, fh: io.RawIOBase) -> bool:
        """Read nothing, so that the output is left to the runner.

        PyFoam's thread calls this two seconds after the application's end for what is left, and
        throws it away. The runner reads it however late it gets there.
        """
        return False

    def read_and_interrupt(self, fh: io.RawIOBase) -> tuple[bool, bool]:
        """Read many lines; PyFoam's own reader swallows Ctrl-C, and ends at a letter of Latin-1."""
        self._pipe = self._pipe or _PatientPipe(fh)
        lines = self._pipe.readline().decode(errors="replace")
        self.line = lines.rstrip()
        return bool(lines), False


class _FoamThread(FoamThread):
    """PyFoam's thread of an application, which leaves neither the application nor a timer behind.

    Every five seconds a timer looks for a file that asks the application to stop, and sets the next
    one. Where the application ends while it looks, PyFoam cancels the timer that is over, the next
    one sets another for ever, and this process never exits.
    """

    _ended = False
    failure: Exception | None = None
    """Why the application could not be started"""

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:
            self.failure = error
            # Taken until the application is there: whoever asks for its output waits for it.
            if self.stateLock.locked():
                self.stateLock.release()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The application, once it is there: PyFoam puts it in place of its thread's method."""
        process: object = self.run
        return process if isinstance(process, subprocess.Popen) else None

    def interrupt(self, pass_int: bool = False) -> None:
        """Let Ctrl-C out of PyFoam's loop, which would wait for what the application does."""
        raise KeyboardInterrupt

    def end(self) -> None:
        """Kill the application, where it runs, and wait for its end."""
        if not self.is_alive():
            return
        # Free once the application is there. An interrupted reader may have left it taken.
        self.stateLock.acquire(timeout=1.0)
        self.hasSomethingToSay = False  # else PyFoam's thread waits two seconds for a reader
        if self.process is not None:
            self.process.kill()
        self.join()

    @property
    def timer2(self) -> threading.Timer:
        return self._timer

    @timer2.setter
    def timer2(self, timer: threading.Timer) -> None:
        self._timer = timer
        timer.daemon = True
        if self._ended:
            timer.cancel()

    def stopTimer(self) -> None:
        self._ended = True
        super().stopTimer()


class _Runner(BasicRunner):
    """PyFoam's runner for one application in one case directory."""

    def __init__(
        self,
        application: str,
        arguments: Sequence[str],
        launcher: Sequence[str],
        directory: Path,
        on_step: OnStep | None,
    ) -> None:
        super().__init__(
            argv=[application, "-case", str(directory)], silent=True, noLog=True, writeState=False
        )
        # PWD has to be the case's directory or the application warns; a shell's cd sets it, and
        # exec leaves one process.
        guard = "setpriv --pdeathsig KILL " if shutil.which("setpriv") else ""
        command = shlex.join([*launcher, application, *arguments])
        self.run = _FoamThread(f"cd {shlex.quote(str(directory))} && exec {guard}{command}", self)
        self.run.reader = _BlockReader()
        self.run.isLinux = (
            False  # no memory sampling: its timer outlives short runs and prints about them
        )
        self.log = SolverLog()
        self._on_step = on_step
        self._log_file = (directory / f"{application}.logfile").open("w")

    def lineHandle(self, block: str) -> None:
        self._log_file.write(f"{block}\n")
        self._log_file.flush()
        for line in block.splitlines():
            if self.log.read(line) and self._on_step:
                self._on_step(self.log)

    def stopHandle(self) -> None:
        self._log_file.close()


def run_application(
    application: str,
    directory: Path,
    *,
    arguments: Sequence[str] = (),
    launcher: Sequence[str] = (),
    on_step: OnStep | None = None,
    time_limit_s: float | None = None,
) -> tuple[SolverLog, float]:
    """Run an application to its end; its output goes to `<directory>/<application>.logfile`.

    `launcher` is put before the command, such as mpirun. Returns the log's figures and the wall
    time in seconds. Raises SolverError (with the log's tail) for a non-zero exit, a FOAM FATAL
    ERROR, a floating point exception or a passed time limit. OSError where it cannot be started or
    its log not be written, and whatever `on_step` raises, end the application.
    """
    runner = _Runner(application, arguments, launcher, directory, on_step)
    started = time.perf_counter()
    timed_out = threading.Event()
    watchdog = (
        threading.Timer(time_limit_s or 0.0, _end, args=(runner, timed_out))
        if time_limit_s
        else None
    )
    if watchdog:
        watchdog.daemon = True
        watchdog.start()
    try:
        data = runner.start()
        if runner.run.failure is not None:
            raise runner.run.failure
        assert runner.run.process is not None
        exit_code = runner.run.process.wait()
    except BaseException:
        # Ctrl-C, or a full disk under the log: nobody would read on, and the application would wait
        # for ever.
        runner.run.end()
        with contextlib.suppress(OSError):
            runner.stopHandle()
        raise
    finally:
        if watchdog:
            watchdog.cancel()
    seconds = time.perf_counter() - started
    tail = "\n".join(runner.log.tail)
    if timed_out.is_set():
        raise SolverError(
            f"{application} passed its time limit of {time_limit_s:g} s at t ="
            f" {runner.log.time:g} s",
            tail,
        )
    if exit_code or not data["OK"]:
        raise SolverError(
            f"{application} ended with exit code {exit_code} at t = {runner.log.time:g} s"
            f"{': ' + runner.log.fatal if runner.log.fatal else ''}",
            tail,
        )
    return runner.log, seconds


def _end(runner: _Runner, timed_out: threading.Event) -> None:
    timed_out.set()
    if runner.run.threadPid > 0:
        os.kill(runner.run.threadPid, signal.SIGKILL)
