"""One committer at a time on a local path.

S3 refuses a second commit by itself (conditional writes); Icechunk's file storage has no such thing. A lock file stands in
for it, held for the milliseconds of a commit and released by the kernel when its holder dies. It lies beside the dataset's folder
(`store/.cylinder-flow.lock`), since Icechunk creates a repository in an empty folder only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from simgen.errors import StoreError
from simgen.store.repository import translated

WAIT_S = 60.0
POLL_S = 0.02


@contextlib.contextmanager
def committing(url: str) -> Iterator[None]:
    """Hold the dataset's lock, waiting for another committer on this machine; StoreError where it takes over a minute."""
    if "://" in url:
        yield
        return
    folder = Path(url).expanduser().resolve()
    with translated(url):
        if not folder.parent.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
        file = (folder.parent / f".{folder.name}.lock").open("a+")
    with file:
        _acquire(file, url, WAIT_S)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
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
                    f"{url}: process {file.read() or 'unknown'} has been committing to it for {wait_s:g} s; "
                    "wait for it or stop it, and run again"
                ) from None
            time.sleep(POLL_S)
