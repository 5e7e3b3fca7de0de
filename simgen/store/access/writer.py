"""Write a dataset: many workers write cases, one committer commits and publishes them.

Notable properties:
- A worker gets a `CaseFork`, a small picklable copy of a session. It writes its case's chunks
  straight to the store and sends the fork back; no array passes through the committer.
- Each commit moves the branch at once, so a killed run loses only the cases in progress. Forks may
  be older than the branch's tip: they write disjoint groups, and merging one into a newer session
  adds just these.
- A version is a tag on the commit that publishes it, and never changes. Readers see tags only:
  later commits are invisible to them until they are published.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import icechunk
import zarr

from simgen.case import Status
from simgen.errors import InputError, StoreError
from simgen.log_lines import about, fields_here
from simgen.provenance import commit_metadata
from simgen.store.access.fork import CaseFork
from simgen.store.access.local_files import identity
from simgen.store.access.lock import commit, explain_failure, until_landed
from simgen.store.access.publication import Publication, complete_version, root_of
from simgen.store.access.repository import BRANCH, open_repository, repository_exists
from simgen.store.access.versions import Versions, open_to_write
from simgen.store.access.withdrawal import Withdrawal
from simgen.store.format.design_rows import DesignRows
from simgen.store.format.layout import UPGRADED_VERSION, Schema
from simgen.store.format.tables import (
    append_cases,
    bound_splits,
    create_tables,
    read_design,
    read_splits,
    upgrade,
)

logger = logging.getLogger(__name__)

NUM_LEFT = "num_left"
"""Key in a commit's metadata: cases that its writer has still to commit"""


@dataclass(frozen=True)
class Record:
    """Hold what a dataset has on record."""

    known: Mapping[str, Status]
    """Every case, published or not"""
    version: str | None
    """The newest version, where it holds all of them; None where something is left to publish"""


def find_record(url: str, schema: Schema) -> Record | None:
    """Read what the dataset at `url` has on record, and write nothing.

    None where a writer comes first: there is no dataset yet, or one of an older schema. InputError
    where another family lives there, StoreError where the store cannot be read.
    """
    if not repository_exists(url):
        return None
    repository = open_repository(url)
    try:
        tip = repository.readonly_session(BRANCH).snapshot_id
        if is_empty(repository, tip):
            return None
        root = root_of(repository, tip)
        if _stored_schema(root, url, schema).version < UPGRADED_VERSION:
            return None
        design = read_design(root)
        return Record(_statuses(design), complete_version(repository, url, design))
    except (icechunk.IcechunkError, OSError, ValueError) as error:
        raise StoreError(explain_failure(url, error)) from error


@dataclass(frozen=True)
class OnRecord:
    """The newest state of a dataset, whether a version holds it or not."""

    schema: Schema
    design: Mapping[str, Mapping[str, Any]]
    """Each case's row of the design table"""
    splits: Mapping[str, str]
    """The splits that bind the next version"""

    @property
    def held(self) -> dict[str, Mapping[str, Any]]:
        """The rows of cases that are not withdrawn; withdrawn ones may come again, mended."""
        return {name: row for name, row in self.design.items() if row["status"] != "withdrawn"}


def read_on_record(url: str) -> OnRecord | None:
    """Return what is on record at `url`, or None where there is no dataset yet.

    StoreError where the store cannot be read.
    """
    if not repository_exists(url):
        return None
    try:
        repository = open_repository(url)
        tip = repository.readonly_session(BRANCH).snapshot_id
        if is_empty(repository, tip):
            return None
        root = root_of(repository, tip)
        schema = Schema.from_attrs(root.attrs, url)
        return OnRecord(schema, read_design(root), bound_splits(root))
    except (icechunk.IcechunkError, OSError, ValueError) as error:
        raise StoreError(explain_failure(url, error)) from error


