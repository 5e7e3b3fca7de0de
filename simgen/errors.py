"""What can go wrong, grouped by what a handler would do about it.

`InputError` stops the command (the user changes something); `CaseError` is put on the case's record and the
run goes on; `StoreError` is an unreachable or damaged store, worth a retry at most once it is mended.
Every message names the thing, the value and the way out, in one line.
"""


class SimgenError(Exception):
    """Base of every error that simgen raises on purpose."""


class InputError(SimgenError):
    """The request cannot be carried out as it stands: a parameter, a name, a file, a missing program."""


class CaseError(SimgenError):
    """One case went wrong (mesher, solver, time limit); `log_tail` holds the last lines it printed."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail

    def __reduce__(self) -> tuple[type["CaseError"], tuple[str, str]]:
        return (type(self), (str(self), self.log_tail))


class MeshError(CaseError):
    """The mesher failed or produced no usable mesh."""


class SolverError(CaseError):
    """An OpenFOAM application ended badly, or ran past its time limit."""


class StoreError(SimgenError):
    """A dataset store cannot be reached, written or read."""
