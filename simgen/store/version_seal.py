"""A version's seal: one digest over all that opening it reads, so that every opening can hold it against what was published.

It covers the root's attributes, the design and split tables byte by byte, the training statistics and the
commit's own record. The design table has the digests of the cases' seals: through it the seal covers every
object of every case. The version's `digest` covers content alone, whatever it is stored in; it takes as long
as the table has rows, so that only `verify` and versions without a seal go by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import zarr

from simgen.store import schema_1
from simgen.store.damage import DamagedError
from simgen.store.digest import digest_record, digest_version
from simgen.store.layout import Schema
from simgen.store.records import content_digest
from simgen.store.tables import read_table

#: Keys of a commit's metadata that it cannot cover itself.
DIGEST, SEAL = "digest", "seal"


def seal_version(root: zarr.Group, tables: Mapping[str, bytes], commit: Mapping[str, Any]) -> str:
    """The seal of a version: its root, the content of its tables, and its commit's metadata with the message."""
    return digest_record(
        {
            "root": dict(root.attrs),
            "statistics": dict(root["statistics"].attrs),
            "tables": {name: content_digest(content) for name, content in tables.items()},
            "commit": {name: value for name, value in commit.items() if name not in (DIGEST, SEAL)},
        }
    )


def read_sealed_tables(root: zarr.Group) -> dict[str, bytes]:
    """The content of the tables that a seal covers."""
    return {name: read_table(root, name) for name in ("design", "splits")}


def check_version(
    root: zarr.Group,
    tables: Mapping[str, bytes],
    design: Mapping[str, Mapping[str, Any]],
    members: Mapping[str, str],
    commit: Mapping[str, Any],
) -> None:
    """DamagedError where a version is not what was published; `commit` is its commit's metadata with the message.

    A version of schema version 1 has neither seal nor digest: nothing is known of it.
    """
    if schema_1.is_schema_1(root):
        if DIGEST in commit:
            raise DamagedError("its schema version is not what was published")
        return
    if DIGEST not in commit:
        raise DamagedError("its record has no digest: it was not published, or not by this project")
    expected = commit.get(SEAL)
    found = seal_version(root, tables, commit) if expected else content_digest_of(root, design, members, commit)
    if found != (expected or commit[DIGEST]):
        raise DamagedError("its tables or its record are not what was published: their digest differs")


def content_digest_of(
    root: zarr.Group,
    design: Mapping[str, Mapping[str, Any]],
    members: Mapping[str, str],
    commit: Mapping[str, Any],
) -> str:
    """The digest of a version's content, recomputed."""
    statistics = cast(dict[str, Any], root["statistics"].attrs["fields"])
    covered = {name: value for name, value in commit.items() if name != DIGEST}
    return digest_version(asdict(Schema.from_attrs(root.attrs, "")), design, members, statistics, covered)
