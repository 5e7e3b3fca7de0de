"""Read the files of a packed run, a zip archive with one folder, as if they lay in a folder.

The archive may be somebody else's: its table of contents is bounded before it is read, and nothing
is unpacked.
"""

from __future__ import annotations

import stat
import struct
import zipfile
from pathlib import Path
from typing import IO

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.zip import ZipFileSystem

from simgen.errors import InputError

SUFFIX = ".zip"
MAX_ENTRIES = 1000
MAX_TABLE_BYTES = 2**18
_END = struct.Struct("<4s4H2IH")
"""The last bytes of an archive: signature, disks, entries, size and place of the table, comment"""
_LOCATOR_BYTES = 20
"""Before them stands the place of a second table in archives of more than 4 GB"""


def is_packed(url: str) -> bool:
    """Tell whether a run's URL names a packed run."""
    return url.endswith(SUFFIX) and ("://" in url or not Path(url).is_dir())


def open_packed(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the archive's files, and the folder in it that is the run.

    InputError where there is no such file, or where it is no packed run.
    """
    source, path = fsspec.core.url_to_fs(url)
    if isinstance(source, LocalFileSystem):
        if not Path(path).exists():
            raise InputError(f"{url} does not exist")
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise InputError(f"{url} is no regular file")
    file = source.open(path, "rb")
    try:
        _check_table(file)
        files = ZipFileSystem(fo=file)
        folders = [each["name"].strip("/") for each in files.ls("") if each["type"] == "directory"]
        if len(folders) != 1:
            raise ValueError(f"it holds {len(folders)} folders")
    except (ValueError, zipfile.BadZipFile, NotImplementedError) as error:
        file.close()
        raise InputError(
            f"{url} is no packed run ({error}); make one with: courant runs export RUN --out FILE"
        ) from error
    return files, folders[0]


def _check_table(file: IO[bytes]) -> None:
    """Raise ValueError unless the archive ends with a table of contents of moderate size."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END.size - _LOCATOR_BYTES))
    tail = file.read()
    if len(tail) < _END.size or tail[-_END.size :][:4] != b"PK\x05\x06":
        raise ValueError("it does not end as a zip archive")
    _, _, _, _, entries, table_bytes, _, _ = _END.unpack(tail[-_END.size :])
    if entries > MAX_ENTRIES or table_bytes > MAX_TABLE_BYTES or b"PK\x06\x07" in tail:
        raise ValueError(f"it announces {entries} files, {MAX_ENTRIES} at most belong")
