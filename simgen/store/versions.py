"""Find published versions: v1, v2, ... in the history of the branch; and what the history holds.

Notable properties:
- A publication is one commit: its metadata names the version (`publication`). Every commit has the
  number of the newest version so far (`version`), so the branch's newest commit alone tells which
  version is the newest.
- Tags make look-ups fast and keep the versions' commits from `collect`. Where a tag is missing or
  damaged, its version is found in the history, and the next writer makes the tag again.
- Where the branch's newest commit cannot be read, as after a power cut on a disk that does not keep
  its word, the newest readable commit takes its place, and a warning reports it.
- `read_progress` tells from the commits alone how far a dataset is; `collect` deletes what neither
  a version nor the newest commit needs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, Literal

import fsspec
import icechunk
import zarr

from simgen.case import Status
from simgen.errors import InputError, StoreError
from simgen.store.local_files import local_path, sync_file
from simgen.store.repository import (
    BRANCH,
    PUBLICATION,
    DamageError,
    LostBranchError,
    check_process,
    committing,
    damage_in,
    history,
    is_empty,
    newest_in_history,
    open_repository,
    root_of,
    translated,
    version_number,
)
from simgen.store.schema import CORE_S, Row, Schema, read_design

logger = logging.getLogger(__name__)


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


class Versions:
    """The versions of a dataset at one moment."""

    def __init__(self, repository: icechunk.Repository, url: str) -> None:
        check_process(url)
        self.url, self._repository = url, repository
        self.tip, self.lost_tip = _newest_commit(repository, url)
        """The branch's newest readable commit; why the newest one cannot be read, else empty"""
        with translated(url, "its history"):
            in_history = newest_in_history(repository, self.tip.id)
            # Tags last: each is made after its commit, also while this reads.
            numbers = map(version_number, repository.list_tags())
            self._tags = {number for number in numbers if number}
        self.newest: int = max([in_history, *self._tags])
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
        with translated(self.url, "its commit", name):
            found = self._tagged(name) or self._in_history(name)
        if found is None:
            raise DamageError("its commit cannot be found", self.url, "the history", name)
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

    def root(self, name: str) -> zarr.Group:
        """Open the root group of a version to read it."""
        return root_of(self._repository, self.read(name).snapshot_id)

    def untagged(self) -> list[str]:
        """List the versions whose tags are missing, damaged, or on another commit."""
        found = []
        for name in self.names:
            with contextlib.suppress(DamageError), translated(self.url):
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
            if damage_in(error) is None:
                raise
            return None
        commit = self._repository.lookup_snapshot(snapshot_id)
        return commit if commit.metadata.get(PUBLICATION) == name else None

    def _in_history(self, name: str) -> icechunk.SnapshotInfo | None:
        commits = history(self._repository, self.tip.id)
        return next((each for each in commits if each.metadata.get(PUBLICATION) == name), None)


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
        with translated(url):
            return repository.lookup_snapshot(repository.lookup_branch(BRANCH)), ""
    except DamageError as error:
        commits = list(_readable(repository, url))
        if not commits:
            raise StoreError(
                f"{url}: none of its commits can be read ({error.what}); restore the store from a"
                " copy, or delete it where nothing was committed yet"
            ) from error
        newest = max(commits, key=lambda commit: commit.written_at)
        return newest, (
            f"its newest commit cannot be read ({error.what}); commit {newest.id} of"
            f" {newest.written_at:%Y-%m-%d %H:%M:%S} takes its place"
        )


def _readable(repository: icechunk.Repository, url: str) -> Iterator[icechunk.SnapshotInfo]:
    """Return all commits that can be read, whatever refers to them."""
    for id_ in _commit_ids(url):
        with contextlib.suppress(DamageError), translated(url):
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


def same_outcomes(one: Mapping[str, Row], other: Mapping[str, Row]) -> bool:
    """Check whether two designs have the same cases, each with the same end and content.

    A version of the one is then a version of the other.
    """
    return _outcomes(one) == _outcomes(other)


def _outcomes(design: Mapping[str, Row]) -> dict[str, tuple[str, ...]]:
    return {
        case: (
            row["status"],
            row["reason"],
            # A case that was withdrawn and solved again differs by its content alone.
            row["digest"] if row["status"] == "accepted" else "",
        )
        for case, row in design.items()
    }


# Progress.

NUM_LEFT = "num_left"
"""Key of a commit's metadata: cases that its writer has still to commit"""
STATUSES: tuple[Status, ...] = ("accepted", "rejected", "failed")
State = Literal["begun", "solving", "silent", "unpublished", "published"]
PATIENCE_S = 600.0
"""The shortest time without a commit after which a dataset with cases left is called silent"""
PATIENT_GAPS, PATIENT_CASES = 5, 2
"""More than so many usual gaps, and than so many of the longest cases so far, is silence too"""
RECENT = 20
"""Commits that the pace is measured on"""


