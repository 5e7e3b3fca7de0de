"""All that a version holds of a case, as it was written: what verification, export and comparison go through."""

from __future__ import annotations

from typing import Any

import zarr

from simgen.store import schema_1
from simgen.store.checked_array import CheckedArray, Place
from simgen.store.damage import panics_as_errors
from simgen.store.reader import Dataset, StoredCase
from simgen.store.tables import TABLES, read_kept_splits

#: What a design record holds for the store's own use.
_INTERNAL = ("moments", "provenance_at", "seal_at", "seal")


def arrays(case: StoredCase) -> dict[str, zarr.Array]:
    """Every array by its name within the case, such as boundary/velocity; none where the case was not accepted.

    Reads of these end in zarr's and Icechunk's own errors.
    """
    with panics_as_errors():
        members = case._group.members(max_depth=None)
    return {name: node for name, node in sorted(members) if isinstance(node, zarr.Array)}


def checked_arrays(case: StoredCase) -> dict[str, CheckedArray]:
    """The same, with reads that end in StoreError."""
    dataset = case.dataset
    return {
        name: CheckedArray(array, Place(dataset.url, dataset.version, case.id, name))
        for name, array in arrays(case).items()
    }


def table_arrays(dataset: Dataset) -> dict[str, zarr.Array]:
    """The arrays that the tables over cases are kept in, by name, such as design/records; none in schema version 1."""
    with panics_as_errors():
        members = ((name, dataset._root[name]) for name in TABLES if name in dataset._root)
        return {
            f"{name}/{table}": node
            for name, group in members
            if isinstance(group, zarr.Group)
            for table, node in group.arrays()
        }


def attributes(case: StoredCase) -> dict[str, Any]:
    """Parameters, settings, status, reason, gates, log_tail, provenance: what the case's digest covers beside its arrays."""
    with panics_as_errors():
        return {**dict(case._group.attrs), **case._read_details()}


def is_schema_1(dataset: Dataset) -> bool:
    """Whether a version was written by a release that kept no digests."""
    return schema_1.is_schema_1(dataset._root)


def digest(case: StoredCase) -> str:
    """The digest that the case was recorded with; empty for a case of schema version 1, which has none."""
    return str(case._record.get("digest", ""))


def design_records(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """The row of every case in the design table."""
    return {
        case: {name: value for name, value in record.items() if name not in _INTERNAL}
        for case, record in dataset._records.items()
    }


def split_members(dataset: Dataset) -> dict[str, str]:
    """Split of every accepted case."""
    return dict(dataset._members)


def kept_splits(dataset: Dataset) -> dict[str, str]:
    """Split of every case that was published once and is withdrawn in this version."""
    return {} if is_schema_1(dataset) else read_kept_splits(dataset._root)


def bound_splits(dataset: Dataset) -> dict[str, str]:
    """The splits that bind the next version."""
    return {**kept_splits(dataset), **split_members(dataset)}


def statistics_record(dataset: Dataset) -> dict[str, Any]:
    """count, mean, std, min, max by field, as stored."""
    stored: dict[str, Any] = dict(dataset._root["statistics"].attrs["fields"])  # type: ignore[arg-type]
    return stored
