"""Find published versions: v1, v2, ... in the history of the branch.

Notable properties:
- A publication is one commit: its metadata names the version (`publication`). Every commit has the
  number of the newest version so far (`version`), so the branch's newest commit alone tells which
  version is the newest.
- Tags make look-ups fast and keep the versions' commits from `collect`. Where a tag is missing or
  damaged, its version is found in the history, and the next writer makes the tag again.
- Where the branch's newest commit cannot be read, as after a power cut on a disk that does not keep
  its word, the newest readable commit takes its place, and a warning reports it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import fsspec
import icechunk

from simgen.errors import InputError, StoreError
from simgen.store.access.local_files import local_path, sync_file
from simgen.store.access.repository import (
    BRANCH,
    LostBranchError,
    check_process,
    explain,
    open_repository,
    translated,
)
from simgen.store.format.damage import (
    DamageError,
    describe_damage,
    describe_metadata_damage,
    panics_as_errors,
)

logger = logging.getLogger(__name__)

PUBLICATION, VERSION = "publication", "version"
"""Keys of a commit's metadata: the version that it publishes; the number of the newest so far"""
_NAME = re.compile(r"v([1-9][0-9]{0,8})")


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


class Versions:
    """The versions of a dataset at one moment."""

    def __init__(self, repository: icechunk.Repository, url: str) -> None:
        check_process(url)
        self.url, self._repository = url, repository
        self.tip, self.lost_tip = _newest_commit(repository, url)
        """The branch's newest readable commit; why the newest one cannot be read, else empty"""
        # Tags last: each is made after its commit, also while this reads.
        try:
            numbers = {version_number(name): name for name in repository.list_tags()}
        except icechunk.IcechunkError as error:
            raise StoreError(explain(url, str(error))) from error
        self._tags = {number for number in numbers if number}
        self.newest: int = max([newest_in_history(repository, self.tip.id), *self._tags])
        """The number of the newest version; 0 if none was published"""

    @property
    def names(self) -> list[str]:
        """The names of all versions, oldest first."""
        return [f"v{number}" for number in range(1, self.newest + 1)]

    def choose(self, version: str | None) -> str:
        """Return the version of this name, or the newest; InputError where there is none."""
        if not self.newest:
            raise InputError(
                f"{self.url} has no published version yet; finish it with the same courant generate"
                " or courant dataset import command that began it"
            )
        name = f"v{self.newest}" if version is None else version
        if name not in self.names:
            raise InputError(
                f"{self.url} has no version {version}; there are {', '.join(self.names)}"
            )
        return name

    def read(self, name: str) -> VersionInfo:
        """Read the commit of a version; StoreError where it is damaged or out of reach."""
        try:
            with panics_as_errors():
                found = self._tagged(name) or self._in_history(name)
        except Exception as error:  # whatever Icechunk makes of bytes that are not those written
            what = describe_metadata_damage(error)
            if what is None:
                raise StoreError(explain(self.url, str(error))) from error
            raise DamageError(what, self.url, name, "its commit") from error
        if found is None:
            raise DamageError("its commit cannot be found", self.url, name, "the history")
        metadata = dict(found.metadata)
        return VersionInfo(
            name,
            found.id,
            found.written_at,
            found.message,
            str(metadata.get("author", "")),
            int(metadata.get("num_cases", 0)),
            metadata,
        )

    def untagged(self) -> list[str]:
        """List the versions whose tags are missing, damaged, or on another commit."""
        found = []
        for name in self.names:
            with contextlib.suppress(icechunk.IcechunkError), panics_as_errors():
                if self._tagged(name) is None:
                    found.append(name)
        return found

    def problems(self) -> list[str]:
        """Describe each problem of the references in one line."""
        lines = [f"{self.url}: {self.lost_tip}"] if self.lost_tip else []
        return lines + [
            f"{self.url}: {name} was published, and its tag is missing or damaged; make it again"
            f" with: courant dataset gc {self.url}"
            for name in self.untagged()
        ]

    def _tagged(self, name: str) -> icechunk.SnapshotInfo | None:
        """Return the commit that the version's tag names; None where that is not the version's."""
        if version_number(name) not in self._tags:
            return None
        try:
            snapshot_id = self._repository.lookup_tag(name)
        except icechunk.IcechunkError as error:
            if describe_damage(error) is None:
                raise
            return None
        commit = self._repository.lookup_snapshot(snapshot_id)
        return commit if commit.metadata.get(PUBLICATION) == name else None

    def _in_history(self, name: str) -> icechunk.SnapshotInfo | None:
        history = self._repository.ancestry(snapshot_id=self.tip.id)
        return next((each for each in history if each.metadata.get(PUBLICATION) == name), None)


