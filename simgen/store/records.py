"""Tables over cases as appended JSON lines: one line per case, a later line of a case in place of an earlier one.

A table is one array of bytes, `<group>/records`. Appending rewrites its last chunk and no other, so what a commit costs does not
depend on how many cases there are. The same table as an attribute would be part of every snapshot: each commit would write
it anew and each opening read it, whoever needs it or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

#: Bytes of a chunk before compression. An append rewrites half of one on average, a look-up by place reads one or two.
CHUNK_BYTES = 1 << 18
ARRAY = "records"

Place = tuple[int, int]
"""Where a line stands in its table: first byte and length"""


def create_table(group: zarr.Group) -> None:
    """Make the group's table, empty."""
    group.create_array(
        ARRAY,
        shape=(0,),
        dtype="u1",
        chunks=(CHUNK_BYTES,),
        compressors=[ZstdCodec(level=3), Crc32cCodec()],
        attributes={"content": "JSON lines in UTF-8; a later line of a case stands in place of an earlier one"},
        dimension_names=["byte"],
    )


def append_records(group: zarr.Group, records: Iterable[Mapping[str, Any]]) -> list[Place]:
    """Append a line for each record, which must be JSON-ready; where each of them stands."""
    lines = [f"{json.dumps(record, separators=(',', ':'))}\n".encode() for record in records]
    if not lines:
        return []
    array = _array(group)
    begin = int(array.shape[0])
    ends = begin + np.cumsum([len(line) for line in lines])
    array.resize((int(ends[-1]),))
    array[begin:] = np.frombuffer(b"".join(lines), np.uint8)
    return [(int(end) - len(line), len(line)) for end, line in zip(ends, lines, strict=True)]


def read_records(group: zarr.Group) -> Iterator[dict[str, Any]]:
    """All lines, in the order of their appending; ValueError where they are damaged."""
    content = np.asarray(_array(group)[:]).tobytes()
    return (_parse(line, group) for line in content.splitlines())


def read_record(group: zarr.Group, place: Place) -> dict[str, Any]:
    """The line at a place that `append_records` gave; reads only the chunks that hold it. ValueError where it is damaged."""
    begin, length = place
    return _parse(np.asarray(_array(group)[begin : begin + length]).tobytes(), group)


def _parse(line: bytes, group: zarr.Group) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError as error:  # a chunk that is missing reads as zeros
        raise ValueError(f"decoding the records of {group.name} failed: {error}") from error
    return record


def _array(group: zarr.Group) -> zarr.Array:
    array = group[ARRAY]
    assert isinstance(array, zarr.Array)
    return array
