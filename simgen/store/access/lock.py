"""Allow one committer at a time on a local path.

S3 refuses a second commit by itself (conditional writes); Icechunk's file storage does not. A lock
file stands in for it, held for the milliseconds of a commit and released by the kernel when its
holder dies. It is next to the dataset's folder (`store/.cylinder-flow.lock`), since Icechunk
creates a repository only in an empty folder.

This and the other locks of the project are `flock` itself and not a library's: their files carry a
note of who has them, vanish with their holder, or get their name only once they are locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO, TypeVar

import icechunk

from simgen.errors import StoreError
from simgen.store.access.local_files import local_path, sync_all, sync_file
from simgen.store.access.repository import BRANCH, explain, translated
from simgen.store.access.versions import PUBLICATION, VERSION, newest_in_history, version_number
from simgen.store.format.clock import TOLERANCE_S, explain_clock, seconds_behind
from simgen.store.format.damage import describe_damage

WAIT_S = 60.0
POLL_S = 0.02
#: The wait before each attempt at a commit, where other writers may interfere; a commit takes some
#: tens of milliseconds.
RETRY_PAUSES_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
T = TypeVar("T")


@contextlib.contextmanager
def committing(url: str) -> Iterator[None]:
    """Hold the dataset's lock; wait for another committer on this machine.

    StoreError where the wait takes over a minute.
    """
    if "://" in url:
        yield
        return
    folder = local_path(url).resolve()
    with translated(url):
        if not folder.parent.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
        file = (folder.parent / f".{folder.name}.lock").open("a+")
    with file:
        _acquire(file, url, WAIT_S)
        # On a full disk the lock holds without the note of who has it.
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


def _acquire(file: TextIO, url: str, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.seek(0)
                raise StoreError(
                    f"{url}: process {file.read() or 'unknown'} has been committing to it for"
                    f" {wait_s:g} s; wait for it or stop it, and run again"
                ) from None
            time.sleep(POLL_S)
        except OSError as error:
            raise StoreError(
                f"the folder of {url} knows no locks ({error.strerror}), which keep two writers"
                " apart: choose a store on a local disk or on S3"
            ) from error


class ConflictError(Exception):
    """Another writer has moved the branch meanwhile."""


def commit(
    repository: icechunk.Repository,
    url: str,
    session: icechunk.Session,
    message: str,
    metadata: Mapping[str, Any],
) -> str:
    """Commit a session's changes, durable once this returns; return the commit's id.

    Everything is on the disk before the branch names it, and so is the branch's own file before
    the commit is reported: a power cut takes back what was not reported, and no more.

    Raises ConflictError where another writer has committed since the session was opened.
    """
    parent = session.snapshot_id
    published = version_number(str(metadata.get(PUBLICATION)))
    newest = published or newest_in_history(repository, parent)
    commit_id = session.flush(message, {**metadata, VERSION: newest})
    sync_all(url)
    try:
        repository.reset_branch(BRANCH, commit_id, from_snapshot_id=parent)
    except icechunk.IcechunkError as error:
        if "update conflict" in str(error):
            raise ConflictError from error
        raise
    sync_file(url, f"refs/branch.{BRANCH}/ref.json")
    return commit_id


def until_landed(url: str, attempt: Callable[[], T]) -> T:
    """Retry `attempt` while other writers interfere, or their clocks are a little ahead.

    Each try covers everything from the first look at the store to the commit.
    """
    behind = 0.0
    for pause in RETRY_PAUSES_S:
        time.sleep(max(pause, behind))
        behind = 0.0
        with committing(url):
            try:
                return attempt()
            except ConflictError:
                continue
            except (icechunk.IcechunkError, OSError, ValueError) as error:
                behind = seconds_behind(error) or 0.0
                if 0 < behind <= TOLERANCE_S:
                    continue
                raise StoreError(explain_failure(url, error)) from error
    raise StoreError(
        f"{url}: other writers kept committing at the same time;"
        " run again, what was committed stays"
    )


def explain_failure(url: str, error: Exception) -> str:
    """Explain in one line why the store did not take a commit."""
    what = describe_damage(error)
    if what is None:
        return explain_clock(url, error) or explain(url, str(error))
    return (
        f"{url}: its newest state is damaged ({what}); restore the store from a copy, or look with:"
        f" courant dataset verify {url}"
    )
