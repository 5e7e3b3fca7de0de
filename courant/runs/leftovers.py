"""Remove what a killed process has left half-written in a run's folder."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from courant.runs.directory import PARTIAL, RunDirectory

#: A file that is still being written is younger.
OLD_S = 600.0


def remove_leftovers(run: RunDirectory) -> None:
    """Remove half-written files that nobody has touched for ten minutes; S3 has none."""
    if "://" in run.url:
        return
    for path in Path(run.url).rglob(f"*{PARTIAL}*"):
        # It may end, or be removed by another process, at any moment.
        with suppress(OSError):
            status = path.lstat()
            if time.time() - status.st_mtime > OLD_S:
                path.unlink()