@dataclass(frozen=True)
class DatasetProgress:
    """A dataset as its newest commit leaves it, published or not."""

    url: str
    family: str
    version: str | None
    """The newest version, if any"""
    is_published: bool
    """Whether that version holds all that is on record"""
    num_cases: dict[Status, int]
    solver_s: float
    """Core-seconds of all solvers"""
    num_bytes: int
    """Of the arrays as stored"""
    committed_at: datetime
    num_left: int | None
    """Cases that the last writer had still to commit; None before one said so"""
    case_s: float | None
    """Seconds between two cases of that writer, lately; None before its second commit"""
    longest_s: float
    """Seconds that the longest case on record took, with meshing"""
    flow_run: str | None
    """Prefect's id of the flow run that has committed last, where it said so"""

    @property
    def state(self) -> State:
        """Return `silent` where cases are left and no commit has come for long.

        `begun` where no case is on record yet.
        """
        if self.num_left:
            gaps_s, cases_s = PATIENT_GAPS * (self.case_s or 0.0), PATIENT_CASES * self.longest_s
            patience_s = max(PATIENCE_S, gaps_s, cases_s)
            return "solving" if self.silent_s < patience_s else "silent"
        if not any(self.num_cases.values()) and not self.is_published:
            return "begun"
        return "published" if self.is_published else "unpublished"

    @property
    def left_s(self) -> float | None:
        """Return the seconds until the last case, at this pace."""
        return None if not self.num_left or self.case_s is None else self.num_left * self.case_s

    @property
    def silent_s(self) -> float:
        """Return the seconds since the last commit."""
        return max(0.0, (datetime.now(UTC) - self.committed_at).total_seconds())


def read_progress(url: str) -> DatasetProgress:
    """Read how far the dataset at `url` is.

    InputError where there is none or its creation was interrupted, StoreError where it cannot be
    read.
    """
    repository = open_repository(url)
    with translated(url, "its newest state"):
        commits = list(islice(repository.ancestry(branch=BRANCH), RECENT))
        if is_empty(repository, commits[0].id):
            raise InputError(
                f"{url} holds nothing yet: its creation was interrupted, or has just begun"
            )
        root = root_of(repository, commits[0].id)
        schema, design = Schema.from_attrs(root.attrs, url), read_design(root)
        versions = Versions(repository, url)
        version = versions.choose(None) if versions.newest else None
        published = read_design(versions.root(version)) if version else {}
    rows = list(design.values())
    is_published = version is not None and same_outcomes(published, design)
    last = next((each for each in commits if NUM_LEFT in each.metadata), None)
    return DatasetProgress(
        url=url,
        family=schema.family,
        version=version,
        is_published=is_published,
        num_cases={status: sum(row["status"] == status for row in rows) for status in STATUSES},
        solver_s=float(sum(row[CORE_S] for row in rows)),
        num_bytes=int(sum(row.get("num_bytes_stored") or 0 for row in rows)),
        committed_at=commits[0].written_at,
        # A case that another run has solved makes no commit here, which would have told of it.
        num_left=None if last is None else 0 if is_published else int(last.metadata[NUM_LEFT]),
        case_s=_pace(commits),
        longest_s=max((float(row["wall_time_s"]) for row in rows), default=0.0),
        flow_run=str(last.metadata["flow_run"]) if last and "flow_run" in last.metadata else None,
    )


def _pace(commits: Sequence[icechunk.SnapshotInfo]) -> float | None:
    """Return the seconds a case of the last writer's commits, the newest first."""
    told = [each for each in commits if NUM_LEFT in each.metadata]
    own = told[:1]
    for newer, older in pairwise(told):
        if older.metadata[NUM_LEFT] <= newer.metadata[NUM_LEFT]:
            break  # another writer's, or an earlier run's
        own.append(older)
    if len(own) < 2:
        return None
    num_cases = own[-1].metadata[NUM_LEFT] - own[0].metadata[NUM_LEFT]
    return (own[0].written_at - own[-1].written_at).total_seconds() / num_cases


# Garbage. Killed runs and lost races leave chunks without a commit; every commit leaves a snapshot.
#
# A worker writes its chunks before anybody commits them, so an unreferenced object may belong to a
# case that is being written right now. Only objects older than an age limit are deleted. A writer
# never commits a fork older than `FORK_LIFETIME`, and the limit is never below that, so no commit
# can refer to deleted chunks.
#
# Each commit of a case leaves a snapshot that lists the whole dataset and is useless once the next
# one exists. With 96 cases they took 5 % of the store, and they grow with the square of the number
# of cases. Snapshots that no fork younger than the age limit can start from are dropped from the
# history. Versions stay, and so does what is committed but not published yet.

