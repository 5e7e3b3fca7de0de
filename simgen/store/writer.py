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
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

import icechunk
import numpy as np
import zarr

from simgen.case import CaseResult, Status
from simgen.errors import InputError, StoreError
from simgen.point_cloud import PointCloud
from simgen.provenance import generator_version, source_revision
from simgen.store.layout import Schema, write_cloud
from simgen.store.repository import BRANCH, explain, open_repository
from simgen.store.split import RATIOS, SEED, assign_splits
from simgen.store.statistics import combine, moments
from simgen.store.versions import list_versions


class CaseFork:
    """One worker's way to write cases; picklable both ways. Give it back to `DatasetWriter.commit`."""

    def __init__(self, url: str, schema: Schema, session: icechunk.ForkSession) -> None:
        self.url, self.schema = url, schema
        self.session = session
        self.records: dict[str, dict[str, Any]] = {}

    def write(self, result: CaseResult, cloud: PointCloud | None) -> None:
        """Write one case: an accepted one with its point cloud, any other with its record alone."""
        if (cloud is not None) != (result.status == "accepted"):
            raise InputError(
                f"case {result.id} is {result.status}: a point cloud belongs to accepted cases and only to them"
            )
        if cloud is not None:
            self.schema.check(cloud)
        try:
            cases = zarr.open_group(self.session.store, path="cases", mode="r+")
            if result.id in cases:  # a failed or rejected case that was tried again
                del cases[result.id]
            group = cases.create_group(result.id, attributes=_case_attrs(result))
            digest = write_cloud(group, cloud, self.schema) if cloud is not None else None
        except (icechunk.IcechunkError, OSError) as error:
            raise StoreError(explain(self.url, str(error))) from error
        self.records[result.id] = _design_record(result, cloud, digest)


class DatasetWriter:
    """The one committer of a dataset."""

    def __init__(self, url: str, schema: Schema, repository: icechunk.Repository) -> None:
        self.url, self.schema = url, schema
        self._repository = repository

    @classmethod
    def open(cls, url: str, schema: Schema) -> DatasetWriter:
        """Open the dataset at `url`, or create it; InputError where another family lives there."""
        repository = open_repository(url, create=True)
        try:
            return cls._opened(url, schema, repository)
        except (icechunk.IcechunkError, OSError) as error:
            raise StoreError(explain(url, str(error))) from error

    @classmethod
    def _opened(cls, url: str, schema: Schema, repository: icechunk.Repository) -> DatasetWriter:
        session = repository.readonly_session(BRANCH)
        # A repository whose creation was cut off has a first, empty snapshot and no root group.
        if next(iter(repository.ancestry(branch=BRANCH))).parent_id is None:
            session = repository.writable_session(BRANCH)
            root = zarr.create_group(session.store, attributes=schema.to_attrs())
            for name in ("cases", "splits", "statistics"):
                root.create_group(name)
            root.create_group("design", attributes={"cases": {}})
            session.commit("dataset created", metadata=_commit_metadata())
            return cls(url, schema, repository)
        stored = Schema.from_attrs(zarr.open_group(session.store, mode="r").attrs, url)
        if (stored.family, stored.family_revision) != (schema.family, schema.family_revision):
            raise InputError(
                f"{url} holds {stored.family} revision {stored.family_revision}, not {schema.family} "
                f"revision {schema.family_revision}: choose another store"
            )
        return cls(url, stored, repository)

    def known(self) -> dict[str, Status]:
        """Every case on record, published or not."""
        return {case: record["status"] for case, record in self._design().items()}

    def fork(self) -> CaseFork:
        """A fork for one worker."""
        return CaseFork(self.url, self.schema, self._repository.writable_session(BRANCH).fork())

    def commit(self, forks: Sequence[CaseFork]) -> None:
        """Make the forks' cases durable. A case that is already accepted stays as it is; its second copy is dropped."""
        design = self._design()
        fresh = [
            fork
            for fork in forks
            if fork.records and not any(design.get(case, {}).get("status") == "accepted" for case in fork.records)
        ]
        if not fresh:
            return
        for fork in fresh:
            design.update(fork.records)
        names = [case for fork in fresh for case in fork.records]
        message = f"case {names[0]}" if len(names) == 1 else f"{len(names)} cases"
        try:
            session = self._repository.writable_session(BRANCH)
            session.merge(*(fork.session for fork in fresh))
            zarr.open_group(session.store, path="design", mode="r+").attrs["cases"] = design
            session.commit(message, metadata=_commit_metadata())
        except (icechunk.IcechunkError, OSError) as error:
            raise StoreError(self._conflict(error)) from error

    def publish(self, message: str = "", run: Mapping[str, Any] | None = None) -> str:
        """Make a version of all cases on record; with none new since the newest version, that version's name.

        `run` holds the parameters that make the version again. Raises InputError where no case is accepted.
        """
        versions = list_versions(self._repository, self.url)
        tip = self._repository.lookup_branch(BRANCH)
        if versions and versions[-1].snapshot_id == tip:
            return versions[-1].name
        design = self._design()
        accepted = [case for case, record in design.items() if record["status"] == "accepted"]
        if not accepted:
            raise InputError(self._nothing_accepted(design))
        name = f"v{len(versions) + 1}"
        head = next(iter(self._repository.ancestry(branch=BRANCH)))
        if head.metadata.get("publication") != name:  # else: cut off between the commit and its tag
            tip = self._commit_publication(name, message, run or {}, design, accepted)
        try:
            self._repository.create_tag(name, snapshot_id=tip)
        except icechunk.IcechunkError as error:
            raise StoreError(
                f"{self.url}: version {name} was published by somebody else meanwhile; run again"
            ) from error
        return name

    def _commit_publication(
        self, name: str, message: str, run: Mapping[str, Any], design: dict[str, dict[str, Any]], accepted: list[str]
    ) -> str:
        try:
            session = self._repository.writable_session(BRANCH)
            root = zarr.open_group(session.store, mode="r+")
            members = assign_splits(accepted, dict(root["splits"].attrs.get("members", {})))
            root["splits"].attrs.update({"members": members, "seed": SEED, "ratios": RATIOS})
            training = [design[case]["moments"] for case in accepted if members[case] == "train"]
            fields = {field: combine(record[field] for record in training).to_record() for field in training[0]}
            root["statistics"].attrs["fields"] = fields
            metadata = {
                **_commit_metadata(),
                "publication": name,
                "num_cases": len(accepted),
                "run": dict(run),
                "solver_versions": sorted({design[case]["solver_version"] for case in accepted}),
            }
            return str(session.commit(message or f"{len(accepted)} cases", metadata=metadata))
        except (icechunk.IcechunkError, OSError) as error:
            raise StoreError(self._conflict(error)) from error

    def _design(self) -> dict[str, dict[str, Any]]:
        try:
            store = self._repository.readonly_session(BRANCH).store
            return dict(cast(dict[str, Any], zarr.open_group(store, path="design", mode="r").attrs["cases"]))
        except (icechunk.IcechunkError, OSError) as error:
            raise StoreError(explain(self.url, str(error))) from error

    def _conflict(self, error: Exception) -> str:
        if isinstance(error, icechunk.ConflictError):
            return f"{self.url}: another writer committed at the same time; run again, what was committed stays"
        return explain(self.url, str(error))

    def _nothing_accepted(self, design: Mapping[str, Mapping[str, Any]]) -> str:
        if not design:
            return f"{self.url}: there is no case to publish; generate some first"
        case, record = next(iter(design.items()))
        return (
            f"{self.url}: none of {len(design)} cases was accepted, so there is no version to publish; "
            f"{case} was {record['status']}: {record['reason']}"
        )


