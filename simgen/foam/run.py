"""Run OpenFOAM's applications, so that none outlives its time limit or the process that started it.

Notable properties:
- A site install that was sourced (WM_PROJECT_DIR set, applications on PATH) is used as it is.
  Debian's package puts the applications into /usr/bin without an environment; the three variables
  of `find_openfoam` are all that they and PyFoam lack.
- On several cores `hierarchical` cuts along the longest axis first: Debian's scotch is a stub that
  ends the program.
- `guard.py` runs between this process and the application. It ends whatever the application has
  started, in any session: at its end, at the time limit, and when this process dies, even by
  kill -9, where no handler could run.
- A solver flushes every line that it prints. A reader that wakes at each takes a tenth of a short
  case's time, so `_lines` lets the pipe fill for a moment and returns many lines at once.
"""

import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from simgen.errors import InputError, MachineError, OutOfMemoryError, SolverError
from simgen.foam.log import SolverLog
from simgen.foam.mesh import read_points

DEBIAN_PROJECT_DIR = Path("/usr/share/openfoam")
INSTALL_HINT = "install it (Debian: apt-get install openfoam) or source your site's etc/bashrc"
MISSPELT_HINT = "is its name in system/controlDict right, and the environment sourced that has it?"


class MissingSolverError(InputError):
    """A machine on which no case can be solved."""


def find_openfoam(applications: Iterable[str] = ("checkMesh", "gmshToFoam")) -> str:
    """Find the installation on this machine; return its version, as in v1912.

    Its variables are set in this process, where PyFoam and the applications read them.
    MissingSolverError explains how to get one.
    """
    for application in applications:
        if shutil.which(application) is None:
            hint = MISSPELT_HINT if shutil.which("checkMesh") else INSTALL_HINT
            raise MissingSolverError(f"OpenFOAM's {application} is not on PATH: {hint}")
    project = Path(os.environ.get("WM_PROJECT_DIR", DEBIAN_PROJECT_DIR))
    if not (project / "etc" / "controlDict").is_file():
        raise MissingSolverError(
            f"OpenFOAM's etc/controlDict is not under {project} (WM_PROJECT_DIR): {INSTALL_HINT}"
        )
    version = os.environ.get("WM_PROJECT_VERSION", "")
    # The release of an installation that was not sourced, with PyFoam's leading v.
    for source in (project / "etc/bashrc", project / "META-INFO/api-info"):
        text = source.read_text(errors="replace") if source.is_file() and not version else ""
        if found := re.search(r"(?:WM_PROJECT_VERSION=v?|api=)(\d{4})", text):
            version = f"v{found[1]}"
    if not version:
        raise InputError(
            f"the OpenFOAM version of {project} is not known:"
            " set WM_PROJECT_VERSION (for example v1912)"
        )
    os.environ |= {"WM_PROJECT_DIR": str(project), "WM_PROJECT_VERSION": version}
    os.environ["FOAM_ETC"] = str(project / "etc")
    return version