def newest_in_history(repository: icechunk.Repository, commit_id: str) -> int:
    """Return the number of the newest version up to a commit, as the commit itself says."""
    for commit in repository.ancestry(snapshot_id=commit_id):
        published = version_number(str(commit.metadata.get(PUBLICATION)))
        if published or VERSION in commit.metadata:
            return published or int(commit.metadata[VERSION])
    return 0


def open_to_write(url: str, *, create: bool = False) -> icechunk.Repository:
    """Open the repository at `url` and mend its references; the lock must be held.

    StoreError where the commit of a version is lost.
    """
    try:
        repository = open_repository(url, create=create)
    except LostBranchError:
        if "://" in url:
            raise
        # Icechunk opens nothing without the branch. It names any commit until the newest is known.
        _write_branch(url, next(iter(_commit_ids(url))))
        repository = open_repository(url)
        commits = list(_readable(repository, url))
        if not commits:
            raise
        newest = max(commits, key=lambda commit: commit.written_at)
        repository.reset_branch(BRANCH, newest.id)
        logger.warning("%s: its branch was lost; it goes on from commit %s", url, newest.id)
    found = Versions(repository, url)
    if found.lost_tip:
        if found.newest > newest_in_history(repository, found.tip.id):
            found.read(f"v{found.newest}")  # raises: nothing may be published in its place
        repository.reset_branch(BRANCH, found.tip.id)
        logger.warning("%s: %s", url, found.lost_tip)
    for name in found.untagged():
        tag(repository, url, name, found.read(name).snapshot_id)
        logger.warning("%s: the tag of %s was made again", url, name)
    return repository


def tag(repository: icechunk.Repository, url: str, name: str, snapshot_id: str) -> None:
    """Put the tag of a version on its commit, in place of a damaged one."""
    with translated(url):
        files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        place = f"{path}/refs/tag.{name}"
        if files.exists(place):  # another writer's, or one that Icechunk neither reads nor replaces
            with contextlib.suppress(icechunk.IcechunkError):
                if repository.lookup_tag(name) == snapshot_id:
                    return
            files.rm(place, recursive=True)
        with contextlib.suppress(icechunk.IcechunkError):  # another writer was quicker
            repository.create_tag(name, snapshot_id=snapshot_id)
        if repository.lookup_tag(name) != snapshot_id:
            raise StoreError(f"{url}: tag {name} names another commit than its version's")
        sync_file(url, f"refs/tag.{name}/ref.json")


def _newest_commit(repository: icechunk.Repository, url: str) -> tuple[icechunk.SnapshotInfo, str]:
    """Return the branch's newest readable commit, and why the newest one is not, else nothing."""
    try:
        with panics_as_errors():
            return repository.lookup_snapshot(repository.lookup_branch(BRANCH)), ""
    except Exception as error:
        what = describe_metadata_damage(error)
        if what is None:
            raise StoreError(explain(url, str(error))) from error
        commits = list(_readable(repository, url))
        if not commits:
            raise StoreError(
                f"{url}: none of its commits can be read ({what}); restore the store from a copy,"
                " or delete it where nothing was committed yet"
            ) from error
        newest = max(commits, key=lambda commit: commit.written_at)
        return newest, (
            f"its newest commit cannot be read ({what}); commit {newest.id} of"
            f" {newest.written_at:%Y-%m-%d %H:%M:%S} takes its place"
        )


def _readable(repository: icechunk.Repository, url: str) -> Iterator[icechunk.SnapshotInfo]:
    """Return all commits that can be read, whatever refers to them."""
    for id_ in _commit_ids(url):
        with contextlib.suppress(icechunk.IcechunkError, ValueError), panics_as_errors():
            yield repository.lookup_snapshot(id_)


def _commit_ids(url: str) -> list[str]:
    with translated(url):
        files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        found = files.ls(f"{path}/snapshots", detail=False)
        return sorted(entry.rstrip("/").rpartition("/")[2] for entry in found)


def _write_branch(url: str, commit_id: str) -> None:
    """Write the branch's reference as a file: Icechunk replaces none that it cannot read."""
    place = local_path(url) / "refs" / f"branch.{BRANCH}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "ref.json").write_text(json.dumps({"snapshot": commit_id}))
