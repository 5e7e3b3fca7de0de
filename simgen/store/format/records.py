"""Keep tables over cases as appended JSON lines; a case's later line replaces an earlier one.

A table is one array of bytes, `<group>/records`. Appending rewrites its last chunk and no other, so
the cost of a commit does not depend on the number of cases. As an attribute the table would be part
of every snapshot: each commit would write it anew and each opening read it, needed or not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from simgen.store.format.damage import DamagedError
from simgen.store.format.digest import DIGEST_BYTES

#: Bytes of a chunk before compression. An append rewrites half of one on average, a look-up by
#: place reads one or two.
CHUNK_BYTES = 1 << 18
ARRAY = "records"

Place = tuple[int, int]
"""The place of a line in its table: first byte and length"""


def create_table(group: zarr.Group) -> None:
    """Create the group's table, empty."""
    group.create_array(
        ARRAY,
        shape=(0,),
        dtype="u1",
        chunks=(CHUNK_BYTES,),
        compressors=[ZstdCodec(level=3), Crc32cCodec()],
        attributes={
            "content": (
                "JSON lines in UTF-8; a later line of a case stands in place of an earlier one"
            )
        },
        dimension_names=["byte"],
    )


def drop_table(group: zarr.Group) -> None:
    """Remove the group's table with all its lines."""
    del group[ARRAY]


def append_records(group: zarr.Group, records: Iterable[Mapping[str, Any]]) -> list[Place]:
    """Append a line for each record, which must be JSON-ready; return their places."""
    lines = [_line(record) for record in records]
    if not lines:
        return []
    array = _array(group)
    begin = int(array.shape[0])
    ends = begin + np.cumsum([len(line) for line in lines])
    array.resize((int(ends[-1]),))
    array[begin:] = np.frombuffer(b"".join(lines), np.uint8)
    return [(int(end) - len(line), len(line)) for end, line in zip(ends, lines, strict=True)]


def record_digest(record: Mapping[str, Any]) -> str:
    """Return the digest of a record's line, as `read_record` checks it."""
    return content_digest(_line(record))


def content_digest(content: bytes) -> str:
    """Return the digest of a line, or of a table's whole content."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).hexdigest()


def read_content(group: zarr.Group, begin: int = 0) -> bytes:
    """Read the lines as stored, from a byte on."""
    return np.asarray(_array(group)[begin:]).tobytes()


def parse_records(content: bytes, group: zarr.Group) -> Iterator[dict[str, Any]]:
    """Parse the records of these lines in order; DamagedError for a bad line."""
    return (_parse(line, group) for line in content.splitlines())


def read_records(group: zarr.Group) -> Iterator[dict[str, Any]]:
    """Read all records in order; DamagedError where they are damaged."""
    return parse_records(read_content(group), group)


class RecordReader:
    """Read single records of a table by their places.

    Chunks are kept once read: neighbouring cases' lines share them.
    """

    def __init__(self, group: zarr.Group) -> None:
        self._group, self._array = group, _array(group)
        self._chunks: dict[int, bytes] = {}

    def read(self, place: Place, digest: str | None = None) -> dict[str, Any]:
        """Read a record and check its line's digest, if known; DamagedError where it is damaged."""
        begin, length = place
        size = int(self._array.chunks[0])
        first, last = begin // size, (begin + length - 1) // size
        content = b"".join(self._chunk(number, size) for number in range(first, last + 1))
        line = content[begin - first * size :][:length]
        if digest is not None and content_digest(line) != digest:
            raise DamagedError(f"a record of {self._group.name} is not what was written")
        return _parse(line, self._group)

    def _chunk(self, number: int, size: int) -> bytes:
        if number not in self._chunks:
            self._chunks[number] = np.asarray(
                self._array[number * size : (number + 1) * size]
            ).tobytes()
        return self._chunks[number]


def read_record(group: zarr.Group, place: Place, digest: str | None = None) -> dict[str, Any]:
    """Read one record by its place, as `RecordReader.read` does."""
    return RecordReader(group).read(place, digest)


def _line(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record, separators=(',', ':'))}\n".encode()


def _parse(line: bytes, group: zarr.Group) -> dict[str, Any]:
    try:
        record = json.loads(line)
    # A missing chunk reads as zeros; brackets nested thousands deep end in a RecursionError.
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"a record of {group.name} cannot be decoded: {error}") from error
    if not isinstance(record, dict):
        raise DamagedError(f"a record of {group.name} is none")
    return cast(dict[str, Any], record)


def _array(group: zarr.Group) -> zarr.Array:
    array = group[ARRAY]
    assert isinstance(array, zarr.Array)
    return array
