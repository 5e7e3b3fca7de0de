"""Write a dataset: many workers write cases, one committer commits and publishes them.

- A worker gets a `CaseFork`, a small picklable copy of a session. It writes its case's chunks
  straight to the store and sends the fork back; no array passes through the committer.
- Each commit moves the branch at once, so a killed run loses only the cases in progress. Forks may
  be older than the branch's tip: merging one into a newer session adds its groups.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import icechunk
import numpy as np
import zarr
from zarr.abc.buffer import Buffer
from zarr.abc.store import Store
from zarr.codecs import Crc32cCodec
from zarr.storage import WrapperStore

import simgen.store.schema as layout
from simgen.case import CaseResult
from simgen.errors import InputError, StoreError
from simgen.log_lines import about
from simgen.moments import moments
from simgen.point_cloud import PointCloud
from simgen.provenance import author, commit_metadata, core_seconds
from simgen.store import split, versions
from simgen.store.schema import CaseArray, CaseTable, Record, Schema
from simgen.store.versions import BRANCH, Versions, commit, translated

logger = logging.getLogger(__name__)

#: How often to look for a case that another writer is about to commit.
POLL_S = 0.5
#: Arrays of a case that are compressed and written at once.
THREADS = 4
#: Columns of a design row that a withdrawn case keeps.
_KEPT: tuple[str, ...] = ("parameters", "settings", "wall_time_s", "solver_version")
_KEPT += (layout.CORE_S, layout.IMPORTED, split.PUBLISHED)


@dataclass(frozen=True)
class CaseRecord:
    """What is written of a case besides its arrays."""

    design: Record  # Its row of the design table
    details: Record
    """gates, log_tail, provenance; the digests of its arrays, the checksums of its objects"""
    moments: Record  # By field, and of the points; empty where the case was not accepted


class CaseFork:
    """One worker's way to write cases, for `DatasetWriter.commit`; picklable both ways.

    It starts from the newest commit at its first case: an older one may be collected meanwhile.
    """

    def __init__(self, url: str, schema: Schema, retried: Mapping[str, Any]) -> None:
        self.url, self.schema = url, schema
        self._retried = retried
        """Cases on record that may be solved again, with the place of their line at that time"""
        self.records: dict[str, CaseRecord] = {}
        self.session: icechunk.ForkSession | None = None
        self._began_at = 0.0

    def check_age(self) -> None:
        """Raise StoreError where what was written may have been collected as garbage since."""
        limit_s = versions.FORK_LIFETIME.total_seconds()
        if self.records and time.time() - self._began_at > limit_s:
            raise StoreError(
                f"{self.url}: {', '.join(self.records)} was written more than {limit_s / 3600:g}"
                " hours ago and not committed, and may have been deleted as garbage; run again"
            )

    def write(self, result: CaseResult, cloud: PointCloud | None) -> None:
        """Write one case; InputError for a cloud or a split that the dataset cannot take."""
        if cloud is not None:
            self.schema.check(cloud)
            wanted = split.SPLITS if self.schema.splits == "published" else (None, *split.SPLITS)
            if result.split not in wanted:
                expected = " or ".join(map(str, wanted))
                raise InputError(f"case {result.id} has split {result.split}, expected {expected}")
        arrays = [] if cloud is None else layout.arrays_of(cloud, self.schema)
        attributes, details = records_of(result)
        with translated(self.url):
            if self.session is None:
                self.session = versions.open_repository(self.url).writable_session(BRANCH).fork()
                self._began_at = time.time()
            objects = _write_group(self.session.store, result.id, attributes, arrays)
        num_bytes = sum(size for _, size in objects.values())
        logger.info("wrote %d bytes of %d arrays", num_bytes, len(arrays))
        provenance = result.provenance
        details["arrays"] = digests = {array.name: array.digest for array in arrays}
        details["objects"] = {key: checksum for key, (checksum, _) in objects.items()}
        design: Record = {
            **{name: attributes[name] for name in ("parameters", "settings", "status", "reason")},
            "wall_time_s": float(sum(provenance.get("wall_time_s", {}).values())),
            layout.CORE_S: core_seconds(provenance, ("solve",)) or 0.0,
            "solver_version": provenance.get("solver_version", "unknown"),
            "digest": case_digest(result, digests),
        }
        if result.split is not None:
            design[split.PUBLISHED] = result.split
        if layout.IMPORTED in provenance:
            design[layout.IMPORTED] = provenance[layout.IMPORTED]
        moments_of: Record = {}
        if cloud is not None:
            if cloud.grid_shape is not None:
                design["grid_shape"] = list(cloud.grid_shape)
            design["num_points"] = cloud.num_points
            design["num_snapshots"] = cloud.num_snapshots
            design["num_bytes"] = sum(np.asarray(each).nbytes for each in cloud.fields.values())
            design["num_bytes_stored"] = num_bytes
            figures = provenance.get("figures", {})
            if names := [each.name for each in self.schema.quantities]:
                design["quantities"] = {name: figures[name] for name in names if name in figures}
            moments_of["points"] = moments(cloud.points).to_record()
            for name, values in cloud.fields.items():
                moments_of[name] = split.settled(values, cloud.time, self.schema.startup_s)
        self.records[result.id] = CaseRecord(json_ready(design), details, json_ready(moments_of))

    def recorded_since(self, case: str, within_s: float = 0.0) -> Record | None:
        """Return the design row of a case that another writer commits `within_s`; else None."""
        deadline = time.monotonic() + within_s
        while True:
            with translated(self.url):
                store = versions.open_repository(self.url).readonly_session(BRANCH).store
                root = zarr.open_group(store, mode="r")
                # Reading the whole table takes the longer, the more cases there are.
                row = layout.read_design(root).get(case) if f"cases/{case}" in root else None
            is_new = row is not None and self._retried.get(case) != row["at"]
            if is_new or time.monotonic() >= deadline:
                return row if is_new else None
            time.sleep(POLL_S)


class _NotingStore(WrapperStore[Store]):
    """Note the checksum and the size of every object that is written through this store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.objects: dict[str, tuple[str, int]] = {}

    async def set(self, key: str, value: Buffer) -> None:
        await super().set(key, value)
        self.objects[key] = layout.object_checksum(key, value), len(value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self._store.exists(key):
            await self.set(key, value)


def _write_group(
    store: Store, case: str, attributes: Record, arrays: Sequence[CaseArray]
) -> dict[str, tuple[str, int]]:
    """Write a case's group; return the checksum and size of each object by key within it."""
    noting = _NotingStore(store)
    cases = zarr.open_group(noting, path="cases", mode="r+")
    group = cases.create_group(case, attributes=attributes, overwrite=True)
    if any(array.name.startswith("boundary/") for array in arrays):
        group.create_group("boundary")

    def write(array: CaseArray) -> None:
        group.create_array(
            array.name,
            data=np.ascontiguousarray(array.values),
            chunks=array.chunks,
            # The checksum comes last: it covers the bytes as stored, and each read checks it.
            compressors=[layout.COMPRESSOR, Crc32cCodec()],
            attributes=array.attributes,
            dimension_names=array.dimensions,
            # A chunk of zeros is written like any other, so that a missing chunk is a lost one.
            config={"write_empty_chunks": True},
        )

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(write, arrays))
    prefix = f"cases/{case}/"
    return {key.removeprefix(prefix): noted for key, noted in noting.objects.items()}


