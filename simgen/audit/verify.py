"""Re-read a version and check it against everything recorded when it was written.

Notable properties:
- Every chunk is read and decoded. That checks its CRC-32C, and with it Icechunk's manifests, which
  say where chunks are.
- A case's digest is recomputed from its arrays and attributes, the version's digest from its
  tables. This finds data that decode to something other than what was written.
- Shapes and types are checked against the schema, splits against the rule that assigned them,
  statistics against the arrays.
- Cases are read in parallel threads, each array a row of chunks at a time, so memory stays at a few
  chunks a thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

import numpy as np
import zarr

from simgen.audit.verify_tables import Finding, name_damage, verify_tables
from simgen.moments import Moments
from simgen.store.access import content
from simgen.store.access.open_version import OpenVersion
from simgen.store.access.reader import Dataset
from simgen.store.access.stored_case import StoredCase
from simgen.store.format.digest import ArrayDigest, digest_case
from simgen.store.format.expected_arrays import departures
from simgen.store.format.statistics import first_settled

THREADS = 8


@dataclass(frozen=True)
class Verification:
    """The amount of data read, and the problems found."""

    findings: list[Finding]
    num_cases: int
    num_chunks: int
    num_bytes: int
    """Decoded bytes"""
    without_digest: int
    """Cases written by a release that kept no digests: their chunks were read, but their content
    could not be checked
    """


def verify(
    dataset: Dataset, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Verification:
    """Read the whole version and report the problems; `on_progress` gets cases done and in total.

    Raises StoreError where the store cannot be reached. Damage is reported as a finding, not
    raised.
    """
    fresh = Dataset(
        dataset.url, dataset.version, snapshot_id=dataset.snapshot_id
    )  # nothing from the caches of `dataset`
    cases = [fresh[case] for case in fresh.design.index]
    checks = [_check_tables(fresh)]
    left_out = _left_out(fresh)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="verify") as threads:
        pending = [threads.submit(_check_case, case, left_out.get(case.id, {})) for case in cases]
        try:
            for future in as_completed(pending):
                checks.append(future.result())
                on_progress(len(checks) - 1, len(cases))
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    moments = {check.case: check.moments for check in checks if check.moments is not None}
    findings = [finding for check in checks for finding in check.findings] + verify_tables(
        fresh, moments
    )
    return Verification(
        sorted(findings),
        len(cases),
        sum(check.num_chunks for check in checks),
        sum(check.num_bytes for check in checks),
        sum(check.without_digest for check in checks),
    )


@dataclass
class CaseCheck:
    """The result of reading one case."""

    case: str
    findings: list[Finding] = field(default_factory=list)
    num_chunks: int = 0
    num_bytes: int = 0
    without_digest: bool = False
    moments: dict[str, Moments] | None = None
    """Moments of its points and fields, if it is a readable training case"""


def _check_tables(dataset: Dataset) -> CaseCheck:
    """Read the tables over cases, chunk by chunk, as arrays that belong to no case."""
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


def _left_out(dataset: Dataset) -> dict[str, dict[str, list[int]]]:
    """Return by case and field the snapshots on record as left out of statistics."""
    try:
        return content.left_out_snapshots(dataset)
    except Exception:  # which the check of the tables tells of
        return {}


def _check_case(case: StoredCase, left_out: Mapping[str, Sequence[int]]) -> CaseCheck:
    """Read one case; `left_out` are by field the snapshots that its moments leave out."""
    check = CaseCheck(case.id)
    digests: list[ArrayDigest] = []
    moments: dict[str, Moments] = {}
    wanted = (
        {"points", *(field.name for field in case.dataset.schema.fields)}
        if case.split == "train"
        else set()
    )
    try:
        attrs, arrays = content.attributes(case), content.arrays(case)
    except Exception as error:
        check.findings.append(Finding(case.id, "attributes", name_damage(case.dataset, error)))
        return check
    check.findings += [
        Finding(case.id, name, problem) for name, problem in _departures(case, arrays)
    ]
    for name, array in arrays.items():
        digest = ArrayDigest(name, array.shape, array.dtype, str(array.attrs.get("unit", "")))
        of = moments.setdefault(name, Moments.empty(array.shape[-1])) if name in wanted else None
        startup = _startup_rows(case) if of is not None and name != "points" else 0
        counts = ~np.isin(np.arange(array.shape[0]), [*range(startup), *left_out.get(name, ())])
        begin = 0
        for block in _blocks(case.dataset, name, array, check):
            digest.update(block)
            if of is not None:
                of.add(block[counts[begin : begin + len(block)]])
            begin += len(block)
        digests.append(digest)
    expected = content.digest(case)
    check.without_digest = not expected
    if not check.findings:
        check.moments = moments if case.split == "train" else None
        if expected and digest_case(attrs, digests) != expected:
            check.findings.append(
                Finding(
                    case.id,
                    "content",
                    "is not what was written: its digest differs from the record's",
                )
            )
    return check


def _departures(case: StoredCase, arrays: dict[str, zarr.Array]) -> Iterator[tuple[str, str]]:
    """List where a case's arrays deviate from the schema; only accepted cases have arrays."""
    if case.status == "accepted":
        yield from departures(case.dataset.schema, arrays, schema_1=case.is_schema_1)
    else:
        yield from ((name, "is unknown to the schema") for name in arrays)


def _startup_rows(case: StoredCase) -> int:
    """Return how many snapshots statistics leave out; 0 where the times are damaged."""
    schema = case.dataset.schema
    if not (schema.transient and schema.startup_s):
        return 0
    try:
        return first_settled(case.time, schema.startup_s)
    except Exception:  # which the check of the array itself tells of
        return 0


def _blocks(
    dataset: OpenVersion, name: str, array: zarr.Array, check: CaseCheck
) -> Iterator[np.ndarray]:
    """Yield an array's rows of chunks in order; each unreadable chunk becomes a finding."""
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


def _damaged_chunks(
    dataset: OpenVersion, case: str, name: str, array: zarr.Array, row: int
) -> Iterator[Finding]:
    chunks = array.shards or array.chunks
    across = [
        range(-(-size // step)) for size, step in zip(array.shape[1:], chunks[1:], strict=True)
    ]
    for place in itertools.product((row,), *across):
        try:
            array[
                tuple(
                    slice(at * step, (at + 1) * step)
                    for at, step in zip(place, chunks, strict=True)
                )
            ]
        except Exception as error:
            yield Finding(
                case, f"{name} chunk {'/'.join(map(str, place))}", name_damage(dataset, error)
            )
