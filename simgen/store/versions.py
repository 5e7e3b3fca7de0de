"""Published versions: tags v1, v2, ... on commits that say who made them, when and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import icechunk

from simgen.errors import StoreError
from simgen.store.damage import damage_message, describe_metadata_damage
from simgen.store.repository import explain


@dataclass(frozen=True)
class VersionInfo:
    """One published version; `metadata` is its commit's, with the run's parameters under `run`."""

    name: str
    snapshot_id: str
    time: datetime
    message: str
    author: str
    num_cases: int
    metadata: Mapping[str, Any]


def version_names(repository: icechunk.Repository, url: str) -> list[str]:
    """Names of all versions, oldest first."""
    try:
        return sorted(repository.list_tags(), key=lambda name: int(name.removeprefix("v")))
    except icechunk.IcechunkError as error:
        raise StoreError(explain(url, str(error))) from error


def read_version(repository: icechunk.Repository, url: str, name: str) -> VersionInfo:
    """What the commit of a version says; StoreError where its tag or snapshot is damaged or out of reach."""
    try:
        snapshot = next(iter(repository.ancestry(tag=name)))
        metadata = dict(snapshot.metadata)
        return VersionInfo(
            name,
            snapshot.id,
            snapshot.written_at,
            snapshot.message,
            str(metadata.get("author", "")),
            int(metadata.get("num_cases", 0)),
            metadata,
        )
    except Exception as error:  # whatever Icechunk makes of bytes that are no longer those written
        what = describe_metadata_damage(error)
        raise StoreError(
            damage_message(what, url, name, "its tag or snapshot") if what else explain(url, str(error))
        ) from error


def list_versions(repository: icechunk.Repository, url: str) -> list[VersionInfo]:
    """All versions, oldest first."""
    return [read_version(repository, url, name) for name in version_names(repository, url)]
