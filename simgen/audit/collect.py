"""Delete garbage from a store: chunks that nothing refers to, and the history between versions.

Killed runs and lost races leave chunks without a commit; every commit leaves a snapshot.

Notable properties:
- A worker writes its chunks before anybody commits them, so an unreferenced object may belong to a
  case that is being written right now. Only objects older than an age limit are deleted. A writer
  never commits a fork older than `fork.FORK_LIFETIME`, and the limit is never below that, so no
  commit can refer to deleted chunks.
- Each commit of a case leaves a snapshot that lists the whole dataset and is useless once the next
  one exists. With 96 cases they took 5 % of the store, and they grow with the square of the number
  of cases. Snapshots that no fork younger than the age limit can start from are dropped from the
  history. Versions stay, and so does what is committed but not published yet.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import fsspec
import icechunk

from simgen.errors import InputError, StoreError
from simgen.store.access.fork import FORK_AGE, FORK_LIFETIME
from simgen.store.access.lock import committing
from simgen.store.access.repository import BRANCH, explain
from simgen.store.access.versions import open_to_write
from simgen.store.format.damage import describe_damage

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
    try:
        with committing(url):
            repository = open_to_write(url)
            return _count(repository, url, before) if dry_run else _collect(repository, before)
    except (icechunk.IcechunkError, OSError) as error:
        what = describe_damage(error)
        if what is None:
            raise StoreError(explain(url, str(error))) from error
        raise StoreError(
            f"{url}: {what}, so garbage cannot be told from what is needed; find the damage with:"
            f" courant dataset verify {url}"
        ) from error


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
    history = list(repository.ancestry(branch=BRANCH))
    return [
        snapshot
        for follower, snapshot in itertools.pairwise(history)
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
