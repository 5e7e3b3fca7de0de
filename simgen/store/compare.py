"""Versions beside each other: what each brought, and what two of them differ in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from zarr.core.sync import sync

from simgen.errors import InputError
from simgen.store import content
from simgen.store.reader import Dataset, open_dataset
from simgen.store.versions import VersionInfo

#: Statistics that agree better than this fraction of their field's standard deviation have not moved.
MOVED = 1e-6


@dataclass(frozen=True)
class VersionSize:
    """One line of a history."""

    info: VersionInfo
    num_cases: int
    """Accepted"""
    num_new: int
    num_bytes: int
    """Of all its fields, decoded"""
    num_bytes_new: int
    """On disk, of the cases that came with it"""


@dataclass(frozen=True)
class Moved:
    """A training statistic that differs: field, figure such as mean, and its values per component."""

    field: str
    figure: str
    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True)
class Difference:
    """What lies between two versions of a dataset, from `before` to `after`."""

    before: str
    after: str
    added: list[str]
    removed: list[str]
    changed_status: dict[str, tuple[str, str]]
    changed_content: list[str]
    """Accepted in both, with another digest"""
    moved_splits: dict[str, tuple[str, str]]
    new_splits: dict[str, int]
    """Number of cases that are accepted in `after` alone, by split"""
    schema: list[str]
    statistics: list[Moved]
    num_bytes_added: int
    """On disk, of cases that are accepted in `after` alone"""

    @property
    def is_empty(self) -> bool:
        changes = (self.added, self.removed, self.changed_status, self.changed_content, self.moved_splits, self.schema)
        return not any(changes)


def history(newest: Dataset) -> list[VersionSize]:
    """Every version of the dataset, oldest first, with what it brought."""
    lines: list[VersionSize] = []
    known: set[str] = set()
    for info in newest.versions():
        dataset = newest if info.name == newest.version else open_dataset(newest.url, info.name)
        accepted = dataset.cases()
        new = [case for case in accepted if case not in known]
        num_bytes = int(dataset.design["num_bytes"].sum())
        lines.append(VersionSize(info, len(accepted), len(new), num_bytes, stored_bytes(dataset, new)))
        known = set(accepted)  # one that was withdrawn and solved again is new again
    return lines


def stored_bytes(dataset: Dataset, cases: list[str]) -> int:
    """What the arrays of these cases take on disk."""
    records = content.design_records(dataset)
    return sum(int(records[case].get("num_bytes_stored") or _measured(dataset, case)) for case in cases)


def _measured(dataset: Dataset, case: str) -> int:
    """For cases of schema version 1, whose records do not say."""
    return sync(dataset[case]._group.store.getsize_prefix(f"cases/{case}/"))


def compare(before: Dataset, after: Dataset) -> Difference:
    """The difference of two versions of one dataset; InputError where they belong to different ones."""
    if before.url != after.url:
        raise InputError(f"{before.url} and {after.url} are different datasets: compare two versions of one")
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
        [case for case in both if case in old_split and case in new_split and _digests_differ(old[case], new[case])],
        {case: (split, new_split[case]) for case, split in old_split.items() if new_split.get(case, split) != split},
        {split: sum(new_split[case] == split for case in fresh) for split in ("train", "validation", "test")},
        list(_schema_changes(asdict(before.schema), asdict(after.schema))),
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
    for field, figures in after.statistics.items():
        earlier = before.statistics.get(field)
        if earlier is None:
            continue
        scale = np.maximum(figures["std"], np.finfo(float).tiny)
        for figure, values in figures.items():
            if np.any(np.abs(values - earlier[figure]) > MOVED * scale):
                yield Moved(field, figure, tuple(earlier[figure].tolist()), tuple(values.tolist()))
