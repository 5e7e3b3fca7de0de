"""The files of a local store: where they are, how they get to the disk, and FIFOs among them.

Nothing heavy is imported here: the command line reads paths before anything else.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from simgen.errors import InputError, StoreError

#: Folders of a local repository.
_FOLDERS = ("", "refs", "snapshots", "manifests", "transactions", "chunks")


def local_path(url: str) -> Path:
    """Return the absolute path of a local URL; InputError for the home of an unknown user."""
    try:
        return Path(url).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(f"{url} is no path on this machine: {error}") from error


def sync_all(url: str) -> None:
    """Write everything of the local store's file system to its disk; nothing for S3.

    It takes 2 to 8 ms on a quiet disk, where an fsync for each file and folder took 80 to 240 ms,
    and 0.4 s behind 1 GB of other data. OSError where the disk did not take it.
    """
    if "://" in url:
        return
    file = os.open(local_path(url), os.O_RDONLY)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:  # macOS
            os.sync()
        elif syncfs(file) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(file)


def sync_file(url: str, name: str) -> None:
    """Write one file of a local store to its disk, with the folders that lead to it."""
    if "://" in url:
        return
    top, path = local_path(url), local_path(url) / name
    while True:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        if path == top:
            return
        path = path.parent


def identity(url: str) -> tuple[int, int] | None:
    """Return which folder a local URL leads to, through links; None where there is none, or S3."""
    if "://" in url:
        return None
    try:
        found = local_path(url).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def check_regular(path: Path, url: str) -> None:
    """Raise StoreError that names a FIFO, socket or device in place of a store's object.

    Opening one of those waits for ever, or reads without end. The kinds of directory entries are
    known without opening each file.
    """
    for folder in _FOLDERS:
        for entry in _entries(path / folder):
            if not _may_be_opened(entry):
                name = Path(entry.path).relative_to(path)
                raise StoreError(
                    f"{url}: {name} is damaged (it is a FIFO, a socket or a device in place of a"
                    " file); restore the store from a copy"
                )


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """List the entries of a folder; those of references with everything inside."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry
            if folder.name == "refs" and entry.is_dir():
                yield from _entries(Path(entry.path))


def _may_be_opened(entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
        return True
    try:
        kind = entry.stat().st_mode
    except OSError:
        return True  # a link to nothing: opening it says so
    return stat.S_ISREG(kind) or stat.S_ISDIR(kind)