#: A fork of this age that has written nothing yet starts from the newest commit: solving may have
#: taken days, in which the commit that it was made from may have been collected.
FORK_AGE = timedelta(hours=1)
#: The longest time from a fork's first chunk to its commit. It is seconds in a normal run, hours in
#: one that was suspended.
FORK_LIFETIME = timedelta(hours=6)
#: The default age limit.
AGE_LIMIT = timedelta(days=1)
#: The lowest age limit: protects what a fork that may still be committed has written, and the
#: commit that it started from.
LEAST_AGE = FORK_AGE + FORK_LIFETIME + timedelta(hours=1)


@dataclass(frozen=True)
class Garbage:
    """The objects deleted or, in a dry run, to be deleted."""

    num_bytes: int
    num_chunks: int
    """Chunks of cases that were never committed, and of earlier states of the tables"""
    num_snapshots: int
    """Snapshots of the history between versions, and of commits that lost a race"""
    num_objects: int
    """All of these, and the manifests and transaction logs that belong to them"""


def collect(url: str, *, older_than: timedelta = AGE_LIMIT, dry_run: bool = False) -> Garbage:
    """Delete what is older than `older_than` and unused by every version and the newest state.

    `dry_run` only counts, and finds a lower bound: chunks of tables that only the history refers to
    are found once the history is dropped.

    Raises InputError for an age below `LEAST_AGE`, StoreError where the store is damaged or cannot
    be reached; nothing is deleted then.
    """
    if older_than < LEAST_AGE:
        hours = older_than.total_seconds() / 3600
        raise InputError(
            f"age limit of {hours:g} hours is too short: what a running generation has written and"
            f" not committed yet would go; give at least {LEAST_AGE.total_seconds() / 3600:g} hours"
        )
    before = datetime.now(UTC) - older_than
    with committing(url), translated(url):
        repository = open_to_write(url)
        return _count(repository, url, before) if dry_run else _collect(repository, before)


def _collect(repository: icechunk.Repository, before: datetime) -> Garbage:
    superseded = _superseded(repository, before)
    if superseded:
        repository.expire_snapshots(superseded[0].written_at + timedelta(microseconds=1))
    return _garbage(repository.garbage_collect(before))


def _count(repository: icechunk.Repository, url: str, before: datetime) -> Garbage:
    """Count the garbage, including the superseded snapshots.

    Icechunk counts garbage without deleting it, but not what becomes garbage once the history is
    dropped; at least the snapshots themselves do.
    """
    found = _garbage(repository.garbage_collect(before, dry_run=True))
    ids = [snapshot.id for snapshot in _superseded(repository, before)]
    sizes = [*_sizes(url, "snapshots", ids), *_sizes(url, "transactions", ids)]
    return Garbage(
        found.num_bytes + sum(sizes),
        found.num_chunks,
        found.num_snapshots + len(ids),
        found.num_objects + len(sizes),
    )


def _superseded(repository: icechunk.Repository, before: datetime) -> list[icechunk.SnapshotInfo]:
    """List the branch's snapshots that were superseded before `before`, newest first.

    The first snapshot and those of versions are left out.
    """
    versions = {repository.lookup_tag(tag) for tag in repository.list_tags()}
    commits = list(history(repository, repository.lookup_branch(BRANCH)))
    return [
        snapshot
        for follower, snapshot in itertools.pairwise(commits)
        if follower.written_at < before
        and snapshot.id not in versions
        and snapshot.parent_id is not None
    ]


def _sizes(url: str, kind: str, ids: list[str]) -> list[int]:
    """Return the sizes of the objects of a kind that have one of these ids."""
    if not ids:
        return []
    system, path = fsspec.core.url_to_fs(url)
    wanted = set(ids)
    listed = system.ls(f"{path}/{kind}", detail=True)
    return [int(entry["size"]) for entry in listed if entry["name"].rsplit("/", 1)[-1] in wanted]


def _garbage(summary: icechunk.GCSummary) -> Garbage:
    others = (
        summary.manifests_deleted,
        summary.attributes_deleted,
        summary.transaction_logs_deleted,
    )
    return Garbage(
        summary.bytes_deleted,
        summary.chunks_deleted,
        summary.snapshots_deleted,
        summary.chunks_deleted + summary.snapshots_deleted + sum(others),
    )
