"""The files of a local store: where they are, and FIFOs and devices among them.

Opening one of those waits for ever, or reads without end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from simgen.errors import InputError, StoreError

_FOLDERS = ("", "refs", "snapshots", "manifests", "transactions", "chunks")


def local_path(url: str) -> Path:
    """Return the absolute path of a local URL; InputError for the home of an unknown user."""
    try:
        return Path(url).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(f"{url} is no path on this machine: {error}") from error


def check_regular(path: Path, url: str) -> None:
    """Raise StoreError that names a FIFO, socket or device in place of a store's object.

    The kinds of directory entries are known without opening each file.
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
    """List the entries of a folder; those of references with everything inside.

    A missing folder has none.
    """
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
