"""Lock a case's directory on a scratch disk for one process at a time.

Notable properties:
- The lock is the kernel's (flock) on `<scratch>/.<id>.lock`, beside the directory, which is removed
  while the lock is held. It ends with its holder, even by kill -9, and the next process gets it.
- The file is removed with the lock. A process that waited for it finds it gone, and starts again
  with a fresh file.
- An owner may leave a note in it for later owners. Then the file stays until `forget_case`, or
  until the note is out of date and another case is taken.
- It binds the processes of one machine: a scratch disk is a local disk.
- The scratch folder is this user's alone: in a folder of others, or one that others may write to,
  results, locks and cases could be planted. What lies in a private folder is trusted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from simgen.errors import InputError

POLL_S = 0.1
#: How long a note that an owner has left is valid.
NOTE_S = 60.0
#: How long a solver may outlive the process that started it; with setpriv the kernel ends it at
#: once.
ORPHANS_S = 30.0


class OwnedCase:
    """A case's directory, owned until the lock is released."""

    def __init__(self, directory: Path, file: int) -> None:
        self.directory, self._file = directory, file
        note = os.pread(file, 1 << 16, 0).decode(errors="replace")
        # A clock that was set back makes it no longer.
        left_s = min(NOTE_S, os.fstat(file).st_mtime + NOTE_S - time.time())
        self.left, self.left_s = (note, left_s) if note and left_s > 0 else ("", 0.0)
        """Note of the last owner, and for how many seconds more it is valid; else empty, 0"""
        self.leaves_note = False
        """Whether this owner has left a note"""
        os.ftruncate(file, 0)

    def leave(self, note: str) -> None:
        """Write for later owners what became of this case."""
        with contextlib.suppress(OSError):  # a full disk: without the note they only solve it again
            os.pwrite(self._file, note.encode(), 0)
            self.leaves_note = True


def check_path(what: str, folder: Path) -> None:
    """InputError for a folder in which OpenFOAM cannot work."""
    if any(character.isspace() for character in str(folder)):
        raise InputError(
            f"{what} '{folder}' has a space in its path, which OpenFOAM cannot use; choose another"
        )


def check_private(folder: Path) -> None:
    """InputError unless it is a folder, and no link, of this user, to which no other may write."""
    found = os.lstat(folder)
    if stat.S_ISLNK(found.st_mode):
        wrong, way_out = "is a link", f"give the folder itself, {os.path.realpath(folder)}"
    elif not stat.S_ISDIR(found.st_mode):
        wrong, way_out = "is a file", "choose a folder"
    elif found.st_uid != os.geteuid():
        wrong, way_out = "belongs to another user", "choose a folder of your own"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        wrong, way_out = "may be written by others", "empty it and `chmod 700` it, or use another"
    else:
        return
    raise InputError(f"scratch directory {folder} {wrong}: {way_out} (COURANT_SCRATCH)")


@contextlib.contextmanager
def own_case(
    case: str, scratch: Path, on_wait: Callable[[], None] = lambda: None
) -> Iterator[OwnedCase]:
    """Hold the case `case` of a scratch folder, which is created if missing.

    Waits while another process holds it, and calls `on_wait` once when that begins; an interrupt
    ends the wait. Raises InputError for a folder that cannot be used.
    """
    check_path("scratch directory", scratch)
    path, waited = scratch / f".{case}.lock", False
    while True:
        make_scratch(scratch)
        with _scratch_errors(scratch):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(path, flags, 0o600)
        try:
            while not _lock(file, scratch):
                if not waited:
                    waited = True
                    on_wait()
                time.sleep(POLL_S)
            if _is_at(file, path):
                break
        except BaseException:
            os.close(file)
            raise
        os.close(file)
    own = None
    try:
        own = OwnedCase(scratch / case, file)
        _remove_old_notes(scratch)
        yield own
    finally:
        if own is None or not own.leaves_note:
            path.unlink(missing_ok=True)
        os.close(file)


def forget_case(case: str, scratch: Path) -> None:
    """Remove the note that an owner of this case has left, if there is one.

    A process that has the case now removes it itself.
    """
    path = scratch / f".{case}.lock"
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if _lock(file, scratch) and _is_at(file, path):
            path.unlink(missing_ok=True)
    finally:
        os.close(file)


def _remove_old_notes(scratch: Path) -> None:
    """Remove notes whose time is over: their run was killed, or its driver works elsewhere."""
    for path in scratch.glob(".*.lock"):
        try:
            note = path.stat()
        except OSError:
            continue
        if note.st_size and time.time() - note.st_mtime > NOTE_S:
            forget_case(path.name.removeprefix(".").removesuffix(".lock"), scratch)


def make_scratch(scratch: Path) -> None:
    """Make the scratch folder, for its user alone; InputError where it cannot be used."""
    with _scratch_errors(scratch):
        scratch.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            scratch.mkdir(mode=0o700)
        check_private(scratch)


@contextlib.contextmanager
def _scratch_errors(scratch: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"scratch directory {scratch} cannot be written: {error.strerror}; choose another with"
            " COURANT_SCRATCH"
        ) from error


def _lock(file: int, scratch: Path) -> bool:
    """Try to lock at once; return whether that succeeded."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise InputError(
            f"scratch directory {scratch} knows no locks ({error.strerror}): choose a local disk"
            " with COURANT_SCRATCH"
        ) from error
    return True


def _is_at(file: int, path: Path) -> bool:
    """Return whether the path still leads to the open file, and not to none or to a later one."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def await_orphans(directory: Path, programs: tuple[str, ...]) -> None:
    """Wait until no such program works in a directory that a killed process left behind.

    InputError where one keeps running.
    """
    deadline = time.monotonic() + ORPHANS_S
    while True:
        working = ""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                place, program = (process / "cwd").readlink(), (process / "exe").readlink()
            except OSError:  # it has ended, or is another user's
                continue
            if program.name in programs and place.is_relative_to(directory.resolve()):
                working = process.name
                break
        if not working:
            return
        if time.monotonic() > deadline:
            raise InputError(
                f"process {working} of a run that has ended still works in {directory}: stop it,"
                " and run again"
            )
        time.sleep(POLL_S)


def is_held(case: str, scratch: Path) -> bool:
    """Return whether a process of this machine has the case."""
    try:
        file = os.open(scratch / f".{case}.lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
