"""Manage published versions: tags v1, v2, ... on commits that say who made them, when and how.

Each version has a second reference, a branch of the same name that is made right after its tag.
Icechunk lists only the tags that it can read: without the second one, a damaged tag of the newest
version would look as if that version had never existed. Versions are numbered without gaps, so a
lost one in between is noticed anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import icechunk

from simgen.errors import InputError, StoreError
from simgen.store.access.repository import explain
from simgen.store.format.damage import (
    DamagedError,
    DamageError,
    describe_damage,
    describe_metadata_damage,
    panics_as_errors,
)

_NAME = re.compile(r"v([1-9][0-9]{0,8})")
_REPAIR = "courant dataset repair"


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


def version_number(name: str) -> int | None:
    """Return 3 for v3; None for any other name."""
    return int(name[1:]) if _NAME.fullmatch(name) else None


@dataclass(frozen=True)
class References:
    """The references to a dataset's versions, oldest first."""

    tags: list[str]
    """Names of the versions whose tags can be read"""
    copies: list[str]
    """Names of those whose second references can be read"""
    newest: int
    """Number of the newest version with any trace, whether its tag can be read or not; 0 if none
    was published
    """

    def lost_tags(self, url: str) -> list[str]:
        """Describe each version whose tag is missing or damaged in one line."""
        names = [f"v{number}" for number in range(1, self.newest + 1)]
        return [_lost_tag(url, name, []) for name in names if name not in self.tags]


def read_references(repository: icechunk.Repository, url: str) -> References:
    """Read the current references; StoreError where the store cannot be reached."""
    # Copies first: each is made after its tag, also while this reads.
    copies = _versions_of(repository.list_branches, url)
    tags = _versions_of(repository.list_tags, url)
    newest = max((version_number(name) or 0 for name in (*tags, *copies)), default=0)
    while _is_there(repository, url, f"v{newest + 1}"):
        newest += 1
    if newest and f"v{newest}" not in tags:  # published since the tags were listed, or damaged
        tags = _versions_of(repository.list_tags, url)
    return References(tags, copies, newest)


def version_names(repository: icechunk.Repository, url: str) -> list[str]:
    """List all versions whose tags can be read, oldest first."""
    return _versions_of(repository.list_tags, url)


def choose_version(found: References, url: str, version: str | None) -> str:
    """Return the version of this name, or the newest.

    InputError where there is none, StoreError where its tag is damaged.
    """
    if not found.newest:
        raise InputError(
            f"{url} has no published version yet; finish it with the same courant generate or"
            " courant dataset import command that began it"
        )
    number = found.newest if version is None else version_number(version)
    if number is None or not 0 < number <= found.newest:
        raise InputError(f"{url} has no version {version}; there are {', '.join(found.tags)}")
    if f"v{number}" not in found.tags:
        raise StoreError(_lost_tag(url, f"v{number}", found.tags))
    return f"v{number}"


def version_problems(repository: icechunk.Repository, url: str) -> list[str]:
    """Describe each problem of the references in one line.

    Problems are lost tags, and tags that differ from the second reference.
    """
    found = read_references(repository, url)
    twice = [name for name in found.tags if name in found.copies]
    differing = [
        name for name in twice if repository.lookup_tag(name) != repository.lookup_branch(name)
    ]
    return found.lost_tags(url) + [
        f"{url}: {name} has two references that name different commits; mend it with:"
        f" {_REPAIR} {url}"
        for name in differing
    ]


def add_copies(repository: icechunk.Repository, url: str) -> None:
    """Give each version that lacks it a second reference."""
    copies = _versions_of(repository.list_branches, url)
    for name in version_names(repository, url):
        if name in copies:
            continue
        snapshot_id = repository.lookup_tag(name)
        try:
            repository.create_branch(name, snapshot_id=snapshot_id)
        except icechunk.IcechunkError:
            if repository.lookup_branch(name) != snapshot_id:  # else: another writer was quicker
                raise


def _versions_of(references: Callable[[], Iterable[str]], url: str) -> list[str]:
    try:
        names = [name for name in references() if version_number(name)]
    except icechunk.IcechunkError as error:
        raise StoreError(explain(url, str(error))) from error
    return sorted(names, key=lambda name: version_number(name) or 0)


def _is_there(repository: icechunk.Repository, url: str, name: str) -> bool:
    """Tell whether a tag of this name exists, readable or not.

    Icechunk lists only readable tags.
    """
    try:
        repository.lookup_tag(name)
    except icechunk.IcechunkError as error:
        if "ref not found" in str(error):
            return False
        if describe_damage(error) is None:
            raise StoreError(explain(url, str(error))) from error
    return True


def _lost_tag(url: str, name: str, others: list[str]) -> str:
    by_name = f", or open another by its name ({', '.join(others[-3:])})" if others else ""
    return (
        f"{url}: {name} was published, and its tag is missing or damaged; mend it with:"
        f" {_REPAIR} {url}{by_name}"
    )


def read_version(repository: icechunk.Repository, url: str, name: str) -> VersionInfo:
    """Read what the commit of a version says.

    StoreError where its tag or snapshot is damaged or out of reach.
    """
    try:
        with panics_as_errors():
            snapshot = next(iter(repository.ancestry(tag=name)))
        metadata = dict(snapshot.metadata)
        if metadata.get("publication", name) != name:
            raise DamagedError(f"it names the commit of {metadata['publication']}")
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
        if what is None:
            raise StoreError(explain(url, str(error))) from error
        raise DamageError(what, url, name, "its tag or snapshot") from error


def list_versions(repository: icechunk.Repository, url: str) -> list[VersionInfo]:
    """List all versions, oldest first."""
    return [read_version(repository, url, name) for name in version_names(repository, url)]
