"""Write a case's files, its mesh included, before the solver runs.

gmsh works inside of the process that calls it, and cannot be ended there. Under a time limit it
gets a process of its own (`python -m simgen.solving.preparation`), which is killed when the limit
has passed, with the applications that it runs. A server, whose users wait for a mesh, has the next
process wait as well: with all that it imports, that saves them a second.
"""

import contextlib
import importlib
import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

from simgen.cases import get_family
from simgen.design_space import DesignPoint
from simgen.errors import MeshError, ProgramError, SimgenError
from simgen.foam.run import check_not_killed

_LIBRARIES = (sysconfig.get_path("stdlib"), sysconfig.get_path("platlib"))
_OWN = str(Path(__file__).parents[1])


@contextlib.contextmanager
def as_program_error(case: str) -> Iterator[None]:
    """Raise ProgramError for a mistake in the block, with its class and place in one line."""
    try:
        yield
    except (SimgenError, OSError, MemoryError):  # trouble of a case or of a machine
        raise
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        # The innermost line that is no library's: `write_case (family.py, line 12)`.
        frames = traceback.extract_tb(error.__traceback__)
        own = [
            each
            for each in frames[1:]
            if not each.filename.startswith(_LIBRARIES) or each.filename.startswith(_OWN)
        ]
        frame = (own or frames)[-1]
        raise ProgramError(
            f"case {case}: {message}, in {frame.name} ({frame.filename}, line {frame.lineno}); the"
            " program is at fault, not the case: --verbose shows the traceback",
            "".join(traceback.format_exception(error)),
        ) from error


#: The process's program, for its Python.
PROGRAM = ("-m", "simgen.solving.preparation")
_NEEDED = ("gmsh", "PyFoam.Basics.TemplateFile", "simgen.foam.run")

Child = subprocess.Popen[bytes]
_ahead: list[Child] = []


def keep_process_ready() -> None:
    """Have a process wait for the next case from now on; it ends with this one."""
    _ahead.append(_start())


def write_case(point: DesignPoint, directory: Path, time_limit_s: float | None) -> None:
    """Write the case of a design point.

    MeshError for a mesh that could not be made, or not within `time_limit_s` of wall time;
    MachineError where the mesher was killed.
    """
    if time_limit_s is None:
        get_family(point.family).write_case(point, directory)
        return
    is_ahead = bool(_ahead)
    try:
        child = _ahead.pop()
    except IndexError:  # another thread has taken it
        child = _start()
    try:
        asked = pickle.dumps((point, directory, dict(os.environ)))
        answer, printed = child.communicate(asked, time_limit_s)
    except subprocess.TimeoutExpired:
        raise MeshError(f"meshing passed its time limit of {time_limit_s:g} s") from None
    finally:
        child.kill()
        child.wait()
        if is_ahead:
            keep_process_ready()
    check_not_killed("meshing", child.returncode)
    if child.returncode:
        tail = printed.decode(errors="replace")
        raise MeshError(f"meshing ended with exit code {child.returncode}", tail)
    error = pickle.loads(answer)
    if error is not None:
        raise error


def _start() -> Child:
    guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    command = [*guard, sys.executable, *PROGRAM]
    return subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE)


def main() -> None:
    """Prepare what the standard input asks for; the answer is None or an error."""
    for module in _NEEDED:  # what is missing is reported where it is needed
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    try:
        point, directory, environment = pickle.load(sys.stdin.buffer)
    except EOFError:  # nobody needs it any more
        return
    os.environ.update(environment)
    answer: Exception | None = None
    # What gmsh or a family prints is no part of the answer.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        try:
            with as_program_error(point.id):
                get_family(point.family).write_case(point, directory)
        except (SimgenError, OSError, MemoryError) as error:
            answer = error
        out.write(pickle.dumps(answer))


if __name__ == "__main__":
    main()
