"""Define the errors, grouped by what a handler does about them.

`InputError` stops the command (the user changes something). `CaseError` goes on the case's record
and the run continues. `MachineError` is no fault of the case: it is solved again, by the same
command. `ProgramError` is a mistake in code and ends the run. `StoreError` means an
unreachable or damaged store; a retry helps only after that is repaired. Every message names the
thing, the value and the way out, in one line.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class SimgenError(Exception):
    """Base of every error that simgen raises on purpose."""


class InputError(SimgenError):
    """An impossible request: a wrong parameter, name or file, or a missing program."""


class RangeError(InputError):
    """A value outside of its parameter's range."""


class CaseError(SimgenError):
    """A failed case (mesher, solver, time limit); `log_tail` holds the last lines of its log."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


class PatchValueError(CaseError):
    """A condition whose values on a patch are neither written nor known."""


class MeshError(CaseError):
    """The mesher failed or produced no usable mesh."""


class SolverError(CaseError):
    """An OpenFOAM application failed, or ran past its time limit."""


class MachineError(SimgenError):
    """A case that its machine ended, by a kill or a full disk."""


class OutOfMemoryError(MachineError):
    """A program that was killed by SIGKILL, mostly because memory ran out."""


class ProgramError(SimgenError):
    """A mistake in a family's code or in this one: every other case would end alike.

    `trace` is its traceback.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class StoreError(SimgenError):
    """A dataset store cannot be reached, written or read."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `did you mean NAME? ` for the nearest of the known names; empty where none is near."""
    return "".join(f"did you mean {of}? " for of in get_close_matches(name, list(known), 1))


def first_line(error: object) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
