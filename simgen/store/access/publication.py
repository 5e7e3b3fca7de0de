"""Publish a version: seal, commit and tag the splits and statistics of all accepted cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import icechunk
import zarr

from simgen.errors import InputError
from simgen.provenance import author, commit_metadata
from simgen.store.access.lock import commit
from simgen.store.access.repository import BRANCH
from simgen.store.access.versions import PUBLICATION, VERSION, Versions, tag
from simgen.store.access.withdrawal import Withdrawal
from simgen.store.format.digest import digest_version
from simgen.store.format.layout import Schema
from simgen.store.format.split import RATIOS, SEED, decide_splits
from simgen.store.format.statistics import combine_training, outlying
from simgen.store.format.tables import (
    append_splits,
    bound_splits,
    read_design,
    read_kept_splits,
    read_moments,
    read_splits,
    replace_splits,
    write_kept_splits,
)
from simgen.store.format.version_seal import DIGEST, SEAL, read_sealed_tables, seal_version

Design = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Publication:
    """The next version of the dataset at `url`."""

    url: str
    schema: Schema
    repository: icechunk.Repository
    message: str
    run: Mapping[str, Any]
    """Parameters that make the version again"""
    withdrawal: Withdrawal | None = None

    def attempt(self) -> str:
        """Commit and tag the version; return its name, or the newest one's where no case is new."""
        session = self.repository.writable_session(BRANCH)
        tip = session.snapshot_id
        versions = Versions(self.repository, self.url)
        newest = versions.newest
        for untagged in versions.untagged():  # by a publication that was cut off
            tag(self.repository, self.url, untagged, versions.read(untagged).snapshot_id)
        published = versions.read(f"v{newest}").snapshot_id if newest else None
        root = zarr.open_group(session.store, mode="r+")
        if self.withdrawal:
            self.withdrawal.apply(root, author())
        elif tip == published:
            return f"v{newest}"
        design = read_design(root)
        if not _accepted(design):
            raise InputError(self._nothing_accepted(design))
        before = root_of(self.repository, published) if published else None
        if before is not None and same_outcomes(read_design(before), design):
            # Commits since then, such as an upgrade of the schema, brought no case.
            return f"v{newest}"
        name = f"v{newest + 1}"
        bound = bound_splits(before) if before is not None else {}
        tag(self.repository, self.url, name, self._commit(name, session, design, bound))
        return name

    def _commit(
        self, name: str, session: icechunk.Session, design: Design, bound: Mapping[str, str]
    ) -> str:
        """Write the tables and seal them; the commit carries digests of them and of itself."""
        root = zarr.open_group(session.store, mode="r+")
        accepted = _accepted(design)
        members = decide_splits(self.schema.splits, design, bound)
        if "train" not in members.values():
            raise InputError(
                f"{self.url}: no training case would be left, whose statistics a version needs;"
                " add more cases first"
            )
        _write_tables(root, self.schema, members, bound)
        metadata = {
            **commit_metadata(),
            "solver_versions": sorted({design[case]["solver_version"] for case in members}),
            PUBLICATION: name,
            VERSION: int(name[1:]),
            "num_cases": len(accepted),
            "run": dict(self.run),
        }
        message = self.message or f"{len(accepted)} cases"
        record = {**metadata, "message": message}
        seal = seal_version(root, read_sealed_tables(root), record)
        digest = digest_version(
            self.schema.to_json(),
            design,
            members,
            cast(dict[str, Any], root["statistics"].attrs["fields"]),
            {**record, SEAL: seal},
        )
        sealed = {**metadata, SEAL: seal, DIGEST: digest}
        return commit(self.repository, self.url, session, message, sealed)

    def _nothing_accepted(self, design: Design) -> str:
        if not design:
            return f"{self.url}: there is no case to publish; generate some first"
        case, record = next(iter(design.items()))
        return (
            f"{self.url}: none of {len(design)} cases was accepted, so there is no version to"
            f" publish; {case} was {record['status']}: {record['reason']}"
        )


def _accepted(design: Design) -> list[str]:
    return [case for case, record in design.items() if record["status"] == "accepted"]


def _write_tables(
    root: zarr.Group, schema: Schema, members: Mapping[str, str], bound: Mapping[str, str]
) -> None:
    """Write splits and the training statistics."""
    current = read_splits(root)
    if current.keys() <= members.keys():
        append_splits(
            root, {case: split for case, split in members.items() if current.get(case) != split}
        )
    else:  # cases were withdrawn, and the table has no word for that
        replace_splits(root, members)
    kept = {case: split for case, split in bound.items() if case not in members}
    if kept != read_kept_splits(root):
        write_kept_splits(root, kept)
    # The time makes the commit differ from the one before it, where Icechunk would reject it as
    # empty.
    drawn = {"seed": SEED, "ratios": RATIOS} if schema.splits == "drawn" else {}
    root["splits"].attrs.update({**drawn, "dealt_at": datetime.now(UTC).isoformat()})
    moments_of = read_moments(root)
    training = {case: moments_of[case] for case, split in members.items() if split == "train"}
    others = {case: moments_of[case] for case in members if case not in training}
    left_out = outlying(training, others)
    root["statistics"].attrs["fields"] = {
        name: combine_training({case: record[name] for case, record in training.items()}, left_out)
        for name in next(iter(training.values()))
    }


def complete_version(repository: icechunk.Repository, url: str, design: Design) -> str | None:
    """Return the newest version if it is published to its end and holds all of `design`."""
    versions = Versions(repository, url)
    if not versions.newest or versions.lost_tip or versions.untagged():
        return None  # a writer mends that
    name = versions.choose(None)
    published = read_design(root_of(repository, versions.read(name).snapshot_id))
    return name if same_outcomes(published, design) else None


def same_outcomes(one: Design, other: Design) -> bool:
    """Tell whether two designs have the same cases, each with the same end and the same content.

    A version of the one is then a version of the other.
    """
    return _outcomes(one) == _outcomes(other)


def root_of(repository: icechunk.Repository, snapshot_id: str) -> zarr.Group:
    """Open the root group of a snapshot to read it."""
    session = repository.readonly_session(snapshot_id=snapshot_id)
    return zarr.open_group(session.store, mode="r")


def _outcomes(design: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    return {
        case: (
            record["status"],
            record["reason"],
            # A case that was withdrawn and solved again differs by its content alone.
            record.get("digest", "") if record["status"] == "accepted" else "",
        )
        for case, record in design.items()
    }
