"""Make the folder of an embedded Ray: private to the user, and removed with its process.

It is locked while its process lives. The next command removes the folder of a killed process,
whether it starts a Ray or not, and ends what is left of that Ray: its agents and workers look for
their GCS for more than a minute.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

FOLDER = "courant-ray-"
LOCK = "lock"
#: Paths of Unix sockets end at 107 bytes, of which Ray's own folders and names take about 75.
LONGEST_BASE = 24
#: Longer than the time between creating a folder and locking it.
START_S = 60.0


def make_ray_folder() -> tuple[Path, TextIO]:
    """Make a new folder and its lock, which is free once the file is closed or the process ends."""
    folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=_base()))
    # Under its final name the lock is never seen free.
    lock = (folder / f"{LOCK}.part").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / f"{LOCK}.part").rename(folder / LOCK)
    return folder, lock


def remove_abandoned_rays() -> None:
    """Remove the folders of killed processes: those whose locks nobody holds."""
    for folder in _base().glob(f"{FOLDER}*"):
        with suppress(OSError):
            # Only this user's folders: others could point anywhere.
            if folder.lstat().st_uid != os.getuid() or not stat.S_ISDIR(folder.lstat().st_mode):
                continue
            if not (folder / LOCK).exists():
                # A Ray wrote its last line too late, or one has just started.
                if time.time() - folder.lstat().st_mtime > START_S:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            with (folder / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _end_processes_of(folder)
                shutil.rmtree(folder, ignore_errors=True)


def _end_processes_of(folder: Path) -> None:
    """Kill the Python processes that have one of the folder's files open."""
    python = Path(sys.executable).resolve()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if (process / "exe").readlink() != python:
                continue
            opened = [file.readlink() for file in (process / "fd").iterdir()]
            if any(file.is_relative_to(folder.resolve()) for file in opened):
                os.kill(int(process.name), signal.SIGKILL)


def _base() -> Path:
    """Return Ray's usual place for its folder, unless that is too deep for its sockets."""
    wanted = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return Path(wanted if len(wanted) <= LONGEST_BASE else "/tmp")
