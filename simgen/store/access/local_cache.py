"""Cache decoded arrays on a local disk, within a size limit.

Arrays are read and decoded once, and memory-mapped from then on.

Notable properties:
- A file is one array of one case, named by the case's id and digest: versions of a dataset share
  it, and a case that was solved again gets another file.
- Files appear complete or not at all (written under another name, then renamed), so that any number
  of processes may share a folder.
- A file ends in a checksum of the rest, which each process checks when it first maps the file (at
  6 GB/s); one that does not match is read from the store again.
- The folder holds at most `max_bytes`: whoever adds a file first removes the least recently used
  ones, under a lock. What another process has mapped stays readable to it until it lets go.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import threading
import time
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from simgen.errors import StoreError
from simgen.store.access import content
from simgen.store.access.stored_case import StoredCase

#: Maps that a process keeps open; opening one takes as long as reading a window.
MOST_OPEN = 256
#: How often to check that an open map's file still exists, which also marks it as used: a check
#: takes as long as reading a window.
MARK_EVERY_S = 5.0
#: The writer of a half-written file of this age must be gone.
ABANDONED_S = 3600.0
_PARTIAL = ".partial-"
CRC_BYTES = 4

logger = logging.getLogger(__name__)


class LocalCache:
    """Arrays of cases under `folder`, at most `max_bytes` of them."""

    def __init__(self, folder: str | Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = Path(folder).expanduser(), max_bytes
        self._open: OrderedDict[str, tuple[np.ndarray, float]] = OrderedDict()
        self._checked: dict[str, int] = {}
        """Inodes of the files whose checksums matched"""
        self._lock = threading.Lock()
        with self._guarded():
            self.folder.mkdir(parents=True, exist_ok=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self.max_bytes)

    def arrays(self, case: StoredCase, *names: str) -> dict[str, np.ndarray]:
        """Return arrays of a case by name, read-only; read missing ones together.

        An array larger than the whole cache is returned without being kept. StoreError where the
        folder cannot be used.
        """
        # Cases of schema version 1 have no digest; the snapshot stands in.
        of_case = f"{case.id}-{content.digest(case) or case.dataset.snapshot_id}"
        found = {name: self._mapped(f"{of_case}-{name.replace('/', '.')}.npy") for name in names}
        missing = [name for name, values in found.items() if values is None]
        for name, values in (case.read(*missing) if missing else {}).items():
            file = f"{of_case}-{name.replace('/', '.')}.npy"
            with self._guarded():
                self._add(self.folder / file, values)
            kept = self._mapped(file)
            found[name] = values if kept is None else kept
        return {name: values for name, values in found.items() if values is not None}

    @property
    def num_bytes(self) -> int:
        """Return the size of the folder's files."""
        return sum(size for _, size, _ in self._files())

    def _mapped(self, file: str) -> np.ndarray | None:
        """Map a file's array and mark it as used; None where there is no such file."""
        now = time.monotonic()
        with self._lock:
            values, marked = self._open.get(file, (None, 0.0))
            if values is not None and now - marked < MARK_EVERY_S:
                self._open.move_to_end(file)
                return values
        with self._lock, self._guarded():
            self._open.pop(file, None)
            try:
                _mark_used(self.folder / file)
                if values is None:
                    self._check(file)
                    values = np.asarray(np.load(self.folder / file, mmap_mode="r"))
            except FileNotFoundError:  # or removed by another process since
                return None
            except (ValueError, EOFError) as error:
                logger.warning("%s is damaged and removed: %s", self.folder / file, error)
                (self.folder / file).unlink(missing_ok=True)
                return None
            self._open[file] = values, now
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
            return values

    def _check(self, file: str) -> None:
        """Raise ValueError where a file does not match its checksum; once for each file."""
        inode = (self.folder / file).stat().st_ino
        if self._checked.get(file) == inode:
            return
        content = np.memmap(self.folder / file, np.uint8, "r")
        if zlib.crc32(content[:-CRC_BYTES].data) != int.from_bytes(content[-CRC_BYTES:], "little"):
            raise ValueError("its checksum does not match")
        self._checked[file] = inode

    def _add(self, path: Path, values: np.ndarray) -> None:
        if not values.size or values.nbytes > self.max_bytes:
            return
        values = np.ascontiguousarray(values)
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, np.lib.format.header_data_from_array_1_0(values)
        )
        parts = (header.getvalue(), values.data.cast("B"))
        crc = zlib.crc32(parts[1], zlib.crc32(parts[0]))
        partial = self.folder / f"{_PARTIAL}{uuid.uuid4().hex}"
        try:
            with partial.open("xb") as file:
                for part in (*parts, crc.to_bytes(CRC_BYTES, "little")):
                    file.write(part)
            size = partial.stat().st_size
            if size > self.max_bytes:
                return
            with self._alone() as note:
                self._make_room(size, note)
                _mark_used(partial)
                partial.rename(path)
        finally:
            partial.unlink(missing_ok=True)

    def _make_room(self, size: int, note: IO[str]) -> None:
        """Remove the least recently used files until `size` more bytes fit.

        `note` holds what the files have together, or more: they are listed only where it is not
        known, or where there seems to be no room. Leftovers of killed processes go then too, and a
        twentieth of the files, so that a full folder is not listed at each addition.
        """
        noted = note.read()
        held = int(noted) if noted.isdecimal() else self.max_bytes
        if held + size > self.max_bytes:
            self._forget_abandoned()
            files = sorted(self._files())
            held = sum(bytes_ for _, bytes_, _ in files)
            is_full = held + size > self.max_bytes
            for number, (_, bytes_, path) in enumerate(files):
                if held + size <= self.max_bytes and not (is_full and number < len(files) // 20):
                    break
                path.unlink(missing_ok=True)
                held -= bytes_
        note.seek(0)
        note.truncate()
        note.write(str(held + size))
        note.flush()

    def _forget_abandoned(self) -> None:
        for partial in self.folder.glob(f"{_PARTIAL}*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - partial.stat().st_mtime > ABANDONED_S:
                    partial.unlink()

    def _files(self) -> list[tuple[int, int, Path]]:
        """List time of last use, bytes and path of each file."""
        found = []
        for entry in os.scandir(self.folder):
            if entry.name.endswith(".npy"):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
        return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[IO[str]]:
        """Hold the folder's lock; its file says how much the folder holds."""
        file = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        with os.fdopen(file, "r+") as note:
            fcntl.flock(note, fcntl.LOCK_EX)
            yield note

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cache {self.folder} cannot be used ({error.strerror or error}): choose another"
                " folder or make room on its disk"
            ) from error


def _mark_used(path: Path) -> None:
    """Set the file's time to now; the kernel's own are coarse, so that uses would look alike."""
    now = time.time_ns()
    os.utime(path, ns=(now, now))