def records_of(result: CaseResult) -> tuple[Record, Record]:
    """Return a case's attributes, and its details: gates, log_tail and provenance."""
    attributes = {
        "parameters": dict(result.point.parameters),
        "settings": dict(result.point.settings),
        "family_revision": result.point.family_revision,
        "status": result.status,
        "reason": result.reason,
    }
    details = {
        "gates": [asdict(gate) for gate in result.gates],
        "log_tail": result.log_tail,
        "provenance": dict(result.provenance),
    }
    return json_ready(attributes), json_ready(details)


def case_digest(result: CaseResult, arrays: Mapping[str, str]) -> str:
    """Compute the digest of a case from its result and the digests of its arrays."""
    attributes, details = records_of(result)
    return layout.digest_case({**attributes, **details}, arrays)


def json_ready(record: Record) -> Record:
    """Convert to plain JSON, which has no numbers for NaN and infinities: they become words."""
    text = json.dumps(record, default=lambda of: of.item())  # numpy's numbers
    return json.loads(text, parse_constant=lambda of: str(float(of)))


def append_cases(root: zarr.Group, records: Mapping[str, CaseRecord]) -> None:
    """Put cases on record, in place of what an earlier attempt left."""
    details = [{"case": case, **record.details} for case, record in records.items()]
    places = CaseTable(root, "details").append(details)
    CaseTable(root, "design").append(
        {"case": case, **record.design, "at": place}
        for (case, record), place in zip(records.items(), places, strict=True)
    )
    CaseTable(root, "statistics").append(
        {"case": case, "moments": record.moments}
        for case, record in records.items()
        if record.moments
    )


