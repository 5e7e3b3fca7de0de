"""A case's directory on a scratch disk belongs to one process at a time.

Notable properties:
- The lock is the kernel's (flock) on `<scratch>/.<id>.lock`, beside the directory, which is removed
  while the lock is held. It ends with its holder, by kill -9 as well: whoever waits takes over.
- The file is removed with the lock. Who has waited for it finds it gone, reads from it what its last
  owner has left for those who wait, and begins anew with a fresh file.
- It binds the processes of one machine: a scratch disk is a local disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from simgen.errors import InputError

POLL_S = 0.1
#: How long a solver may outlive the process that started it; with setpriv the kernel ends it at once.
ORPHANS_S = 30.0


class OwnedCase:
    """A case's directory, ours until the lock is released."""

    def __init__(self, directory: Path, file: int, left: str) -> None:
        self.directory, self._file = directory, file
        self.left = left
        """What the owner that we have waited for has left; empty where it ended before it was done"""

    def leave(self, note: str) -> None:
        """Tell those who wait for this case what became of it."""
        with contextlib.suppress(OSError):  # a full disk: without the note they only solve it again
            os.pwrite(self._file, note.encode(), 0)


@contextlib.contextmanager
def own_case(case: str, scratch: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[OwnedCase]:
    """Hold the case `case` of a scratch folder, which is made where it is missing.

    Waits while another process holds it, and calls `on_wait` once when that begins; an interrupt ends
    the wait. Raises InputError for a folder that cannot be used.
    """
    if any(character.isspace() for character in str(scratch)):
        raise InputError(
            f"scratch directory '{scratch}' has a space in its path, which OpenFOAM cannot use; choose another"
        )
    path, left, waited = scratch / f".{case}.lock", "", False
    while True:
        file = _open(path, scratch)
        try:
            while not _lock(file, scratch):
                if not waited:
                    waited = True
                    on_wait()
                time.sleep(POLL_S)
            if _is_at(file, path):
                break
            left = os.pread(file, 1 << 16, 0).decode(errors="replace")
        except BaseException:
            os.close(file)
            raise
        os.close(file)
    try:
        os.ftruncate(file, 0)
        yield OwnedCase(scratch / case, file, left)
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def _open(path: Path, scratch: Path) -> int:
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"scratch directory {scratch} cannot be written: {error.strerror}") from error


def _lock(file: int, scratch: Path) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise InputError(
            f"scratch directory {scratch} knows no locks ({error.strerror}): choose a local disk with COURANT_SCRATCH"
        ) from error
    return True


def _is_at(file: int, path: Path) -> bool:
    """Whether the path still leads to the open file, and not to none or to a later one."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def await_orphans(directory: Path, programs: tuple[str, ...]) -> None:
    """Wait until no such program works in a directory that a killed process has left.

    InputError where one goes on.
    """
    deadline = time.monotonic() + ORPHANS_S
    while working := _working_in(directory, programs):
        if time.monotonic() > deadline:
            raise InputError(
                f"process {working[0]} of a run that has ended still works in {directory}: stop it, and run again"
            )
        time.sleep(POLL_S)


def _working_in(directory: Path, programs: tuple[str, ...]) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            place, program = (process / "cwd").readlink(), (process / "exe").readlink()
        except OSError:  # it has ended, or is another user's
            continue
        if program.name in programs and place.is_relative_to(directory.resolve()):
            found.append(int(process.name))
    return found
