"""The tables over cases, of which Icechunk's snapshots hold nothing but a reference.

design/records        what `Dataset.design` lists, and by `provenance_at` where the case's line of provenance/records stands
provenance/records    gates, log_tail, provenance: tens of kB a case, read one by one
statistics/records    moments of the case's points and fields, which publications combine
splits/records        split of each published case
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import zarr

from simgen.store import schema_1
from simgen.store.case_record import CaseRecord
from simgen.store.records import append_records, create_table, read_record, read_records

TABLES = ("design", "provenance", "statistics", "splits")


def create_tables(root: zarr.Group) -> None:
    """Make the groups that all cases share."""
    root.create_group("cases")
    for name in TABLES:
        create_table(root.create_group(name))


def append_cases(root: zarr.Group, records: Mapping[str, CaseRecord]) -> None:
    """Put cases on record, in place of what an earlier attempt at them left."""
    lines = [{"case": case, **record.details} for case, record in records.items()]
    places = append_records(_table(root, "provenance"), lines)
    append_records(
        _table(root, "design"),
        [
            {"case": case, **record.design, "provenance_at": place}
            for (case, record), place in zip(records.items(), places, strict=True)
        ],
    )
    append_records(
        _table(root, "statistics"),
        [{"case": case, "moments": record.moments} for case, record in records.items() if record.moments],
    )


def read_design(root: zarr.Group) -> dict[str, dict[str, Any]]:
    """Every case's row of the design table, in the order of their first appearance."""
    if schema_1.is_schema_1(root):
        return schema_1.read_design(root)
    return {record.pop("case"): record for record in read_records(_table(root, "design"))}


def read_details(root: zarr.Group, case: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """gates, log_tail and provenance of a case, from its row of the design table."""
    if "provenance_at" not in record:
        return schema_1.read_details(root, case)
    line = read_record(_table(root, "provenance"), record["provenance_at"])
    del line["case"]
    return line


def read_moments(root: zarr.Group) -> dict[str, dict[str, Any]]:
    """Of every accepted case: moments of its points and of each field."""
    return {record["case"]: record["moments"] for record in read_records(_table(root, "statistics"))}


def append_splits(root: zarr.Group, members: Mapping[str, str]) -> None:
    """Put the splits of newly published cases on record."""
    append_records(_table(root, "splits"), [{"case": case, "split": split} for case, split in members.items()])


def read_splits(root: zarr.Group) -> dict[str, str]:
    """Split by case, in the order of publication."""
    if schema_1.is_schema_1(root):
        return schema_1.read_splits(root)
    return {record["case"]: record["split"] for record in read_records(_table(root, "splits"))}


def upgrade(root: zarr.Group) -> None:
    """Move the tables of a dataset of schema version 1 to where this version has them; case groups stay as they are."""
    design, splits = schema_1.read_design(root), schema_1.read_splits(root)
    moments = {case: record.pop("moments", None) for case, record in design.items()}
    for name in TABLES:
        create_table(root.require_group(name))
    append_records(_table(root, "design"), [{"case": case, **record} for case, record in design.items()])
    append_records(
        _table(root, "statistics"), [{"case": case, "moments": of} for case, of in moments.items() if of is not None]
    )
    append_splits(root, splits)
    schema_1.drop_tables(root)


def _table(root: zarr.Group, name: str) -> zarr.Group:
    group = root[name]
    assert isinstance(group, zarr.Group)
    return group
