"""Access the run directory, on disk or S3, by one small interface of all-or-nothing writes.

    experiment.json dataset.json normaliser.json environment.json    what was asked for, and on what
    metrics.jsonl status.json                                        how it went
    heartbeat.json                                                   while a worker is running
    checkpoints/epoch-000010.pt                                      from which to resume
    model.safetensors                                                the best weights so far
    events.out.tfevents.*                                            the same for TensorBoard

Locally a file is written under a temporary name, synced and renamed; on S3 an object appears whole
or not at all. botocore itself reads keys, region and AWS_ENDPOINT_URL from the environment.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.zip import ZipFileSystem
from pydantic import BaseModel, ValidationError

from simgen.errors import InputError, SimgenError, StoreError
from simgen.whole_file import PARTIAL, npz_bytes, whole_file

M = TypeVar("M", bound=BaseModel)
MAX_READ_BYTES = 64 * 2**20  # the default limit of `read_bytes`
SUFFIX = ".zip"  # of a packed run


class RunDirectory:
    """The files under one URL, a folder or a packed run (.zip, read only).

    The files may be somebody else's: they are read within a bound, names cannot lead out of the
    directory, and nothing is written through a link. StoreError where the place cannot be reached,
    read or written, InputError where the URL is invalid.
    """

    def __init__(self, url: str | Path) -> None:
        try:
            self.url = absolute_url(url)
            self.is_packed = self.url.endswith(SUFFIX) and not Path(self.url).is_dir()
            if self.is_packed:
                self.filesystem, self._root = _open_packed(self.url)
            else:
                options = {"use_listings_cache": False} if self.url.startswith("s3://") else {}
                self.filesystem, self._root = fsspec.core.url_to_fs(self.url, **options)
        # RuntimeError: links in a circle
        except (ValueError, ImportError, RuntimeError, OSError) as error:
            raise InputError(
                f"run URL {url}: {error}; use a local path or s3://bucket/prefix"
            ) from error
        self._is_local = isinstance(self.filesystem, LocalFileSystem)

    def __reduce__(self) -> tuple[type[RunDirectory], tuple[str]]:
        return (type(self), (self.url,))

    def __truediv__(self, name: str) -> RunDirectory:
        self.path(name or ".")
        return RunDirectory(f"{self.url.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]

    def path(self, name: str) -> str:
        """Return the name's path on `filesystem`; InputError for a name that leads elsewhere."""
        if not name:
            return self._root
        if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")):
            raise InputError(f"{name!r} is no name of a file in {self.url}: it leads elsewhere")
        return f"{self._root.rstrip('/')}/{name}"

    def exists(self, name: str) -> bool:
        with self._errors("read", name):
            return bool(self.filesystem.exists(self.path(name)))

    def names(self, folder: str = "") -> list[str]:
        """List the names in a folder, sorted, without half-written files."""
        here = self.path(folder).rstrip("/")
        with self._errors("list", folder):
            try:
                found = self.filesystem.ls(here, detail=False, refresh=True)
            except FileNotFoundError:
                return []
        # Some S3 servers list an emptied folder as an object within itself.
        paths = [str(path).rstrip("/") for path in found]
        names = [path.rsplit("/", 1)[-1] for path in paths if path.lstrip("/") != here.lstrip("/")]
        return sorted(name for name in names if PARTIAL not in name)

    def size(self, name: str) -> int:
        with self._errors("read", name):
            return int(self.filesystem.info(self.path(name), refresh=True)["size"])

    def read_bytes(
        self,
        name: str,
        start: int | None = None,
        end: int | None = None,
        *,
        limit: int = MAX_READ_BYTES,
    ) -> bytes:
        """Read a file, or its bytes from `start` to before `end`; StoreError above `limit`."""
        size = self.size(name)
        first, last = min(start or 0, size), size if end is None else min(end, size)
        if last - first > limit:
            raise StoreError(
                f"{self.url}/{name} has {(last - first) / 1e6:,.0f} MB where {limit / 1e6:,.0f} MB"
                " at most belong; it was damaged or not written by this project"
            )
        with self._errors("read", name):
            return bytes(self.filesystem.cat_file(self.path(name), start=start, end=end))

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
            raise StoreError(f"{self.url}/{name} holds no mapping; remove it and train again")
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

    def write_bytes(self, name: str, content: bytes) -> None:
        with self._errors("write", name):
            target = self._target(name)
            if not self._is_local:
                self.filesystem.pipe_file(target, content)
                return
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            with whole_file(Path(target)) as part:
                part.write_bytes(content)

    def write_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        self.write_bytes(name, npz_bytes(arrays))

    def write_json(self, name: str, content: Any) -> None:
        self.write_bytes(name, (json.dumps(content, indent=2) + "\n").encode())

    def grow_file(self, name: str, content: bytes) -> None:
        """Write a file that only ever grows: appended to on a disk, for readers that follow it."""
        if not self._is_local:
            self.write_bytes(name, content)
            return
        with self._errors("write", name), Path(self._target(name)).open("ab") as file:
            file.write(content[file.tell() :])

    def remove(self, name: str) -> None:
        with self._errors("remove", name):
            self.filesystem.rm_file(self._target(name))

    def check_writable(self) -> None:
        """Raise StoreError for a packed run."""
        if self.is_packed:
            raise StoreError(
                f"{self.url} is a packed run, which is only read: unpack it with unzip, and name"
                " the folder that comes out"
            )

    def _target(self, name: str) -> str:
        """Return the path to write to; StoreError where a link leads out of this directory."""
        self.check_writable()
        target = self.path(name)
        if self._is_local:
            place, root = Path(target), Path(self._root).resolve()
            if place.is_symlink() or not place.parent.resolve().is_relative_to(root):
                raise StoreError(f"{target} is a link; nothing is written through it: remove it")
        return target

    @contextmanager
    def _errors(self, verb: str, name: str) -> Iterator[None]:
        """Turn storage's many exceptions into the project's one-line errors."""
        try:
            yield
        except SimgenError:
            raise
        except FileNotFoundError as error:
            raise StoreError(f"{self.url}/{name} does not exist") from error
        except Exception as error:
            raise StoreError(
                f"cannot {verb} {self.url}/{name}: {str(error) or type(error).__name__}; "
                "check the path, and for s3:// the keys and AWS_ENDPOINT_URL"
            ) from error


def absolute_url(url: str | Path) -> str:
    """Make local paths absolute, for processes in other folders; other URLs stay."""
    text = str(url)
    if "://" in text and not text.startswith("file://"):
        return text.rstrip("/")
    return str(Path(text.removeprefix("file://")).expanduser().resolve())


def _open_packed(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the archive's files, and the folder in it that is the run; InputError for others."""
    source, path = fsspec.core.url_to_fs(url)
    if not source.isfile(path):
        raise InputError(f"{url} does not exist, or is no regular file")
    try:
        files = ZipFileSystem(fo=source.open(path, "rb"))
        folders = [each["name"].strip("/") for each in files.ls("") if each["type"] == "directory"]
        if len(folders) != 1:
            raise ValueError(f"it holds {len(folders)} folders")
    except (ValueError, zipfile.BadZipFile, NotImplementedError) as error:
        raise InputError(
            f"{url} is no packed run ({error}); make one with: courant runs export RUN --out FILE"
        ) from error
    return files, folders[0]
