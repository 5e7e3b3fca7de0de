"""Compare versions: what each one added, and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from zarr.core.sync import sync

from simgen.errors import InputError
from simgen.store.access import content
from simgen.store.access.reader import Dataset, open_dataset
from simgen.store.access.versions import VersionInfo
from simgen.store.format.split import counts_of

#: Statistics that differ by less than this fraction of their field's standard deviation count as
#: equal.
MOVED = 1e-6


@dataclass(frozen=True)
class VersionSize:
    """One line of a history."""

    info: VersionInfo
    num_cases: int
    """Accepted cases"""
    num_new: int
    num_bytes: int
    """Bytes of all its fields, decoded"""
    num_bytes_new: int
    """Bytes on disk of the cases that it added"""


@dataclass(frozen=True)
class Moved:
    """A training statistic that differs between versions.

    It is named by field or quantity and figure, such as mean, with its values per component.
    """

    field: str
    figure: str
    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True)
class Difference:
    """The difference between two versions of a dataset, from `before` to `after`."""

    before: str
    after: str
    added: list[str]
    removed: list[str]
    changed_status: dict[str, tuple[str, str]]
    changed_content: list[str]
    """Cases accepted in both, with another digest"""
    moved_splits: dict[str, tuple[str, str]]
    new_splits: dict[str, int]
    """Number of cases accepted only in `after`, by split"""
    schema: list[str]
    statistics: list[Moved]
    num_bytes_added: int
    """Bytes on disk of cases accepted only in `after`"""

    @property
    def is_empty(self) -> bool:
        changes = (
            self.added,
            self.removed,
            self.changed_status,
            self.changed_content,
            self.moved_splits,
            self.schema,
        )
        return not any(changes)


def history(newest: Dataset) -> list[VersionSize]:
    """List every version of the dataset, oldest first, with what it added."""
    lines: list[VersionSize] = []
    known: set[str] = set()
    for info in newest.versions():
        dataset = newest if info.name == newest.version else open_dataset(newest.url, info.name)
        accepted = dataset.cases()
        new = [case for case in accepted if case not in known]
        num_bytes = int(dataset.design["num_bytes"].sum())
        lines.append(
            VersionSize(info, len(accepted), len(new), num_bytes, stored_bytes(dataset, new))
        )
        known = set(accepted)  # one that was withdrawn and solved again is new again
    return lines


def stored_bytes(dataset: Dataset, cases: list[str]) -> int:
    """Return the size on disk of these cases' arrays."""
    records = content.design_records(dataset)
    return sum(
        int(records[case].get("num_bytes_stored") or _measured(dataset, case)) for case in cases
    )


def _measured(dataset: Dataset, case: str) -> int:
    """Measure cases of schema version 1, whose records lack these figures."""
    return sync(dataset[case]._group.store.getsize_prefix(f"cases/{case}/"))


def compare(before: Dataset, after: Dataset) -> Difference:
    """Compare two versions of one dataset; raise InputError for versions of different datasets."""
    if before.url != after.url:
        raise InputError(
            f"{before.url} and {after.url} are different datasets: compare two versions of one"
        )
    old, new = content.design_records(before), content.design_records(after)
    old_split, new_split = content.split_members(before), content.split_members(after)
    both = [case for case in new if case in old]
    fresh = [case for case in new_split if case not in old_split]
    return Difference(
        before.version,
        after.version,
        [case for case in new if case not in old],
        [case for case in old if case not in new],
        {
            case: (old[case]["status"], new[case]["status"])
            for case in both
            if old[case]["status"] != new[case]["status"]
        },
        [
            case
            for case in both
            if case in old_split and case in new_split and _digests_differ(old[case], new[case])
        ],
        {
            case: (split, new_split[case])
            for case, split in old_split.items()
            if new_split.get(case, split) != split
        },
        counts_of(lambda split: [case for case in fresh if new_split[case] == split]),
        list(_schema_changes(before.schema.to_json(), after.schema.to_json())),
        list(_moved(before, after)),
        stored_bytes(after, fresh),
    )


def _digests_differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return old.get("digest") != new.get("digest")


def _schema_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield f"{name}: {before.get(name)} -> {after.get(name)}"


def _moved(before: Dataset, after: Dataset) -> Iterator[Moved]:
    earlier_of = _all_statistics(before)
    for name, figures in _all_statistics(after).items():
        earlier = earlier_of.get(name)
        if earlier is None:
            continue
        scale = np.maximum(figures["std"], np.finfo(float).tiny)
        for figure, values in figures.items():
            if np.any(np.abs(values - earlier[figure]) > MOVED * scale):
                yield Moved(name, figure, tuple(earlier[figure].tolist()), tuple(values.tolist()))


def _all_statistics(dataset: Dataset) -> dict[str, dict[str, np.ndarray]]:
    """Return those of fields by component, and those of quantities, which are single numbers."""
    of_quantities = {
        name: {figure: np.array([value]) for figure, value in figures.items()}
        for name, figures in dataset.quantity_statistics.items()
    }
    return {**dataset.statistics, **of_quantities}
