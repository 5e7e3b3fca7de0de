"""Access the run directory, on disk or S3, by one small interface of all-or-nothing writes.

    experiment.json dataset.json normaliser.json environment.json    what was asked for, and on what
    metrics.jsonl timings.json status.json                           how it went
    heartbeat.json                                                   while a worker is running
    checkpoints/epoch-000010.pt                                      from which to resume
    model.safetensors                                                the best weights so far
    events.out.tfevents.*                                            the same for TensorBoard

Locally a file is written under a temporary name, synced and renamed; on S3 an object appears whole
or not at all. S3 keys, region and AWS_ENDPOINT_URL come from the environment, which botocore reads
itself.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.zip import ZipFileSystem
from pydantic import BaseModel, ValidationError

from simgen.errors import InputError, SimgenError, StoreError
from simgen.whole_file import PARTIAL, npz_bytes, whole_file

M = TypeVar("M", bound=BaseModel)
MAX_READ_BYTES = 64 * 2**20
"""The default limit of `read_bytes`; weights are read by `courant.runs.weights`"""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # not on Windows


class RunDirectory:
    """The files under one URL, a folder or a packed run (.zip, read only); picklable by its URL.

    The files may be somebody else's: they are read within a bound, names cannot lead out of the
    directory, and nothing is written through a link.

    Raises StoreError where the place cannot be reached, read or written, InputError where the URL
    is invalid.
    """

    def __init__(self, url: str | Path) -> None:
        try:
            self.url = absolute_url(url)
            self.is_packed = is_packed(self.url)
            self._fs, self._root = _open(self.url)
        except (
            ValueError,
            ImportError,
            RuntimeError,
            OSError,
        ) as error:  # RuntimeError: links in a circle
            raise InputError(
                f"run URL {url}: {error}; use a local path or s3://bucket/prefix"
            ) from error

    def __reduce__(self) -> tuple[type[RunDirectory], tuple[str]]:
        return (type(self), (self.url,))

    def __truediv__(self, name: str) -> RunDirectory:
        check_name(name, self.url)
        return RunDirectory(f"{self.url.rstrip('/')}/{name}")

    @property
    def filesystem(self) -> fsspec.AbstractFileSystem:
        return self._fs

    def path(self, name: str) -> str:
        """Return the name's path on `filesystem`; InputError for a name that leads elsewhere."""
        if name:
            check_name(name, self.url)
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def exists(self, name: str) -> bool:
        return bool(self._guard("read", name, lambda: self._fs.exists(self.path(name))))

    def names(self, folder: str = "") -> list[str]:
        """List the names in a folder, sorted; empty if there is none.

        Half-written files are not listed.
        """
        here = self.path(folder).rstrip("/")
        try:
            found = self._guard(
                "list", folder, lambda: self._fs.ls(here, detail=False, refresh=True)
            )
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []
            raise
        # Some S3 servers list an emptied folder as an object within itself.
        paths = [str(path).rstrip("/") for path in found]
        names = [path.rsplit("/", 1)[-1] for path in paths if path.lstrip("/") != here.lstrip("/")]
        return sorted(name for name in names if PARTIAL not in name)

    def size(self, name: str) -> int:
        """Return a file's size in bytes."""
        return int(self._guard("read", name, lambda: self._size(name)))

    def read_bytes(
        self,
        name: str,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int = MAX_READ_BYTES,
    ) -> bytes:
        """Read a whole file, or its bytes from `start` to before `end`.

        StoreError where that is more than `limit`.
        """
        return bytes(self._guard("read", name, lambda: self._read(name, start, end, limit)))

    def write_bytes(self, name: str, content: bytes) -> None:
        self._guard("write", name, lambda: self._write(name, content))

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(self.read_bytes(name))
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{self.url}/{name} is not valid JSON ({error}); remove it and train again"
            ) from error

    def read_object(self, name: str) -> dict[str, Any]:
        """Read a JSON file that holds a mapping; StoreError for any other."""
        content = self.read_json(name)
        if not isinstance(content, dict):
            raise StoreError(
                f"{self.url}/{name} holds a {type(content).__name__} where a mapping belongs; "
                "remove it and train again"
            )
        return content

    def read_record(self, name: str, kind: type[M], remedy: str = "train again") -> M:
        """Read a JSON file as a `kind`; StoreError, with the remedy, where it is not one."""
        try:
            return kind.model_validate(self.read_object(name))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))[:100]
            raise StoreError(
                f"{self.url}/{name} is not what this project writes"
                f" ({where}: {first['msg'][:200]}); {remedy}"
            ) from error

    def write_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Write arrays as a compressed .npz file of this name."""
        self.write_bytes(name, npz_bytes(arrays))

    def write_json(self, name: str, content: Any) -> None:
        self.write_bytes(name, (json.dumps(content, indent=2) + "\n").encode())

    def grow_file(self, name: str, content: bytes) -> None:
        """Write a file that only ever grows, for readers that follow it.

        Locally it is appended to, which they see.
        """
        self._guard("write", name, lambda: self._grow(name, content))

    def remove(self, name: str) -> None:
        self._guard("remove", name, lambda: self._remove(name))

    def check_writable(self) -> None:
        """Raise StoreError for a packed run."""
        if self.is_packed:
            raise StoreError(
                f"{self.url} is a packed run, which is only read: unpack it with unzip, and name"
                " the folder that comes out"
            )

    def _size(self, name: str) -> int:
        path = self.path(name)
        if isinstance(self._fs, LocalFileSystem):
            return Path(path).stat().st_size
        found = self._fs.info(path, refresh=True)
        if found["type"] != "file":
            raise StoreError(f"{self.url}/{name} is a folder, expected a file")
        return int(found["size"])

    def _read(self, name: str, start: int | None, end: int | None, limit: int) -> bytes:
        size = self._size(name)
        first, last = min(start or 0, size), size if end is None else min(end, size)
        if last - first > limit:
            raise StoreError(
                f"{self.url}/{name} has {(last - first) / 1e6:,.0f} MB where {limit / 1e6:,.0f} MB"
                " at most belong; it was damaged or not written by this project"
            )
        if not isinstance(self._fs, LocalFileSystem):
            content = self._fs.cat_file(self.path(name), start=start, end=end)
            return bytes(content)
        with Path(self.path(name)).open("rb") as file:
            file.seek(first)
            return file.read(max(0, last - first))

    def _write(self, name: str, content: bytes) -> None:
        self.check_writable()
        target = self.path(name)
        if not isinstance(self._fs, LocalFileSystem):
            self._fs.pipe_file(target, content)
            return
        final = Path(target)
        self._check_inside(final)
        final.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(final) as part:
            part.write_bytes(content)

    def _grow(self, name: str, content: bytes) -> None:
        self.check_writable()
        target = self.path(name)
        if not isinstance(self._fs, LocalFileSystem):
            self._fs.pipe_file(target, content)
            return
        self._check_inside(Path(target))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NO_LINK
        with open(os.open(target, flags, 0o666), "ab") as file:  # noqa: PTH123
            file.write(content[file.seek(0, os.SEEK_END) :])

    def _remove(self, name: str) -> None:
        self.check_writable()
        if isinstance(self._fs, LocalFileSystem):
            self._check_inside(Path(self.path(name)))
        self._fs.rm_file(self.path(name))

    def _check_inside(self, target: Path) -> None:
        """Raise StoreError if a folder on the way is a link out of this directory."""
        root = Path(self._root)
        if not target.parent.resolve().is_relative_to(root.resolve()):
            raise StoreError(
                f"{target.parent} is a link out of {self.url}; nothing is written through it, put a"
                " folder there"
            )

    def _guard(self, verb: str, name: str, action: Any) -> Any:
        """Turn storage's many exceptions into the project's one-line errors."""
        try:
            return action()
        except SimgenError:
            raise
        except FileNotFoundError as error:
            raise StoreError(f"{self.url}/{name} does not exist") from error
        except Exception as error:
            raise StoreError(
                f"cannot {verb} {self.url}/{name}: {str(error) or type(error).__name__}; "
                "check the path, and for s3:// the keys and AWS_ENDPOINT_URL"
            ) from error


def _open(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the files under a URL, and their root among them."""
    if is_packed(url):
        return open_packed(url)
    options = {"use_listings_cache": False} if url.startswith("s3://") else {}
    files, root = fsspec.core.url_to_fs(url, **options)
    return files, root


def absolute_url(url: str | Path) -> str:
    """Make local paths absolute and drop file://; other URLs stay.

    Ray's workers have other working directories.
    """
    text = str(url)
    if "://" in text and not text.startswith("file://"):
        return text.rstrip("/")
    return str(Path(text.removeprefix("file://")).expanduser().resolve())


def check_name(name: str, url: str) -> None:
    """Raise InputError for a name that is empty, absolute, or leads out of the directory."""
    if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")):
        raise InputError(f"{name!r} is no name of a file in {url}: it leads elsewhere")


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
