"""Check cases of releases that kept no seal, when they are first opened.

Their arrays must be those of the schema, with every chunk present. Those releases did not write
chunks of zeros; where a chunk is absent, the case's digest tells whether it was ever written.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.core.sync import _collect_aiterator, sync

from simgen.store.format.damage import DamagedError
from simgen.store.format.digest import digest_array, digest_case
from simgen.store.format.expected_arrays import departures

if TYPE_CHECKING:
    from simgen.store.format.layout import Schema


def check_unsealed(
    group: zarr.Group,
    schema: Schema,
    record: Mapping[str, Any],
    details: Mapping[str, Any],
    *,
    schema_1: bool,
) -> None:
    """Raise DamagedError if a case's arrays deviate from the schema or lack a written chunk.

    `record` is its row of the design table, `details` what its digest covers besides attributes and
    arrays.
    """
    members = group.members(max_depth=None)
    arrays = {name: node for name, node in sorted(members) if isinstance(node, zarr.Array)}
    if record["status"] == "accepted":
        for name, problem in departures(schema, arrays, schema_1=schema_1):
            raise DamagedError(f"{name} {problem}")
    lacking = _lacking_chunks(group, arrays)
    if lacking and not _holds_digest(group, arrays, record, details):
        raise DamagedError(f"a chunk of {lacking[0]} is missing")


def _lacking_chunks(group: zarr.Group, arrays: Mapping[str, zarr.Array]) -> list[str]:
    """Name the arrays with an absent chunk."""
    keys: tuple[str, ...] = sync(_collect_aiterator(group.store.list_prefix(f"{group.path}/")))
    inside = (key.removeprefix(f"{group.path}/").rpartition("/c/") for key in keys)
    stored = Counter(name for name, separator, _ in inside if separator)
    return [name for name, array in arrays.items() if stored[name] < math.prod(_grid(array))]


def _grid(array: zarr.Array) -> list[int]:
    return [-(-size // step) for size, step in zip(array.shape, array.chunks, strict=True)]


def _holds_digest(
    group: zarr.Group,
    arrays: Mapping[str, zarr.Array],
    record: Mapping[str, Any],
    details: Mapping[str, Any],
) -> bool:
    digests = [
        digest_array(name, np.asarray(array[...]), str(array.attrs.get("unit", "")))
        for name, array in arrays.items()
    ]
    return bool(digest_case({**dict(group.attrs), **details}, digests) == record.get("digest"))
