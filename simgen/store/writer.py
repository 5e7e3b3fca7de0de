"""Writing a dataset: many workers write cases, one committer makes them durable, a publication makes a version.

Notable properties:
- A worker gets a `CaseFork`, a small picklable copy of a session. It writes its case's chunks straight to the store and sends
  the fork back; no array passes through the committer.
- Each commit moves the branch at once, so a run that is killed loses the cases in flight and no other. Forks may be older than
  the branch's tip: they write disjoint groups, and merging one into a newer session adds just these.
- A version is a tag on the commit that publishes it, and never changes. Readers see tags only: what has been committed
  since is invisible to them until it is published.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import icechunk
import zarr

from simgen.case import Status
from simgen.errors import InputError, StoreError
from simgen.provenance import generator_version, source_revision
from simgen.store.damage import describe_damage
from simgen.store.digest import digest_version
from simgen.store.fork import CaseFork
from simgen.store.layout import SCHEMA_VERSION, Schema
from simgen.store.lock import committing
from simgen.store.repository import BRANCH, explain, open_repository
from simgen.store.split import RATIOS, SEED, assign_splits
from simgen.store.statistics import combine
from simgen.store.tables import (
    append_cases,
    append_splits,
    bound_splits,
    create_tables,
    read_design,
    read_kept_splits,
    read_moments,
    read_splits,
    replace_splits,
    upgrade,
    write_kept_splits,
)
from simgen.store.version_seal import DIGEST, SEAL, read_sealed_tables, seal_version
from simgen.store.versions import References, add_copies, choose_version, read_references
from simgen.store.withdrawal import Withdrawal

#: Before each attempt at a commit that other writers may get in the way of; one takes some tens of milliseconds.
RETRY_PAUSES_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
T = TypeVar("T")


class DatasetWriter:
    """The one committer of a dataset."""

    def __init__(self, url: str, schema: Schema, repository: icechunk.Repository) -> None:
        self.url, self.schema = url, schema
        self._repository = repository

    @classmethod
    def open(cls, url: str, schema: Schema) -> DatasetWriter:
        """Open the dataset at `url`, or create it; InputError where another family lives there."""
        return _until_landed(url, lambda: cls._opened(url, schema, open_repository(url, create=True)))

    @classmethod
    def _opened(cls, url: str, schema: Schema, repository: icechunk.Repository) -> DatasetWriter:
        # Each question is put to the session's own snapshot: on S3 another writer may move the branch in between.
        session = repository.writable_session(BRANCH)
        # A repository whose creation was cut off has a first, empty snapshot and no root group.
        if next(iter(repository.ancestry(snapshot_id=session.snapshot_id))).parent_id is None:
            root = zarr.create_group(session.store, attributes=schema.to_attrs())
            create_tables(root)
            session.commit("dataset created", metadata=_commit_metadata())
            return cls(url, schema, repository)
        attrs = zarr.open_group(session.store, mode="r").attrs
        stored, schema_version = Schema.from_attrs(attrs, url), int(cast(int, attrs["schema_version"]))
        if (stored.family, stored.family_revision) != (schema.family, schema.family_revision):
            raise InputError(
                f"{url} holds {stored.family} revision {stored.family_revision}, not {schema.family} "
                f"revision {schema.family_revision}: choose another store"
            )
        if schema_version < SCHEMA_VERSION:
            root = zarr.open_group(session.store, mode="r+")
            upgrade(root)
            root.attrs["schema_version"] = SCHEMA_VERSION
            session.commit(f"upgraded to schema version {SCHEMA_VERSION}", metadata=_commit_metadata())
        return cls(url, stored, repository)

    def known(self) -> dict[str, Status]:
        """Every case on record, published or not."""
        return {case: record["status"] for case, record in self._design().items()}

    def fork(self) -> CaseFork:
        """A fork for one worker."""
        retried = {
            case: record.get("provenance_at")
            for case, record in self._design().items()
            if record["status"] != "accepted"
        }
        return CaseFork(self.url, self.schema, self._repository.writable_session(BRANCH).fork(), retried)

    def commit(self, forks: Sequence[CaseFork]) -> None:
        """Make the forks' cases durable. A case that is already accepted stays as it is; its second copy is dropped.

        Waits its turn where another writer is committing; StoreError where the store cannot be written.
        """
        _until_landed(self.url, lambda: self._commit_once(forks))

    def _commit_once(self, forks: Sequence[CaseFork]) -> None:
        # What is on record is read through the session that commits: whoever gets in between makes this commit fail.
        session = self._repository.writable_session(BRANCH)
        root = zarr.open_group(session.store, mode="r+")
        design = read_design(root)
        accepted = {case for case, record in design.items() if record["status"] == "accepted"}
        fresh: list[CaseFork] = []
        for fork in forks:
            fork.check_age()
            if fork.records and accepted.isdisjoint(fork.records):
                fresh.append(fork)
                accepted.update(fork.records)
        if not fresh:
            return
        records = {case: record for fork in fresh for case, record in fork.records.items()}
        names = list(records)
        message = f"case {names[0]}" if len(names) == 1 else f"{len(names)} cases"
        for case in design.keys() & records.keys():
            # Perhaps since the fork was made: what two writers wrote under one name would mix.
            del root[f"cases/{case}"]
        session.merge(*(fork.session for fork in fresh))
        append_cases(root, records)
        session.commit(message, metadata=_commit_metadata())

    def publish(self, message: str = "", run: Mapping[str, Any] | None = None) -> str:
        """Make a version of all cases on record; with none new since the newest version, that version's name.

        `run` holds the parameters that make the version again. Raises InputError where no case is accepted.
        """
        return _until_landed(self.url, lambda: self._publish_once(message, run or {}))

    def withdraw(self, cases: Sequence[str], reason: str) -> str:
        """Make a version without these accepted cases, which keep their records with `reason`; its name.

        Older versions stay as they are, and so do the splits of all other cases. Raises InputError for
        a case that is unknown or not accepted, for an empty reason, and where no training case is left.
        """
        withdrawal = Withdrawal(self.url, cases, reason)
        return _until_landed(self.url, lambda: self._publish_once(withdrawal.message, withdrawal.run, withdrawal))

    def _publish_once(self, message: str, run: Mapping[str, Any], withdrawal: Withdrawal | None = None) -> str:
        session = self._repository.writable_session(BRANCH)
        tip = session.snapshot_id
        references = read_references(self._repository, self.url)
        newest = references.newest
        published = self._published(references) if newest else None
        root = zarr.open_group(session.store, mode="r+")
        if withdrawal:
            withdrawal.apply(root, _author())
        elif tip == published:
            return f"v{newest}"
        design = read_design(root)
        accepted = [case for case, record in design.items() if record["status"] == "accepted"]
        if not accepted:
            raise InputError(self._nothing_accepted(design))
        before = self._root(published) if published else None
        if before is not None and _outcomes(read_design(before)) == _outcomes(design):
            return f"v{newest}"  # what was committed since, such as an upgrade of the schema, brought no case
        name = f"v{newest + 1}"
        head = next(iter(self._repository.ancestry(snapshot_id=tip)))
        if withdrawal or head.metadata.get("publication") != name:  # else: cut off between the commit and its tag
            # What an unfinished publication has dealt out was never published: the newest version alone binds the next.
            bound = bound_splits(before) if before is not None else {}
            members = assign_splits(accepted, bound)
            if "train" not in members.values():
                raise InputError(
                    f"{self.url}: no training case would be left, whose statistics a version needs; generate more designs first"
                )
            metadata = _write_publication(root, design, members, bound)
            metadata |= {**_commit_metadata(), "publication": name, "num_cases": len(accepted), "run": dict(run)}
            tip = self._commit_publication(
                session, root, design, members, message or f"{len(accepted)} cases", metadata
            )
        self._tag(name, tip)
        return name

    def _commit_publication(
        self,
        session: icechunk.Session,
        root: zarr.Group,
        design: dict[str, dict[str, Any]],
        members: Mapping[str, str],
        message: str,
        metadata: Mapping[str, Any],
    ) -> str:
        """Seal the version with digests of all that stands in its tables and in the commit itself."""
        statistics = cast(dict[str, Any], root["statistics"].attrs["fields"])
        commit = {**metadata, "message": message}
        seal = seal_version(root, read_sealed_tables(root), commit)
        digest = digest_version(self.schema.to_attrs()["schema"], design, members, statistics, {**commit, SEAL: seal})
        return str(session.commit(message, metadata={**metadata, SEAL: seal, DIGEST: digest}))

    def _published(self, references: References) -> str:
        """The snapshot of the newest version; its second reference is made where its publication was cut off before that."""
        name = choose_version(references, self.url, None)
        add_copies(self._repository, self.url)
        return str(self._repository.lookup_tag(name))

    def _tag(self, name: str, snapshot_id: str) -> None:
        try:
            self._repository.create_tag(name, snapshot_id=snapshot_id)
        except icechunk.IcechunkError:
            if name not in self._repository.list_tags():
                raise
            if self._repository.lookup_tag(name) != snapshot_id:
                raise _TakenError from None
        add_copies(self._repository, self.url)

    def _root(self, snapshot_id: str) -> zarr.Group:
        return zarr.open_group(self._repository.readonly_session(snapshot_id=snapshot_id).store, mode="r")

    def _design(self) -> dict[str, dict[str, Any]]:
        try:
            store = self._repository.readonly_session(BRANCH).store
            return read_design(zarr.open_group(store, mode="r"))
        except (icechunk.IcechunkError, OSError, ValueError) as error:
            raise StoreError(_failure(self.url, error)) from error

    def _nothing_accepted(self, design: Mapping[str, Mapping[str, Any]]) -> str:
        if not design:
            return f"{self.url}: there is no case to publish; generate some first"
        case, record = next(iter(design.items()))
        return (
            f"{self.url}: none of {len(design)} cases was accepted, so there is no version to publish; "
            f"{case} was {record['status']}: {record['reason']}"
        )


def _write_publication(
    root: zarr.Group, design: Mapping[str, Mapping[str, Any]], members: Mapping[str, str], bound: Mapping[str, str]
) -> dict[str, Any]:
    """Splits and training statistics into the tables; what the commit says of the solver."""
    current = read_splits(root)
    if current.keys() <= members.keys():
        append_splits(root, {case: split for case, split in members.items() if current.get(case) != split})
    else:  # cases were withdrawn, and the table has no word for that
        replace_splits(root, members)
    kept = {case: split for case, split in bound.items() if case not in members}
    if kept != read_kept_splits(root):
        write_kept_splits(root, kept)
    # The time makes the commit differ from one that was cut off before its tag, which Icechunk would refuse as empty.
    root["splits"].attrs.update({"seed": SEED, "ratios": RATIOS, "dealt_at": datetime.now(UTC).isoformat()})
    moments_of = read_moments(root)
    training = [moments_of[case] for case, split in members.items() if split == "train"]
    fields = {field: combine(record[field] for record in training).to_record() for field in training[0]}
    root["statistics"].attrs["fields"] = fields
    return {"solver_versions": sorted({design[case]["solver_version"] for case in members})}


def _outcomes(design: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    return {case: (record["status"], record["reason"]) for case, record in design.items()}


class _TakenError(Exception):
    """Another writer has published under the name meanwhile."""


def _until_landed(url: str, attempt: Callable[[], T]) -> T:
    """Run `attempt`, from its first look at the store to its commit, again while other writers get in between."""
    for pause in RETRY_PAUSES_S:
        time.sleep(pause)
        with committing(url):
            try:
                return attempt()
            except (icechunk.ConflictError, _TakenError):
                continue
            except (icechunk.IcechunkError, OSError, ValueError) as error:
                raise StoreError(_failure(url, error)) from error
    raise StoreError(f"{url}: other writers kept committing at the same time; run again, what was committed stays")


def _failure(url: str, error: Exception) -> str:
    what = describe_damage(error)
    if what is None:
        return explain(url, str(error))
    return f"{url}: its newest state is damaged ({what}); restore the store from a copy, or look with: courant dataset verify {url}"


def _commit_metadata() -> dict[str, Any]:
    return {"author": _author(), "generator_version": generator_version(), "source_revision": source_revision()}


def _author() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container's user without an entry in the password database
