"""Check a version against what was recorded when it was written, and compare versions.

Every chunk is read and decoded, so that its checksum is compared with the case's record. Cases are
read in parallel threads, each array a row of chunks at a time, so memory stays at a few chunks a
thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simgen.store.read import Dataset, StoredCase, open_dataset
from simgen.store.split import counts_of
from simgen.store.versions import DamageError, VersionInfo

THREADS = 8
#: Statistics count as equal within this fraction of their field's standard deviation.
MOVED = 1e-6


@dataclass(frozen=True, order=True)
class DamagedPlace:
    """One problem of a version."""

    case: str  # Id; empty for the version's tables
    place: str  # Array, or table
    problem: str


@dataclass
class Verification:
    """The amount of data read, and the problems found."""

    findings: list[DamagedPlace] = field(default_factory=list)
    num_cases: int = 0
    num_chunks: int = 0


def verify(
    dataset: Dataset, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Verification:
    """Read the whole version and report the problems; `on_progress` gets cases done and in total.

    StoreError where the store cannot be reached, or the version's tables are damaged.
    """
    fresh = Dataset(dataset.url, dataset.version)  # nothing from the caches of `dataset`
    cases = [fresh[case] for case in fresh.records]
    found = Verification(num_cases=len(cases))

    @contextmanager
    def noted(case: str, place: str) -> Iterator[None]:
        try:
            yield
        except DamageError as error:
            found.findings.append(DamagedPlace(case, place, error.what))

    def verify_case(case: StoredCase) -> None:
        names: list[str] = []
        with noted(case.id, "record"):
            names = case.arrays()
        for name in names:
            with noted(case.id, name):
                array = case[name]
                for begin in range(0, array.shape[0], array.chunks[0]):
                    np.asarray(array[begin : begin + array.chunks[0]])
                found.num_chunks += array.nchunks

    with noted("", "statistics"):
        fresh.check_moments()
    for_each_case(cases, verify_case, on_progress)
    found.findings.sort()
    return found


def for_each_case(
    cases: Sequence[StoredCase],
    work: Callable[[StoredCase], None],
    on_progress: Callable[[int, int], None],
) -> None:
    """Do some work on all cases in threads; `on_progress` gets cases done and in total."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="cases") as threads:
        pending = [threads.submit(work, case) for case in cases]
        try:
            for done, future in enumerate(as_completed(pending), start=1):
                future.result()
                on_progress(done, len(cases))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


# Comparing versions.


@dataclass(frozen=True)
class VersionSize:
    """One line of a history."""

    info: VersionInfo
    num_cases: int  # Accepted cases
    num_new: int
    num_bytes: int  # Bytes of all its fields, decoded
    num_bytes_new: int  # Bytes on disk of the cases that it added


@dataclass(frozen=True)
class Difference:
    """The difference between two versions of a dataset, cases by id."""

    added: list[str]
    removed: list[str]
    changed_status: dict[str, tuple[str, str]]
    changed_content: list[str]  # Cases accepted in both, with another digest
    new_splits: dict[str, int]  # Number of cases accepted only in the later one, by split
    statistics: list[tuple[str, str, list[float], list[float]]]
    """Moved ones: field or quantity, figure such as mean, values per component before and after"""
    num_bytes_added: int  # Bytes on disk of cases accepted only in the later one

    @property
    def is_empty(self) -> bool:
        return not any((self.added, self.removed, self.changed_status, self.changed_content))


def history(newest: Dataset) -> list[VersionSize]:
    """List every version of the dataset, oldest first, with what it added."""
    lines: list[VersionSize] = []
    known: set[str] = set()
    for info in newest.versions():
        dataset = open_dataset(newest.url, info.name)
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
    return sum(int(dataset.records[case]["num_bytes_stored"]) for case in cases)


def compare(before: Dataset, after: Dataset) -> Difference:
    old, new = before.records, after.records
    status = {case: (old[case]["status"], new[case]["status"]) for case in new if case in old}
    fresh = [case for case in after.members if case not in before.members]
    # Those of quantities are single numbers.
    earlier: dict[str, Mapping[str, Any]] = {**before.statistics, **before.quantity_statistics}
    later: dict[str, Mapping[str, Any]] = {**after.statistics, **after.quantity_statistics}
    moved = []
    for name in (name for name in later if name in earlier):
        scale = np.maximum(later[name]["std"], np.finfo(float).tiny)
        for figure in later[name]:
            values = [np.atleast_1d(of[name][figure]) for of in (earlier, later)]
            if np.any(np.abs(values[1] - values[0]) > MOVED * scale):
                moved.append((name, figure, values[0].tolist(), values[1].tolist()))
    return Difference(
        added=[case for case in new if case not in old],
        removed=[case for case in old if case not in new],
        changed_status={case: pair for case, pair in status.items() if pair[0] != pair[1]},
        changed_content=[
            case
            for case in after.members
            if case in before.members and old[case]["digest"] != new[case]["digest"]
        ],
        new_splits=counts_of(lambda of: [case for case in fresh if after.members[case] == of]),
        statistics=moved,
        num_bytes_added=stored_bytes(after, fresh),
    )