def _commit_metadata() -> dict[str, Any]:
    try:
        author = getpass.getuser()
    except (KeyError, OSError):
        author = "unknown"  # a container's user without an entry in the password database
    return {"author": author, "generator_version": generator_version(), "source_revision": source_revision()}


def _case_attrs(result: CaseResult) -> dict[str, Any]:
    return _json_ready(
        {
            "parameters": dict(result.point.parameters),
            "settings": dict(result.point.settings),
            "family_revision": result.point.family_revision,
            "status": result.status,
            "reason": result.reason,
            "gates": [asdict(gate) for gate in result.gates],
            "log_tail": result.log_tail,
            "provenance": dict(result.provenance),
        }
    )


def _design_record(result: CaseResult, cloud: PointCloud | None, digest: str | None) -> dict[str, Any]:
    """The case's row of the design table, with its digest and the moments that training statistics are combined from."""
    record: dict[str, Any] = {
        "parameters": dict(result.point.parameters),
        "settings": dict(result.point.settings),
        "status": result.status,
        "reason": result.reason,
        "wall_time_s": float(sum(result.provenance.get("wall_time_s", {}).values())),
        "solver_version": result.provenance.get("solver_version", "unknown"),
    }
    if cloud is not None:
        record["digest"] = digest
        record["num_points"] = cloud.num_points
        record["num_snapshots"] = cloud.num_snapshots
        record["num_bytes"] = int(sum(np.asarray(values).nbytes for values in cloud.fields.values()))
        record["moments"] = {
            "points": moments(cloud.points).to_record(),
            **{name: moments(values).to_record() for name, values in cloud.fields.items()},
        }
    return _json_ready(record)


def _json_ready(record: dict[str, Any]) -> dict[str, Any]:
    """Plain JSON: NaN and infinite figures as words, which JSON has no numbers for."""

    def clean(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [clean(item) for item in value]
        if isinstance(value, float | np.floating):
            return float(value) if np.isfinite(value) else str(float(value))
        return value.item() if isinstance(value, np.generic) else value

    cleaned: dict[str, Any] = json.loads(json.dumps(clean(record)))
    return cleaned