OnStep = Callable[[SolverLog], None]
GUARD = Path(__file__).with_name("guard.py")
#: Signals of an operator, of a shutdown, and of the kernel where memory runs out.
FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
PATIENCE_S = 0.2
PIPE_BYTES = 1 << 18


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
    time in seconds. Raises SolverError (with the log's tail) for a non-zero exit, a fatal error or
    a passed time limit, MachineError where another process or the kernel killed it, OSError where
    it cannot be started. Whatever `on_step` raises ends the application.
    """
    log = SolverLog()
    guard = [sys.executable, "-IS", str(GUARD), str(os.getpid()), str(time_limit_s or 0.0)]
    started = time.perf_counter()
    with (
        (directory / f"{application}.logfile").open("wb") as log_file,
        subprocess.Popen(
            [*guard, str(directory), *launcher, application, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd="/",
            # A Ctrl-C in the terminal reaches this process alone.
            start_new_session=True,
            # An application warns unless PWD is its directory. Cases run side by side: a threaded
            # BLAS inside each would only oversubscribe the cores.
            env={**os.environ, "PWD": str(directory), "OMP_NUM_THREADS": "1"},
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for lines in _lines(process.stdout):
                log_file.write(lines)
                log_file.flush()
                for line in lines.decode(errors="replace").splitlines():
                    if log.read(line) and on_step:
                        on_step(log)
            exit_code = process.wait()
        except BaseException:
            # Ctrl-C, or a full disk under the log: nobody would read on, and the application would
            # wait for ever.
            process.terminate()
            raise
    seconds = time.perf_counter() - started
    tail = "\n".join(log.tail)
    if exit_code == -signal.SIGALRM:
        raise SolverError(
            f"{application} passed its time limit of {time_limit_s:g} s at t = {log.time:g} s", tail
        )
    if not log.fatal:
        check_not_killed(f"{application}, at t = {log.time:g} s,", exit_code)
    if exit_code or log.fatal:
        raise SolverError(
            f"{application} ended with exit code {exit_code} at t = {log.time:g} s"
            f"{': ' + log.fatal if log.fatal else ''}",
            tail,
        )
    return log, seconds


def check_not_killed(program: str, exit_code: int) -> None:
    """Raise MachineError where a signal from outside ended the program."""
    # A wrapper's shell, and mpirun, end with 128 and the number of the signal.
    number = -exit_code if exit_code < 0 else exit_code - 128
    if number in FROM_OUTSIDE:
        if number == signal.SIGKILL:
            raise OutOfMemoryError(f"{program} was killed by SIGKILL: is the memory enough?")
        raise MachineError(f"{program} was killed by {signal.Signals(number).name}")


def _lines(pipe: IO[bytes]) -> Iterator[bytes]:
    """Read the pipe at most once every PATIENCE_S, and then completely; yield whole lines."""
    # Room for what a small case prints in that time, some 1 MB a second; otherwise the solver
    # would wait for its reader.
    fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    end = select.poll()
    end.register(pipe.fileno(), 0)  # wakes at the application's end alone
    end.poll(1000 * PATIENCE_S)
    rest = b""
    while block := pipe.read(PIPE_BYTES):
        lines, newline, rest = (rest + block).rpartition(b"\n")
        if newline:
            yield lines + newline
        end.poll(1000 * PATIENCE_S)
    if rest:
        yield rest


APPLICATIONS = ("decomposePar", "mpirun", "reconstructPar")

DECOMPOSITION = """\
FoamFile {{ version 2.0; format ascii; class dictionary; object decomposeParDict; }}
numberOfSubdomains {cores};
method hierarchical;
hierarchicalCoeffs {{ n ({x} {y} {z}); delta 0.001; order xyz; }}
"""


def run_solver(
    application: str,
    directory: Path,
    cores: int = 1,
    *,
    on_step: OnStep | None = None,
    time_limit_s: float | None = None,
) -> tuple[SolverLog, float]:
    """Run like `run_application` on `cores` cores; the seconds are the solver's alone.

    The time limit bounds the solver, and the cutting and joining of the case, each for itself.
    """
    if cores == 1:
        return run_application(application, directory, on_step=on_step, time_limit_s=time_limit_s)
    points = read_points(directory / "constant/polyMesh/points")
    parts = dict.fromkeys("xyz", 1)
    parts["xyz"[int(np.argmax(np.ptp(points, axis=0)))]] = cores
    (directory / "system/decomposeParDict").write_text(DECOMPOSITION.format(cores=cores, **parts))
    run_application("decomposePar", directory, time_limit_s=time_limit_s)
    # Open MPI needs both variables to run as root. Its own binding would put all cases on the same
    # cores, and ranks that wait for each other spin unless they are set to yield.
    os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    options = f"--bind-to none --oversubscribe --mca mpi_yield_when_idle 1 -np {cores}"
    log, seconds = run_application(
        application,
        directory,
        arguments=("-parallel",),
        launcher=("mpirun", *options.split()),
        on_step=on_step,
        time_limit_s=time_limit_s,
    )
    run_application("reconstructPar", directory, time_limit_s=time_limit_s)
    for part in directory.glob("processor*"):
        shutil.rmtree(part)
    return log, seconds
