"""Re-reading a version against everything that was recorded when it was written.

Notable properties:
- Every chunk is read and decoded, which checks its CRC-32C and with it Icechunk's manifests, which say where chunks stand.
- A case's digest is recomputed from its arrays and attributes, the version's digest from its tables: what decodes, but to something
  else than was written, is found there.
- Shapes and types are held against the schema, splits against the rule that dealt them out, statistics against the arrays.
- Cases are read in parallel threads, each array a row of chunks at a time, so memory stays at a few chunks a thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

import numpy as np
import zarr

from simgen.store import content
from simgen.store.digest import ArrayDigest, digest_case
from simgen.store.expected_arrays import departures
from simgen.store.reader import Dataset, StoredCase
from simgen.store.statistics import Moments
from simgen.store.verify_tables import Finding, name_damage, verify_tables

THREADS = 8


@dataclass(frozen=True)
class Verification:
    """What was read, and what is wrong with it."""

    findings: list[Finding]
    num_cases: int
    num_chunks: int
    num_bytes: int
    """Decoded"""
    without_digest: int
    """Cases written by a release that kept none: their chunks were read, their content could not be held against anything."""


def verify(dataset: Dataset, on_progress: Callable[[int, int], None] = lambda done, total: None) -> Verification:
    """Read all of the dataset's version; `on_progress` is told how many of how many cases are done.

    Raises StoreError where the store cannot be reached. Damage is a finding and ends nothing.
    """
    fresh = Dataset(
        dataset.url, dataset.version, snapshot_id=dataset.snapshot_id
    )  # nothing from the caches of `dataset`
    cases = [fresh[case] for case in fresh.design.index]
    checks = [_check_tables(fresh)]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="verify") as threads:
        pending = [threads.submit(_check_case, case) for case in cases]
        try:
            for future in as_completed(pending):
                checks.append(future.result())
                on_progress(len(checks) - 1, len(cases))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    moments = {check.case: check.moments for check in checks if check.moments is not None}
    findings = [finding for check in checks for finding in check.findings] + verify_tables(fresh, moments)
    return Verification(
        sorted(findings),
        len(cases),
        sum(check.num_chunks for check in checks),
        sum(check.num_bytes for check in checks),
        sum(check.without_digest for check in checks),
    )


@dataclass
class CaseCheck:
    """What reading a case gave."""

    case: str
    findings: list[Finding] = field(default_factory=list)
    num_chunks: int = 0
    num_bytes: int = 0
    without_digest: bool = False
    moments: dict[str, Moments] | None = None
    """Of its points and fields, where it belongs to the training split and could be read"""


def _check_tables(dataset: Dataset) -> CaseCheck:
    """Read the tables over cases, chunk by chunk, as an array of no case."""
    check = CaseCheck("")
    try:
        arrays = content.table_arrays(dataset)
    except Exception as error:
        check.findings.append(Finding("", "tables", name_damage(dataset, error)))
        return check
    for name, array in arrays.items():
        for _ in _blocks(dataset, name, array, check):
            pass
    return check


def _check_case(case: StoredCase) -> CaseCheck:
    check = CaseCheck(case.id)
    digests: list[ArrayDigest] = []
    moments: dict[str, Moments] = {}
    wanted = {"points", *(field.name for field in case.dataset.schema.fields)} if case.split == "train" else set()
    try:
        attrs, arrays = content.attributes(case), content.arrays(case)
    except Exception as error:
        check.findings.append(Finding(case.id, "attributes", name_damage(case.dataset, error)))
        return check
    check.findings += [Finding(case.id, name, problem) for name, problem in _departures(case, arrays)]
    for name, array in arrays.items():
        digest = ArrayDigest(name, array.shape, array.dtype, str(array.attrs.get("unit", "")))
        of = moments.setdefault(name, Moments.empty(array.shape[-1])) if name in wanted else None
        for block in _blocks(case.dataset, name, array, check):
            digest.update(block)
            if of is not None:
                of.add(block)
        digests.append(digest)
    expected = content.digest(case)
    check.without_digest = not expected
    if not check.findings:
        check.moments = moments if case.split == "train" else None
        if expected and digest_case(attrs, digests) != expected:
            check.findings.append(
                Finding(case.id, "content", "is not what was written: its digest differs from the record's")
            )
    return check


def _departures(case: StoredCase, arrays: dict[str, zarr.Array]) -> Iterator[tuple[str, str]]:
    """Where a case's arrays are not those that the schema asks for; only accepted cases have any."""
    if case.status == "accepted":
        yield from departures(case.dataset.schema, arrays, schema_1=case.is_schema_1)
    else:
        yield from ((name, "is unknown to the schema") for name in arrays)


def _blocks(dataset: Dataset, name: str, array: zarr.Array, check: CaseCheck) -> Iterator[np.ndarray]:
    """An array's rows of chunks, in order; those that cannot be read are findings, chunk by chunk."""
    chunks = array.shards or array.chunks
    check.num_chunks += array.nchunks
    check.num_bytes += array.nbytes
    for row, begin in enumerate(range(0, array.shape[0], chunks[0])):
        rows = slice(begin, begin + chunks[0])
        try:
            yield np.asarray(array[rows])
        except Exception as error:
            problem = name_damage(dataset, error)
            check.findings += list(_damaged_chunks(dataset, check.case, name, array, row)) or [
                Finding(check.case, name, problem)
            ]


def _damaged_chunks(dataset: Dataset, case: str, name: str, array: zarr.Array, row: int) -> Iterator[Finding]:
    chunks = array.shards or array.chunks
    across = [range(-(-size // step)) for size, step in zip(array.shape[1:], chunks[1:], strict=True)]
    for place in itertools.product((row,), *across):
        try:
            array[tuple(slice(at * step, (at + 1) * step) for at, step in zip(place, chunks, strict=True))]
        except Exception as error:
            yield Finding(case, f"{name} chunk {'/'.join(map(str, place))}", name_damage(dataset, error))
