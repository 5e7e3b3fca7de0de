"""Put thousands of cases on record in seconds: copies of one that was written by the real writer.

Each copy has its own design, its own group with the arrays of the original, and its own lines in
all tables. What a case costs at this size of a dataset can then be measured without the hours in
which it would have grown.
"""

from __future__ import annotations

from collections.abc import Sequence

import icechunk
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from bench.synthetic_cases import SCHEMA, synthetic_cloud, synthetic_result
from simgen.design_space import DesignPoint
from simgen.store.repository import BRANCH, open_repository
from simgen.store.write import CaseRecord, DatasetWriter, append_cases

BATCH = 2_500


def grow(url: str, points: Sequence[DesignPoint], num_snapshots: int) -> None:
    """Put the points on record at `url` as accepted cases, if they are not there yet."""
    writer = DatasetWriter.open(url, SCHEMA)
    known = writer.known()
    new = [point for point in points if point.id not in known]
    if not new:
        return
    fork, result = writer.fork(), synthetic_result(0, num_snapshots)
    fork.write(result, synthetic_cloud(40, 12, num_snapshots))
    record = fork.records[result.id]
    objects = sync(_objects(fork.session.store, f"cases/{result.id}/"))
    repository = open_repository(url)
    for begin in range(0, len(new), BATCH):
        batch = new[begin : begin + BATCH]
        session = repository.writable_session(BRANCH)
        sync(_copy(session.store, objects, [f"cases/{point.id}/" for point in batch]))
        records = {point.id: _of(record, point) for point in batch}
        append_cases(zarr.open_group(session.store, mode="r+"), records)
        session.commit(f"{len(batch)} cases")


def _of(record: CaseRecord, point: DesignPoint) -> CaseRecord:
    design = {**record.design, "parameters": dict(point.parameters)}
    return CaseRecord(design, record.details, record.moments)


async def _objects(store: icechunk.IcechunkStore, prefix: str) -> dict[str, bytes]:
    """The objects below a prefix; groups and arrays before their chunks."""
    found = {}
    async for key in store.list_prefix(prefix):
        buffer = await store.get(key, default_buffer_prototype())
        assert buffer is not None
        found[key.removeprefix(prefix)] = buffer.to_bytes()
    return dict(sorted(found.items(), key=lambda item: not item[0].endswith("zarr.json")))


async def _copy(
    store: icechunk.IcechunkStore, objects: dict[str, bytes], prefixes: Sequence[str]
) -> None:
    of_bytes = default_buffer_prototype().buffer.from_bytes
    for prefix in prefixes:
        for key, content in objects.items():
            await store.set(prefix + key, of_bytes(content))
