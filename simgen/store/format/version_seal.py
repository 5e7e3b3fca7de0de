"""Seal a version: one digest over all that opening it reads, checked by every opening.

It covers the root's attributes, the design and split tables byte by byte, the training statistics
and the commit's own record. The design table has the digests of the cases' seals: through it the
seal covers every object of every case. The version's `digest` covers content alone, however it is
stored. Computing it takes time in proportion to the table's rows, so only `verify` and versions
without a seal use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import zarr

from simgen.store.format import schema_1
from simgen.store.format.damage import DamagedError
from simgen.store.format.digest import digest_record, digest_version
from simgen.store.format.layout import Schema
from simgen.store.format.records import content_digest
from simgen.store.format.tables import read_table

#: Keys of a commit's metadata that it cannot cover itself.
DIGEST, SEAL = "digest", "seal"


def seal_version(root: zarr.Group, tables: Mapping[str, bytes], commit: Mapping[str, Any]) -> str:
    """Compute the seal of a version from its root, its tables and its commit.

    `commit` is the commit's metadata with the message.
    """
    return digest_record(
        {
            "root": dict(root.attrs),
            "statistics": dict(root["statistics"].attrs),
            "tables": {name: content_digest(content) for name, content in tables.items()},
            "commit": {name: value for name, value in commit.items() if name not in (DIGEST, SEAL)},
        }
    )


def read_sealed_tables(root: zarr.Group) -> dict[str, bytes]:
    """Read the content of the tables that a seal covers."""
    return {name: read_table(root, name) for name in ("design", "splits")}


def check_version(
    root: zarr.Group,
    tables: Mapping[str, bytes],
    design: Mapping[str, Mapping[str, Any]],
    members: Mapping[str, str],
    commit: Mapping[str, Any],
) -> None:
    """Raise DamagedError where a version is not what was published.

    `commit` is its commit's metadata with the message. A version of schema version 1 has neither
    seal nor digest, so nothing can be checked.
    """
    if schema_1.is_schema_1(root):
        if DIGEST in commit:
            raise DamagedError("its schema version is not what was published")
        return
    if DIGEST not in commit:
        raise DamagedError("its record has no digest: it was not published, or not by this project")
    expected = commit.get(SEAL)
    found = (
        seal_version(root, tables, commit)
        if expected
        else content_digest_of(root, design, members, commit)
    )
    if found != (expected or commit[DIGEST]):
        raise DamagedError(
            "its tables or its record are not what was published: their digest differs"
        )


def content_digest_of(
    root: zarr.Group,
    design: Mapping[str, Mapping[str, Any]],
    members: Mapping[str, str],
    commit: Mapping[str, Any],
) -> str:
    """Recompute the digest of a version's content."""
    statistics = cast(dict[str, Any], root["statistics"].attrs["fields"])
    covered = {name: value for name, value in commit.items() if name != DIGEST}
    return digest_version(
        Schema.from_attrs(root.attrs, "").to_json(), design, members, statistics, covered
    )
