"""Recompute the tables of a version from the version and the one before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from simgen.errors import SimgenError, StoreError
from simgen.moments import Moments
from simgen.store.access import content
from simgen.store.access.content import design_records, is_schema_1, split_members
from simgen.store.access.open_version import OpenVersion
from simgen.store.access.reader import Dataset
from simgen.store.access.repository import explain
from simgen.store.access.versions import version_number
from simgen.store.format.damage import DamageError, describe_metadata_damage
from simgen.store.format.split import decide_splits
from simgen.store.format.version_seal import content_digest_of

#: Sums over 1e9 values in another order agree better than this; sums over other values do not.
STATISTICS_TOLERANCE = 1e-6


@dataclass(frozen=True, order=True)
class Finding:
    """One problem of a version."""

    case: str
    """Id; empty for the version's tables"""
    place: str
    """Array and chunk, or table"""
    problem: str


def verify_tables(dataset: Dataset, moments: Mapping[str, Mapping[str, Moments]]) -> list[Finding]:
    """Check digest, splits and statistics of a version.

    `moments` are those of its training cases, recomputed from their arrays.
    """
    checks: tuple[tuple[str, Callable[[], Iterator[str]]], ...] = (
        ("version", lambda: _digest(dataset)),
        ("seal", lambda: _seal(dataset)),
        ("versions", lambda: iter(dataset.problems())),
        ("splits", lambda: _splits(dataset)),
        ("statistics", lambda: _statistics(dataset, moments)),
    )
    return [
        Finding("", place, problem)
        for place, check in checks
        for problem in _problems(dataset, check)
    ]


def name_damage(dataset: OpenVersion, error: Exception) -> str:
    """Describe the damage behind a failed read; raise StoreError if the store is unreachable."""
    if isinstance(error, DamageError):
        return error.what
    if isinstance(error, SimgenError):
        raise error
    what = describe_metadata_damage(error)
    if what is None:
        raise StoreError(explain(dataset.url, str(error))) from error
    return what


def _problems(dataset: Dataset, check: Callable[[], Iterator[str]]) -> Iterator[str]:
    try:
        yield from check()
    except (
        Exception
    ) as error:  # a table that lacks a key, a number that is none, a group that is no longer there
        yield name_damage(dataset, error)


def _digest(dataset: Dataset) -> Iterator[str]:
    expected = dataset.info.metadata.get("digest")
    if not expected:
        if not is_schema_1(dataset):
            yield "its record has no digest"
        return
    commit = {**dataset.info.metadata, "message": dataset.info.message}
    if (
        content_digest_of(dataset._root, design_records(dataset), split_members(dataset), commit)
        != expected
    ):
        yield "its tables or its record are not what was published: their digest differs"


def _seal(dataset: Dataset) -> Iterator[str]:
    """Check the seal, as every opening of the version does; its error names the damage."""
    dataset.check()
    yield from ()


def _splits(dataset: Dataset) -> Iterator[str]:
    """Apply the rule of `split.py` to the members of the version before."""
    before = (version_number(dataset.version) or 1) - 1
    try:
        bound = content.bound_splits(Dataset(dataset.url, f"v{before}")) if before else {}
    except StoreError as error:
        yield f"cannot be recomputed: {error}"
        return
    current = split_members(dataset)
    expected = decide_splits(dataset.schema.splits, design_records(dataset), bound)
    wrong = sorted(
        case for case in {*expected, *current} if expected.get(case) != current.get(case)
    )
    if wrong:
        case = wrong[0]
        yield (
            f"{len(wrong)} cases are not where the rule puts them, the first: {case} is in "
            f"{current.get(case, 'none')}, expected {expected.get(case, 'none')}"
        )

    kept = {case: split for case, split in bound.items() if case not in expected}
    if kept != content.kept_splits(dataset):
        yield "the splits of withdrawn cases are not those that they were published with"


def _statistics(dataset: Dataset, moments: Mapping[str, Mapping[str, Moments]]) -> Iterator[str]:
    training = [case for case, split in split_members(dataset).items() if split == "train"]
    if not set(training) <= set(moments):
        return  # a damaged training case has findings of its own
    for name in ("points", *(field.name for field in dataset.schema.fields)):
        stored = dataset.statistics[name]
        kept = [case for case in training if case not in dataset.left_out(name).cases]
        recomputed = reduce(Moments.merge, (moments[case][name] for case in kept)).to_record()
        scale = max(
            float(np.max(np.abs(recomputed["max"]))), float(np.max(np.abs(recomputed["min"])))
        )
        for figure in ("mean", "std", "min", "max"):
            if not np.allclose(
                stored[figure], recomputed[figure], rtol=0, atol=STATISTICS_TOLERANCE * scale
            ):
                yield (
                    f"{figure} of {name} is {_short(stored[figure])}, its arrays give"
                    f" {_short(recomputed[figure])}"
                )


def _short(values: object) -> str:
    return ", ".join(f"{value:.6g}" for value in np.atleast_1d(np.asarray(values)))
