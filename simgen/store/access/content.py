"""Read everything a version holds of a case, as written.

Verification, export and comparison work on this.
"""

from __future__ import annotations

from typing import Any

import zarr

from simgen.store.access.checked_array import CheckedArray, Place
from simgen.store.access.reader import Dataset
from simgen.store.access.stored_case import StoredCase
from simgen.store.format import schema_1
from simgen.store.format.damage import panics_as_errors
from simgen.store.format.statistics import LEFT_OUT
from simgen.store.format.tables import TABLES, read_kept_splits, read_moments

#: Keys of a design record that are for the store's own use.
_INTERNAL = ("moments", "provenance_at", "seal_at", "seal")


def arrays(case: StoredCase) -> dict[str, zarr.Array]:
    """Return every array by its name within the case, such as boundary/velocity.

    A case that was not accepted has none. Reads raise zarr's and Icechunk's own errors.
    """
    with panics_as_errors():
        members = case._group.members(max_depth=None)
    return {name: node for name, node in sorted(members) if isinstance(node, zarr.Array)}


def checked_arrays(case: StoredCase) -> dict[str, CheckedArray]:
    """Return the same arrays with reads that raise StoreError."""
    dataset = case.dataset
    return {
        name: CheckedArray(array, Place(dataset.url, dataset.version, case.id, name))
        for name, array in arrays(case).items()
    }


def table_arrays(dataset: Dataset) -> dict[str, zarr.Array]:
    """Return the arrays behind the tables over cases, by name, such as design/records.

    Schema version 1 has none.
    """
    with panics_as_errors():
        members = ((name, dataset._root[name]) for name in TABLES if name in dataset._root)
        return {
            f"{name}/{table}": node
            for name, group in members
            if isinstance(group, zarr.Group)
            for table, node in group.arrays()
        }


def attributes(case: StoredCase) -> dict[str, Any]:
    """Return what the case's digest covers besides its arrays.

    These are parameters, settings, status, reason, gates, log_tail and provenance.
    """
    with panics_as_errors():
        return {**dict(case._group.attrs), **case._read_details()}


def is_schema_1(dataset: Dataset) -> bool:
    """Tell whether a version was written by a release that kept no digests."""
    return schema_1.is_schema_1(dataset._root)


def digest(case: StoredCase) -> str:
    """Return the digest on the case's record; empty for a case of schema version 1."""
    return str(case._record.get("digest", ""))


def design_records(dataset: Dataset) -> dict[str, dict[str, Any]]:
    """Return the row of every case in the design table."""
    return {
        case: {name: value for name, value in record.items() if name not in _INTERNAL}
        for case, record in dataset._records.items()
    }


def split_members(dataset: Dataset) -> dict[str, str]:
    """Return the split of every accepted case."""
    return dict(dataset._members)


def kept_splits(dataset: Dataset) -> dict[str, str]:
    """Return the splits of cases that were published once and are withdrawn in this version."""
    return {} if is_schema_1(dataset) else read_kept_splits(dataset._root)


def bound_splits(dataset: Dataset) -> dict[str, str]:
    """Return the splits that bind the next version."""
    return {**kept_splits(dataset), **split_members(dataset)}


def left_out_snapshots(dataset: Dataset) -> dict[str, dict[str, list[int]]]:
    """Return by case and field the numbers of the snapshots that statistics leave out.

    Those of the start-up that the family states are not among them.
    """
    if is_schema_1(dataset):
        return {}
    return {
        case: {field: record[LEFT_OUT] for field, record in of.items() if LEFT_OUT in record}
        for case, of in read_moments(dataset._root).items()
    }


def statistics_record(dataset: Dataset) -> dict[str, Any]:
    """Return count, mean, std, min and max by field, and what they leave out, as stored."""
    stored: dict[str, Any] = dict(dataset._root["statistics"].attrs["fields"])  # type: ignore[arg-type]
    return stored
