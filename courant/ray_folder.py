"""Make the folder of an embedded Ray: private to the user, and removed with its process.

It is locked while its process lives. The next command removes the folder of a killed process,
whether it starts a Ray or not, and ends what is left of that Ray: its agents and workers look for
their GCS for more than a minute.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
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
#: How long processes that still write into a folder are ended and its removal is tried again. A
#: folder that cannot be removed takes this time of every command.
OWN_REMOVAL_S, OTHERS_REMOVAL_S = 5.0, 2.0


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
                    remove_ray_folder(folder, OTHERS_REMOVAL_S)
                continue
            with (folder / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_ray_folder(folder, OTHERS_REMOVAL_S)


def remove_ray_folder(folder: Path, patience_s: float = OWN_REMOVAL_S) -> None:
    """End what is left of a folder's Ray, and remove the folder.

    A process that ends may write a last line meanwhile, and leave a folder that was not empty.
    """
    deadline = time.monotonic() + patience_s
    while True:
        _end_processes_of(folder)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists() or time.monotonic() > deadline:
            return
        time.sleep(0.05)


def _end_processes_of(folder: Path) -> None:
    """Kill the processes of Ray and Python, but for this one, that have the folder's files open."""
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with suppress(OSError):  # it has ended, or is another user's
            if not _is_ray_s((process / "exe").readlink()):
                continue
            if any(_is_of_ray(file, folder) for file in (process / "fd").iterdir()):
                os.kill(int(process.name), signal.SIGKILL)


def _is_of_ray(descriptor: Path, folder: Path) -> bool:
    """Tell whether an open file lies in the folder; its lock is opened by other commands too."""
    try:
        file = descriptor.readlink()
    except OSError:  # closed meanwhile
        return False
    return file.is_relative_to(folder.resolve()) and not file.name.startswith(LOCK)


def _is_ray_s(program: Path) -> bool:
    """Tell whether a program may be a Ray's: Python itself, or one of those that Ray brings."""
    return any(program.is_relative_to(place) for place in _programs())


@functools.cache
def _programs() -> list[Path]:
    found = importlib.util.find_spec("ray")  # without importing it
    places = (found.submodule_search_locations if found else None) or []
    return [Path(place).resolve() for place in (sys.executable, *places)]


def _base() -> Path:
    """Return Ray's usual place for its folder, unless that is too deep for its sockets."""
    wanted = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return Path(wanted if len(wanted) <= LONGEST_BASE else "/tmp")
