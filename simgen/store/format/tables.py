"""Keep the tables over cases outside Icechunk's snapshots, which only refer to them.

design/records        what `Dataset.design` lists; `provenance_at` is the place of the case's line
                      in provenance/records
provenance/records    gates, log_tail, provenance: tens of kB a case, read one by one
seals/records         the state of every object of the case when written (`case_seal.py`)
statistics/records    moments of the case's points and fields, which publications combine
splits/records        split of each published case; attrs: withdrawn, splits of those taken back
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import zarr

from simgen.store.format import schema_1
from simgen.store.format.case_record import CaseRecord
from simgen.store.format.case_seal import CaseSeal
from simgen.store.format.records import (
    RecordReader,
    append_records,
    create_table,
    drop_table,
    parse_records,
    read_content,
    read_record,
    read_records,
    record_digest,
)

#: Attribute of the splits' group.
KEPT = "withdrawn"
TABLES = ("design", "provenance", "statistics", "splits", "seals")


def create_tables(root: zarr.Group) -> None:
    """Create the groups that all cases share."""
    root.create_group("cases")
    for name in TABLES:
        create_table(root.create_group(name))


def append_cases(root: zarr.Group, records: Mapping[str, CaseRecord]) -> None:
    """Put cases on record, replacing what an earlier attempt left."""
    if "seals" not in root:  # a dataset that was begun by a release that kept none
        create_table(root.create_group("seals"))
    details = [{"case": case, **record.details} for case, record in records.items()]
    places = append_records(_table(root, "provenance"), details)
    seals = [
        {"case": case, "details": record_digest(line), "objects": record.objects}
        for (case, record), line in zip(records.items(), details, strict=True)
    ]
    seal_places = append_records(_table(root, "seals"), seals)
    append_records(
        _table(root, "design"),
        [
            {
                "case": case,
                **record.design,
                "provenance_at": place,
                "seal_at": seal_at,
                "seal": record_digest(seal),
            }
            for (case, record), place, seal_at, seal in zip(
                records.items(), places, seal_places, seals, strict=True
            )
        ],
    )
    append_records(
        _table(root, "statistics"),
        [
            {"case": case, "moments": record.moments}
            for case, record in records.items()
            if record.moments
        ],
    )


class SealReader:
    """Read the seals of the cases of a version."""

    def __init__(self, root: zarr.Group) -> None:
        self._root = root
        self._reader: RecordReader | None = None
        self._read: dict[str, CaseSeal] = {}

    def read(self, case: str, record: Mapping[str, Any]) -> CaseSeal | None:
        """Read the seal of a case, from its row of the design table.

        None for a case of a release that kept no seals.
        """
        if "seal_at" not in record:
            return None
        if case not in self._read:
            self._reader = self._reader or RecordReader(_table(self._root, "seals"))
            line = self._reader.read(record["seal_at"], record["seal"])
            self._read[case] = CaseSeal(line["objects"], line["details"])
        return self._read[case]


def read_design(root: zarr.Group) -> dict[str, dict[str, Any]]:
    """Read every case's row of the design table, in the order of first appearance."""
    if schema_1.is_schema_1(root):
        return schema_1.read_design(root)
    return parse_design(read_table(root, "design"), root)


def parse_design(content: bytes, root: zarr.Group) -> dict[str, dict[str, Any]]:
    """Parse every case's row from the table's content."""
    return {record.pop("case"): record for record in parse_records(content, _table(root, "design"))}


def read_table(root: zarr.Group, name: str) -> bytes:
    """Read a table's content as stored."""
    return read_content(_table(root, name))


def read_details(
    root: zarr.Group, case: str, record: Mapping[str, Any], digest: str | None = None
) -> dict[str, Any]:
    """Read gates, log_tail and provenance of a case, from its row of the design table.

    They are checked against the seal's digest of them.
    """
    if "provenance_at" not in record:
        return schema_1.read_details(root, case)
    line = read_record(_table(root, "provenance"), record["provenance_at"], digest)
    del line["case"]
    return line


def read_moments(root: zarr.Group) -> dict[str, dict[str, Any]]:
    """Read every accepted case's moments of its points and of each field."""
    return {
        record["case"]: record["moments"] for record in read_records(_table(root, "statistics"))
    }


def append_splits(root: zarr.Group, members: Mapping[str, str]) -> None:
    """Put the splits of newly published cases on record."""
    append_records(
        _table(root, "splits"), [{"case": case, "split": split} for case, split in members.items()]
    )


def read_splits(root: zarr.Group) -> dict[str, str]:
    """Read the split by case, in the order of publication."""
    if schema_1.is_schema_1(root):
        return schema_1.read_splits(root)
    return parse_splits(read_table(root, "splits"), root)


def parse_splits(content: bytes, root: zarr.Group) -> dict[str, str]:
    """Parse the split by case from the table's content."""
    return {
        record["case"]: record["split"] for record in parse_records(content, _table(root, "splits"))
    }


def replace_splits(root: zarr.Group, members: Mapping[str, str]) -> None:
    """Replace the content of the table of splits."""
    table = _table(root, "splits")
    drop_table(table)
    create_table(table)
    append_splits(root, members)


def read_kept_splits(root: zarr.Group) -> dict[str, str]:
    """Read the splits of cases that were published once and are withdrawn now."""
    return dict(cast(Mapping[str, str], _table(root, "splits").attrs.get(KEPT, {})))


def write_kept_splits(root: zarr.Group, kept: Mapping[str, str]) -> None:
    """Record the splits of withdrawn cases."""
    _table(root, "splits").attrs[KEPT] = dict(kept)


def bound_splits(root: zarr.Group) -> dict[str, str]:
    """Return the splits that bind the next version.

    They are those of a version's cases, and of cases withdrawn before.
    """
    return {**read_kept_splits(root), **read_splits(root)}


def upgrade(root: zarr.Group) -> None:
    """Move the tables of a schema version 1 dataset to their current places.

    Case groups stay as they are.
    """
    design, splits = schema_1.read_design(root), schema_1.read_splits(root)
    moments = {case: record.pop("moments", None) for case, record in design.items()}
    for name in TABLES:
        create_table(root.require_group(name))
    append_records(
        _table(root, "design"), [{"case": case, **record} for case, record in design.items()]
    )
    append_records(
        _table(root, "statistics"),
        [{"case": case, "moments": of} for case, of in moments.items() if of is not None],
    )
    append_splits(root, splits)
    schema_1.drop_tables(root)


def _table(root: zarr.Group, name: str) -> zarr.Group:
    group = root[name]
    assert isinstance(group, zarr.Group)
    return group