class DatasetWriter:
    """The one committer of a dataset."""

    def __init__(self, url: str, schema: Schema, repository: icechunk.Repository) -> None:
        self.url, self.schema = url, schema
        self._repository = repository
        self._folder = identity(url)
        self._rows = DesignRows()

    @classmethod
    def open(cls, url: str, schema: Schema) -> DatasetWriter:
        """Open the dataset at `url`, or create it; InputError if it belongs to another family."""
        return until_landed(url, lambda: cls._opened(url, schema, open_to_write(url, create=True)))

    @classmethod
    def _opened(cls, url: str, schema: Schema, repository: icechunk.Repository) -> DatasetWriter:
        # Every question is answered by one session's snapshot: on S3 another writer may move the
        # branch in between.
        session = repository.writable_session(BRANCH)
        if is_empty(repository, session.snapshot_id):
            root = zarr.create_group(session.store, attributes=schema.to_attrs())
            create_tables(root)
            commit(repository, url, session, "dataset created", commit_metadata())
            return cls(url, schema, repository)
        stored = _stored_schema(zarr.open_group(session.store, mode="r"), url, schema)
        if stored.version < UPGRADED_VERSION:
            root = zarr.open_group(session.store, mode="r+")
            upgrade(root)
            root.attrs["schema_version"] = UPGRADED_VERSION
            upgraded = f"upgraded to schema version {UPGRADED_VERSION}"
            commit(repository, url, session, upgraded, commit_metadata())
        return cls(url, stored.upgraded(), repository)

    def known(self) -> dict[str, Status]:
        """List every case on record, published or not."""
        return _statuses(self._design())

    def digests(self) -> dict[str, str]:
        """Return the digest of every case on record, published or not."""
        return {case: record.get("digest", "") for case, record in self._design().items()}

    def unpublished(self) -> set[str]:
        """List accepted cases that the newest version does not hold."""
        accepted = {case for case, status in self.known().items() if status == "accepted"}
        versions = Versions(self._repository, self.url)
        if not versions.newest:
            return accepted
        newest = versions.read(versions.choose(None))
        return accepted - set(read_splits(root_of(self._repository, newest.snapshot_id)))

    def fork(self) -> CaseFork:
        """Return a fork for one worker."""
        self._check_folder()
        retried = {
            case: record.get("provenance_at")
            for case, record in self._design().items()
            if record["status"] != "accepted"
        }
        return CaseFork(
            self.url, self.schema, self._repository.writable_session(BRANCH).fork(), retried
        )

    def commit(self, forks: Sequence[CaseFork], num_left: int | None = None) -> None:
        """Make the forks' cases durable; the commit says how many more are on their way.

        A case that is already accepted stays as it is; its second copy is dropped. Waits its turn
        where another writer is committing; StoreError where the store cannot be written, or where
        of a fork's cases only some are accepted already, since a fork is taken whole.
        """
        for case in until_landed(self.url, lambda: self._commit_once(forks, num_left)):
            with about(dataset=self.url, case=case):
                logger.info("committed")

    def _commit_once(self, forks: Sequence[CaseFork], num_left: int | None) -> list[str]:
        """Commit, and return the cases that are new."""
        self._check_folder()
        # The record is read through the session that commits: a writer that interferes makes this
        # commit fail.
        session = self._repository.writable_session(BRANCH)
        root = zarr.open_group(session.store, mode="r+")
        design = self._rows.seen_in(root)
        accepted = {case for case, record in design.items() if record["status"] == "accepted"}
        fresh: list[CaseFork] = []
        for fork in forks:
            fork.check_age()
            new = fork.records.keys() - accepted
            if new and len(new) < len(fork.records):
                there = next(case for case in fork.records if case in accepted)
                raise StoreError(
                    f"{self.url}: case {there} was accepted meanwhile, and {len(new)} new ones"
                    " were written together with it; run again"
                )
            if new:
                fresh.append(fork)
                accepted.update(new)
        if not fresh:
            return []
        records = {case: record for fork in fresh for case, record in fork.records.items()}
        names = list(records)
        message = f"case {names[0]}" if len(names) == 1 else f"{len(names)} cases"
        for case in design.keys() & records.keys():
            # Another writer may have committed it since the fork was made; two writers' data under
            # one name would mix.
            del root[f"cases/{case}"]
        session.merge(*(fork.session for fork in fresh))
        append_cases(root, records)
        metadata = {**commit_metadata(), **_progress(num_left)}
        commit(self._repository, self.url, session, message, metadata)
        return names

    def publish(self, message: str = "", run: Mapping[str, Any] | None = None) -> str:
        """Publish a version of all cases on record; return its name.

        If no case is new since the newest version, that one's name is returned. `run` holds the
        parameters that make the version again. Raises InputError where no case is accepted.
        """
        return self._publish(message, run or {})

    def withdraw(self, cases: Sequence[str], reason: str) -> str:
        """Publish a version without these accepted cases; return its name.

        They keep their records, with `reason`. Older versions stay as they are, and so do the
        splits of all other cases. Raises InputError for a case that is unknown or not accepted, for
        an empty reason, and where no training case is left.
        """
        withdrawal = Withdrawal(self.url, cases, reason)
        return self._publish(withdrawal.message, withdrawal.run, withdrawal)

    def _publish(
        self, message: str, run: Mapping[str, Any], withdrawal: Withdrawal | None = None
    ) -> str:
        publication = Publication(self.url, self.schema, self._repository, message, run, withdrawal)

        def attempt() -> str:
            self._check_folder()
            return publication.attempt()

        return until_landed(self.url, attempt)

    def _check_folder(self) -> None:
        """Raise StoreError where the dataset's place leads to another folder than at the start."""
        if identity(self.url) != self._folder:
            raise StoreError(
                f"{self.url} leads to another folder than when this run began, such as by a link"
                " that was changed; nothing was committed there: restore it, and run again"
            )

    def _design(self) -> dict[str, dict[str, Any]]:
        try:
            store = self._repository.readonly_session(BRANCH).store
            return read_design(zarr.open_group(store, mode="r"))
        except (icechunk.IcechunkError, OSError, ValueError) as error:
            raise StoreError(explain_failure(self.url, error)) from error


def _progress(num_left: int | None) -> dict[str, Any]:
    """Return what a commit tells those who watch: cases on their way, and the flow run."""
    told: dict[str, Any] = {} if num_left is None else {NUM_LEFT: num_left}
    flow_run = fields_here().get("flow_run")
    return {**told, "flow_run": flow_run} if flow_run else told


def is_empty(repository: icechunk.Repository, snapshot_id: str) -> bool:
    """Tell whether its creation was interrupted: a first, empty snapshot and no root group."""
    return next(iter(repository.ancestry(snapshot_id=snapshot_id))).parent_id is None


def _stored_schema(root: zarr.Group, url: str, wanted: Schema) -> Schema:
    """Read the schema of the dataset; InputError if it is of another family."""
    stored = Schema.from_attrs(root.attrs, url)
    if (stored.family, stored.family_revision) != (wanted.family, wanted.family_revision):
        raise InputError(
            f"{url} holds {stored.family} revision {stored.family_revision}, not"
            f" {wanted.family} revision {wanted.family_revision}: choose another store"
        )
    return stored


def _statuses(design: Mapping[str, Mapping[str, Any]]) -> dict[str, Status]:
    return {case: record["status"] for case, record in design.items()}
