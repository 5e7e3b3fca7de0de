"""Read a dataset version: lazy, picklable, safe to share between threads.

ds = simgen.open_dataset("demo-run/store/cylinder-flow")     # the newest version, or version="v2"
case = ds[0]  # by position, or by id
case.points, case["velocity"][100:110], case.parameters  # reads only the chunks of a slice
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from simgen.errors import InputError
from simgen.moments import is_significant
from simgen.store.access.open_version import OpenVersion
from simgen.store.access.stored_case import StoredCase
from simgen.store.access.versions import VersionInfo, Versions
from simgen.store.format.split import SPLITS, counts_of
from simgen.store.format.statistics import LeftOut

if TYPE_CHECKING:
    import pandas


def open_dataset(url: str | Path, version: str | None = None) -> Dataset:
    """Open a published version of the dataset at `url`, by default the newest.

    `url` is a local path or s3://bucket/prefix. Raises InputError for a dataset or version that
    does not exist, StoreError for a store that cannot be read or a version whose tables are not
    what was published.
    """
    return _opened(str(url), version)


def open_unchecked(url: str | Path, version: str | None = None) -> Dataset:
    """Open a version without checking its tables, for `verify`, which does that itself."""
    return Dataset(str(url), version)


def _opened(url: str, version: str | None, *, snapshot_id: str | None = None) -> Dataset:
    dataset = Dataset(url, version, snapshot_id=snapshot_id)
    dataset.check()
    if version is None and dataset._versions.lost_tip:
        warnings.warn(f"{url}: {dataset._versions.lost_tip}", stacklevel=3)
    return dataset


class Dataset(OpenVersion):
    """One immutable version of a dataset.

    Pickles as its URL and snapshot: each process opens its own connection.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(_opened, snapshot_id=self.snapshot_id), (self.url, self.version)

    def __repr__(self) -> str:
        cases = f"{len(self)} case{'s' * (len(self) != 1)}"
        return f"<{self.schema.family} {self.version}: {cases} ({self.splits}) at {self.url}>"

    @property
    def splits(self) -> str:
        """Say how many cases the splits have: `5 train, 2 validation, 1 test`."""
        counts = counts_of(self.cases)
        if missing := len(self) - sum(counts.values()):
            counts["left out"] = missing
        return ", ".join(f"{count} {split}" for split, count in counts.items())

    def problems(self) -> list[str]:
        """List what is wrong with the references to the dataset's versions, a line each."""
        return Versions(self._repository, self.url).problems()

    def versions(self) -> list[VersionInfo]:
        """List all published versions, oldest first."""
        found = Versions(self._repository, self.url)
        return [found.read(name) for name in found.names]

    def cases(self, split: str | None = None) -> list[str]:
        """List the ids of the accepted cases, or of one split, in the order of publication.

        A split is without `left_out_cases`, but for the test, which judges what there is.
        """
        if split is None:
            return list(self._members)
        if split not in SPLITS:
            raise InputError(f"split '{split}' is unknown; choose one of {', '.join(SPLITS)}")
        without = () if split == "test" else self.left_out_cases
        members = (case for case, member in self._members.items() if member == split)
        return [case for case in members if case not in without]

    @functools.cached_property
    def left_out_cases(self) -> tuple[str, ...]:
        """Cases that have nearly all variance of a field, such as diverged ones.

        They are in no statistics, and no split but the test has them.
        """
        found = {case for each in self.schema.fields for case in self.left_out(each.name).cases}
        return tuple(case for case in self._members if case in found)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[StoredCase]:
        return (self[case] for case in self.cases())

    def __getitem__(self, case: str | SupportsIndex) -> StoredCase:
        """Return a case by its id, or an accepted one by its position."""
        if not isinstance(case, str):
            ids, position = self.cases(), operator.index(case)
            if not -len(ids) <= position < len(ids):
                raise IndexError(
                    f"{self.url} {self.version} has {len(ids)} cases, there is no case {position}"
                )
            case = ids[position]
        if case not in self._records:
            raise InputError(
                f"{self.url} {self.version} has no case {case}; `courant dataset show` lists them"
            )
        return StoredCase(self, case)

    @functools.cached_property
    def design(self) -> pandas.DataFrame:
        """A table of all cases, including rejected and failed ones.

        Columns: parameters, status, reason, split, sizes, wall time, and the quantities that
        `schema.quantities` states, of accepted cases.
        """
        import pandas

        rows = {
            case: {
                **record["parameters"],
                "status": record["status"],
                "reason": record["reason"],
                "split": self._members.get(case),
                "num_points": record.get("num_points"),
                "num_snapshots": record.get("num_snapshots"),
                "num_bytes": record.get("num_bytes"),
                "wall_time_s": record["wall_time_s"],
                **self._quantities(record),
            }
            for case, record in self._records.items()
        }
        return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("case")

    def _quantities(self, record: Mapping[str, Any]) -> dict[str, float]:
        """Return the quantities of a row; NaN for a case that is not accepted, or not any more."""
        accepted = record["status"] == "accepted"
        stored = record.get("quantities", {}) if accepted else {}
        return {each.name: float(stored.get(each.name, "nan")) for each in self.schema.quantities}

    @functools.cached_property
    def quantity_statistics(self) -> dict[str, dict[str, float]]:
        """The training split's mean, std, min and max of each quantity."""
        train = self.design.loc[self.cases("train")]
        return {
            each.name: {
                "mean": float(train[each.name].mean()),
                "std": float(train[each.name].std(ddof=0)),
                "min": float(train[each.name].min()),
                "max": float(train[each.name].max()),
            }
            for each in self.schema.quantities
        }

    @functools.cached_property
    def statistics(self) -> dict[str, dict[str, np.ndarray]]:
        """The training split's mean, std, min and max per component of each field."""
        stored: Mapping[str, Any] = self._root["statistics"].attrs["fields"]  # type: ignore[assignment]
        return {
            field: {name: np.asarray(record[name]) for name in ("mean", "std", "min", "max")}
            for field, record in stored.items()
        }

    def varying(self, field: str) -> tuple[str, ...]:
        """Return the components of a field that vary by more than noise over the training split."""
        measured = self.statistics[field]
        size = np.maximum(np.abs(measured["min"]), np.abs(measured["max"]))
        varies = is_significant(measured["std"], size)
        (components,) = (each.components for each in self.schema.fields if each.name == field)
        return tuple(components[number] for number in np.flatnonzero(varies))

    def left_out(self, field: str) -> LeftOut:
        """Return what the field's statistics leave out, because it has nearly all variance."""
        stored: Mapping[str, Any] = self._root["statistics"].attrs["fields"]  # type: ignore[assignment]
        return LeftOut.from_record(stored[field])
