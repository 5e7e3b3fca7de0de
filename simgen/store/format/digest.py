"""Compute digests of content, independent of chunks, codecs and manifests.

A case's digest covers its arrays (name, shape, type, unit, values), a version's digest its tables.
Both are blake2b of 16 bytes over canonical text and little-endian C-ordered values, so that any
later release can recompute them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

DIGEST_BYTES = 16
#: The part of a case's design record that goes into a version's digest.
SEALED = ("parameters", "settings", "status", "reason", "digest")


class ArrayDigest:
    """The digest of one array, from its values in blocks along the first axis."""

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], unit: str = ""
    ) -> None:
        self.name = name
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._hash.update(
            json.dumps([name, list(shape), dtype.newbyteorder("<").str, unit]).encode()
        )

    def update(self, block: np.ndarray) -> None:
        """Take in the next block."""
        ordered = np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<"))
        self._hash.update(ordered.reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def digest_array(name: str, values: np.ndarray, unit: str = "") -> ArrayDigest:
    """Compute the digest of an array in memory."""
    digest = ArrayDigest(name, values.shape, values.dtype, unit)
    digest.update(values)
    return digest


def digest_case(attrs: Mapping[str, Any], arrays: Iterable[ArrayDigest]) -> str:
    """Compute the digest of a case from its group's attributes and its arrays, in any order."""
    return digest_record(
        {"attrs": attrs, "arrays": {array.name: array.hexdigest() for array in arrays}}
    )


def digest_version(
    schema: Mapping[str, Any],
    records: Mapping[str, Mapping[str, Any]],
    members: Mapping[str, str],
    statistics: Mapping[str, Any],
    commit: Mapping[str, Any],
) -> str:
    """Compute the digest of a version from schema, design table, splits, statistics and commit.

    `commit` is the commit's metadata without this digest. Through the cases' digests in the records
    it covers every array.
    """
    cases = {case: {name: record.get(name) for name in SEALED} for case, record in records.items()}
    parts = {
        "schema": schema,
        "cases": cases,
        "splits": members,
        "statistics": statistics,
        "commit": commit,
    }
    return digest_record(parts)


def digest_record(record: Mapping[str, Any]) -> str:
    """Compute the digest of JSON-ready content, whatever the order of its keys."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()
