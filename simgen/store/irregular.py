"""Files of a local store that are none: opening a FIFO or a device waits for ever, or reads without end."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from simgen.errors import StoreError

_FOLDERS = ("", "refs", "snapshots", "manifests", "transactions", "chunks")


def check_regular(path: Path, url: str) -> None:
    """StoreError that names a FIFO, socket or device in place of one of the store's objects.

    The kinds of directory entries are known without a look at each file.
    """
    for folder in _FOLDERS:
        for entry in _entries(path / folder):
            if not _may_be_opened(entry):
                name = Path(entry.path).relative_to(path)
                raise StoreError(
                    f"{url}: {name} is damaged (it is a FIFO, a socket or a device in place of a file); "
                    "restore the store from a copy"
                )


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Entries of a folder, of references those inside of theirs; none where there is no such folder."""
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
