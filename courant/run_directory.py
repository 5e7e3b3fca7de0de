"""The run directory: a local path or s3://bucket/prefix behind one small interface, every write all-or-nothing.

    experiment.json dataset.json normaliser.json environment.json    what was asked for, and on what
    metrics.jsonl timings.json status.json                           how it went
    checkpoints/epoch-000010.pt                                      where to go on
    model.safetensors                                                the best weights so far
    events.out.tfevents.*                                            the same for TensorBoard

Locally a file is written under a temporary name, synced and renamed; on S3 an object appears whole or not at all.
S3 keys, region and AWS_ENDPOINT_URL come from the environment, which botocore reads itself.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from simgen.errors import InputError, StoreError

_TEMPORARY = ".partial-"


class RunDirectory:
    """Files under one URL; picklable by its URL.

    Raises StoreError where the place cannot be reached, read or written, InputError where the URL makes no sense.
    """

    def __init__(self, url: str | Path) -> None:
        self.url = absolute_url(url)
        try:
            options = {"use_listings_cache": False} if self.url.startswith("s3://") else {}
            self._fs, self._root = fsspec.core.url_to_fs(self.url, **options)
        except (ValueError, ImportError) as error:
            raise InputError(f"run URL {url}: {error}; use a local path or s3://bucket/prefix") from error

    def __reduce__(self) -> tuple[type[RunDirectory], tuple[str]]:
        return (type(self), (self.url,))

    def __truediv__(self, name: str) -> RunDirectory:
        return RunDirectory(f"{self.url.rstrip('/')}/{name}")

    @property
    def filesystem(self) -> fsspec.AbstractFileSystem:
        return self._fs

    def path(self, name: str) -> str:
        """The name's path on `filesystem`."""
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def exists(self, name: str) -> bool:
        return bool(self._guard("read", name, lambda: self._fs.exists(self.path(name))))

    def names(self, folder: str = "") -> list[str]:
        """Sorted names of what lies in a folder; empty when there is none. Half-written files are not listed."""
        here = self.path(folder).rstrip("/")
        try:
            found = self._guard("list", folder, lambda: self._fs.ls(here, detail=False, refresh=True))
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return []
            raise
        # Some S3 servers list an emptied folder as an object within itself.
        paths = [str(path).rstrip("/") for path in found]
        names = [path.rsplit("/", 1)[-1] for path in paths if path.lstrip("/") != here.lstrip("/")]
        return sorted(name for name in names if _TEMPORARY not in name)

    def read_bytes(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """A whole file, or its bytes from `start` to before `end`."""
        return bytes(self._guard("read", name, lambda: self._fs.cat_file(self.path(name), start=start, end=end)))

    def write_bytes(self, name: str, content: bytes) -> None:
        self._guard("write", name, lambda: self._write(name, content))

    def read_json(self, name: str) -> Any:
        try:
            return json.loads(self.read_bytes(name))
        except ValueError as error:
            raise StoreError(
                f"{self.url}/{name} is not valid JSON ({error}); the run is damaged, train it again"
            ) from error

    def write_json(self, name: str, content: Any) -> None:
        self.write_bytes(name, (json.dumps(content, indent=2) + "\n").encode())

    def grow_file(self, name: str, content: bytes) -> None:
        """Write a file that only ever grows, for readers that follow it: locally by appending, which they see."""
        self._guard("write", name, lambda: self._grow(name, content))

    def remove(self, name: str) -> None:
        self._guard("remove", name, lambda: self._fs.rm_file(self.path(name)))

    def _write(self, name: str, content: bytes) -> None:
        target = self.path(name)
        if not isinstance(self._fs, LocalFileSystem):
            self._fs.pipe_file(target, content)
            return
        final = Path(target)
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = final.with_name(f"{final.name}{_TEMPORARY}{uuid.uuid4().hex}")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)

    def _grow(self, name: str, content: bytes) -> None:
        target = self.path(name)
        if not isinstance(self._fs, LocalFileSystem):
            self._fs.pipe_file(target, content)
            return
        with Path(target).open("ab") as file:
            file.write(content[file.tell() :])

    def _guard(self, verb: str, name: str, action: Any) -> Any:
        """Storage speaks in many exceptions; the project in one line."""
        try:
            return action()
        except FileNotFoundError as error:
            raise StoreError(f"{self.url}/{name} does not exist") from error
        except Exception as error:
            raise StoreError(
                f"cannot {verb} {self.url}/{name}: {str(error) or type(error).__name__}; "
                "check the path, and for s3:// the keys and AWS_ENDPOINT_URL"
            ) from error


def absolute_url(url: str | Path) -> str:
    """Local paths made absolute, since Ray's workers have folders of their own; file:// dropped; other URLs as they are."""
    text = str(url)
    if "://" in text and not text.startswith("file://"):
        return text.rstrip("/")
    return str(Path(text.removeprefix("file://")).expanduser().resolve())