class DatasetWriter:
    """The one committer of a dataset."""

    def __init__(self, url: str, schema: Schema, repository: icechunk.Repository) -> None:
        self.url, self.schema = url, schema
        self._repository = repository

    @classmethod
    def open(cls, url: str, schema: Schema) -> DatasetWriter:
        """Open the dataset at `url`, or create it; InputError if it belongs to another family."""

        def attempt() -> DatasetWriter:
            repository = versions.open_repository(url, create=True)
            versions.tag_versions(repository, url)
            # From one session's snapshot: on S3 another writer may move the branch in between.
            session = repository.writable_session(BRANCH)
            if versions.is_empty(repository, session.snapshot_id):
                root = zarr.create_group(session.store, attributes=schema.to_attrs())
                layout.create_tables(root)
                commit(repository, url, session, "dataset created", commit_metadata())
                return cls(url, schema, repository)
            stored = Schema.from_attrs(zarr.open_group(session.store, mode="r").attrs, url)
            stored.check_family(schema, url)
            return cls(url, stored, repository)

        return versions.retry_commit(url, attempt)

    def design(self) -> dict[str, Record]:
        """Return the row of every case on record, published or not."""
        with translated(self.url, "its newest state"):
            store = self._repository.readonly_session(BRANCH).store
            return layout.read_design(zarr.open_group(store, mode="r"))

    def fork(self) -> CaseFork:
        rows = self.design().items()
        retried = {case: row["at"] for case, row in rows if row["status"] != "accepted"}
        return CaseFork(self.url, self.schema, retried)

    def commit(self, forks: Sequence[CaseFork], num_left: int | None = None) -> None:
        """Make the forks' cases durable; the commit records how many are left.

        A case that is already accepted stays as it is; its second copy is dropped. StoreError where
        the store cannot be written, or where of a fork's cases only some are accepted already.
        """
        for case in versions.retry_commit(self.url, lambda: self._commit_once(forks, num_left)):
            with about(dataset=self.url, case=case):
                logger.info("committed")

    def _commit_once(self, forks: Sequence[CaseFork], num_left: int | None) -> list[str]:
        """Commit, and return the cases that are new."""
        # Read through the session that commits: a writer that interferes makes the commit fail.
        session = self._repository.writable_session(BRANCH)
        root = zarr.open_group(session.store, mode="r+")
        design = layout.read_design(root)
        accepted = {case for case, row in design.items() if row["status"] == "accepted"}
        records: dict[str, CaseRecord] = {}
        sessions = []
        for fork in forks:
            fork.check_age()
            there = fork.records.keys() & accepted
            if there and len(there) < len(fork.records):
                others = f"{len(fork.records) - len(there)} new ones were written together with it"
                raise StoreError(
                    f"{self.url}: case {min(there)} was accepted meanwhile, and {others}; run again"
                )
            if fork.session is not None and not there:
                sessions.append(fork.session)
                records |= fork.records
                accepted.update(fork.records)
        if not records:
            return []
        former = [case for case in records if case in design and f"cases/{case}" in root]
        if former:
            # Another writer may have committed one since the fork was made, and two writers' data
            # under one name would mix. A session cannot merge what it has deleted itself.
            for case in former:
                del root[f"cases/{case}"]
            removed = f"former attempts at {', '.join(former)} removed"
            commit(self._repository, self.url, session, removed, commit_metadata())
            session = self._repository.writable_session(BRANCH)
            root = zarr.open_group(session.store, mode="r+")
        session.merge(*sessions)
        append_cases(root, records)
        names, metadata = list(records), commit_metadata()
        if num_left is not None:
            metadata[versions.NUM_LEFT] = num_left
        message = f"case {names[0]}" if len(names) == 1 else f"{len(names)} cases"
        commit(self._repository, self.url, session, message, metadata)
        return names

    def publish(self, message: str = "", run: Mapping[str, Any] | None = None) -> str:
        """Publish a version of all cases on record; return its name; if none is new, the newest.

        `run` holds the parameters that make it again. InputError where no case is accepted.
        """
        return versions.retry_commit(self.url, lambda: self._publish_once(message, run or {}))

    def withdraw(self, cases: Sequence[str], reason: str) -> str:
        """Publish a version without these accepted cases; return its name.

        They keep their records, with `reason`, and their splits, should their designs be solved
        again. InputError for a case that is unknown or not accepted, for an empty reason, and where
        no training case is left.
        """
        if not cases or not reason.strip():
            raise InputError("a withdrawal needs a case, and a reason, which stays on its record")
        message = f"withdrawn: {', '.join(cases)}: {reason}"
        run = {"withdrawn": list(cases), "reason": reason}
        return versions.retry_commit(self.url, lambda: self._publish_once(message, run, cases))

    def _publish_once(
        self, message: str, run: Mapping[str, Any], withdrawn: Sequence[str] = ()
    ) -> str:
        """Commit and tag the version; return its name, or the newest one's where no case is new."""
        session = self._repository.writable_session(BRANCH)
        published = Versions(self._repository, self.url)
        newest = published.newest
        root = zarr.open_group(session.store, mode="r+")
        if withdrawn:
            self._withdraw(root, withdrawn, run["reason"])
        design = layout.read_design(root)
        accepted = [case for case, row in design.items() if row["status"] == "accepted"]
        if not accepted:
            ends = (f"{case} was {row['status']}: {row['reason']}" for case, row in design.items())
            raise InputError(
                f"{self.url}: none of {len(design)} cases was accepted, so there is no version to"
                f" publish; {next(ends, 'generate some first')}"
            )
        before = published.root(f"v{newest}") if newest else None
        earlier = {} if before is None else layout.read_design(before)
        if versions.outcomes(earlier) == versions.outcomes(design):
            return f"v{newest}"
        name = f"v{newest + 1}"
        bound = layout.bound_splits(before) if before is not None else {}
        stated = {c: design[c][split.PUBLISHED] for c in accepted if split.PUBLISHED in design[c]}
        # Imported cases may differ in what no parameter says.
        is_own = self.schema.source is None
        parameters = {case: row["parameters"] for case, row in design.items() if is_own}
        members = split.assign_splits(accepted, {**stated, **bound}, parameters)
        if "train" not in members.values():
            raise InputError(
                f"{self.url}: no training case would be left, whose statistics a version needs;"
                " add more cases first"
            )
        self._write_splits(root, members, bound)
        moments_of = {row["case"]: row["moments"] for row in CaseTable(root, "statistics").rows()}
        training = {case: moments_of[case] for case, split in members.items() if split == "train"}
        others = {case: moments_of[case] for case in members if case not in training}
        left_out = split.outlying(training, others)
        root["statistics"].attrs["fields"] = {
            name: split.combine_training({k: of[name] for k, of in training.items()}, left_out)
            for name in next(iter(training.values()))
        }
        metadata: Record = {
            **commit_metadata(),
            "solver_versions": sorted({design[case]["solver_version"] for case in members}),
            versions.PUBLICATION: name,
            versions.VERSION: newest + 1,
            "num_cases": len(accepted),
            "run": dict(run),
        }
        message = message or f"{len(accepted)} cases"
        tables = {each: CaseTable(root, each).content() for each in ("design", "splits")}
        metadata[layout.DIGEST] = layout.version_digest(
            root, tables, {**metadata, "message": message}
        )
        commit(self._repository, self.url, session, message, metadata)
        versions.tag_versions(self._repository, self.url)
        return name

    def _withdraw(self, root: zarr.Group, cases: Sequence[str], reason: str) -> None:
        """Put a withdrawal on record and remove the cases' arrays."""
        design, verdict = layout.read_design(root), {"status": "withdrawn", "reason": reason}
        at = {"at": datetime.now(UTC).isoformat(), "by": author()}
        records = {}
        for case in dict.fromkeys(cases):
            lists = f"`courant dataset show {self.url}` lists the cases"
            row = design.get(case, {"status": "unknown", "reason": lists})
            if row["status"] != "accepted":
                raise InputError(
                    f"case {case} is {row['status']}, and only accepted cases can be withdrawn:"
                    f" {row['reason']}"
                )
            line = CaseTable(root, "details").row(row["at"])
            details = {name: line[name] for name in ("gates", "log_tail")}
            details["provenance"] = {**line["provenance"], "withdrawn": at}
            attributes = {**dict(root[f"cases/{case}"].attrs), **verdict}
            objects = _write_group(root.store, case, attributes, [])
            checksums = {key: checksum for key, (checksum, _) in objects.items()}
            digest = layout.digest_case({**attributes, **details}, {})
            records[case] = CaseRecord(
                {name: row[name] for name in _KEPT if name in row} | verdict | {"digest": digest},
                {**details, "arrays": {}, "objects": checksums},
                {},
            )
        append_cases(root, records)

    def _write_splits(
        self, root: zarr.Group, members: Mapping[str, str], bound: Mapping[str, str]
    ) -> None:
        """Write the splits of the accepted cases, and those of withdrawn ones."""
        current, table = layout.read_splits(root), CaseTable(root, "splits")
        if not current.keys() <= members.keys():  # cases were withdrawn: no line takes one back
            current, table = {}, CaseTable(root, "splits", create=True)
        table.append(
            {"case": case, "split": split}
            for case, split in members.items()
            if current.get(case) != split
        )
        attributes = root["splits"].attrs
        withdrawn = {case: split for case, split in bound.items() if case not in members}
        if withdrawn != attributes.get(layout.WITHDRAWN, {}):
            attributes[layout.WITHDRAWN] = withdrawn
        if self.schema.splits == "drawn":
            attributes.update({"seed": split.SEED, "ratios": split.RATIOS})
        # The time makes the commit differ from the one before it: Icechunk rejects an empty one.
        attributes["dealt_at"] = datetime.now(UTC).isoformat()
