"""Lock a case's directory on a scratch disk for one process at a time.

Notable properties:
- The lock is the kernel's (flock) on `<scratch>/.<id>.lock`, beside the directory. It ends with its
  holder, even by kill -9, and its file is removed with it.
- It binds the processes of one machine: a scratch disk is a local disk.
- The scratch folder is this user's alone: others could plant results, locks and cases.
"""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from simgen.errors import InputError

POLL_S = 0.1
ORPHANS_S = 30.0  # How long the guard of a killed run may take to end its programs


def check_path(what: str, folder: Path) -> None:
    """InputError for a folder in which OpenFOAM cannot work."""
    if any(character.isspace() for character in str(folder)):
        raise InputError(
            f"{what} '{folder}' has a space in its path, which OpenFOAM cannot use; choose another"
        )


def check_private(folder: Path) -> None:
    """InputError unless it is a folder, and no link, of this user, to which no other may write."""
    found = os.lstat(folder)
    wrongs = {
        "is a link": stat.S_ISLNK(found.st_mode),
        "is a file": stat.S_ISREG(found.st_mode),
        "belongs to another user": found.st_uid != os.geteuid(),
        "may be written by others": bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)),
    }
    for wrong in (wrong for wrong, holds in wrongs.items() if holds):
        raise InputError(
            f"scratch directory {folder} {wrong}: choose a folder of your own, which none but you"
            " may write to (COURANT_SCRATCH)"
        )


def make_scratch(scratch: Path) -> None:
    """Make the scratch folder, for its user alone; InputError where it cannot be used."""
    with scratch_errors(scratch):
        scratch.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            scratch.mkdir(mode=0o700)
        check_private(scratch)


@contextlib.contextmanager
def own_case(
    case: str, scratch: Path, on_wait: Callable[[], None] = lambda: None
) -> Iterator[bool]:
    """Hold `case` of a scratch folder, which is created if missing; yield whether that took a wait.

    Waits while another process holds it, and calls `on_wait` once when that begins; an interrupt
    ends the wait. Raises InputError for a folder that cannot be used.
    """
    check_path("scratch directory", scratch)
    make_scratch(scratch)
    lock, has_waited = _lock(case, scratch), False
    with scratch_errors(scratch):
        try:
            lock.acquire(blocking=False)
        except Timeout:
            has_waited = True
            on_wait()
            lock.acquire()
    try:
        yield has_waited
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


def is_held(case: str, scratch: Path) -> bool:
    """Return whether a process of this machine has the case."""
    lock = _lock(case, scratch)
    if not Path(lock.lock_file).exists():
        return False
    try:
        with lock.acquire(blocking=False):
            return False
    except (OSError, Timeout) as error:
        return isinstance(error, Timeout)


def _lock(case: str, scratch: Path) -> FileLock:
    return FileLock(scratch / f".{case}.lock", mode=0o600, poll_interval=POLL_S)


@contextlib.contextmanager
def scratch_errors(scratch: Path) -> Iterator[None]:
    """Raise InputError where the folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"scratch directory {scratch} cannot be written: {error.strerror}; choose another with"
            " COURANT_SCRATCH"
        ) from error


def await_orphans(directory: Path, programs: tuple[str, ...]) -> None:
    """Wait until the guard of a killed run has ended such programs in its directory."""
    place, deadline = directory.resolve(), time.monotonic() + ORPHANS_S

    def works_here(process: Path) -> bool:
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            is_inside = (process / "cwd").readlink().is_relative_to(place)
            return is_inside and (process / "exe").readlink().name in programs
        return False

    while any(map(works_here, Path("/proc").glob("[0-9]*"))) and time.monotonic() < deadline:
        time.sleep(POLL_S)
