"""Assign cases to splits, once, when they are first published.

The members of a version keep their places in every later one. New cases are shuffled with the seed
and assigned so that the totals come as close as possible to the ratios. A dataset of two accepted
cases has a test case, one of three a validation case as well.

Splits that a source publishes with its data, or that a request names for its cases, are taken as
they are, and bind like those that are drawn. The calibration split is never drawn: its cases serve
bands of error alone, never training or the choice of weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

Split = Literal["train", "validation", "test", "calibration"]
SPLITS: tuple[str, ...] = get_args(Split)
Origin = Literal["drawn", "published"]

#: Column of the design table: the split that the case's source, or the request for it, gave it.
PUBLISHED = "published_split"

#: Paper: Table tab:dataset-details.
SEED = 42
RATIOS: dict[str, float] = {"train": 0.7, "validation": 0.15, "test": 0.15}


def counts_of(cases_of: Callable[[str], Sequence[str]]) -> dict[str, int]:
    """Return the number of cases by split: of those that are drawn, and others that have any."""
    counts = {split: len(cases_of(split)) for split in SPLITS}
    return {split: count for split, count in counts.items() if count or split in RATIOS}


def decide_splits(
    origin: Origin, design: Mapping[str, Mapping[str, Any]], bound: Mapping[str, str]
) -> dict[str, str]:
    """Return the splits of a design table's accepted cases; those in `bound` keep theirs."""
    accepted = [case for case, record in design.items() if record["status"] == "accepted"]
    if origin == "published":
        return {case: bound.get(case, design[case][PUBLISHED]) for case in accepted}
    named = {case: design[case][PUBLISHED] for case in accepted if PUBLISHED in design[case]}
    return assign_splits(accepted, {**named, **bound})


def assign_splits(
    cases: Iterable[str], members: Mapping[str, str], seed: int = SEED
) -> dict[str, str]:
    """Return the splits of all `cases` (ids), in their order; those in `members` keep theirs."""
    cases = list(cases)
    splits = {case: members[case] for case in cases if case in members}
    counts = {
        split: sum(1 for assigned in splits.values() if assigned == split) for split in RATIOS
    }
    for case in sorted(
        (case for case in cases if case not in members), key=lambda case: _rank(case, seed)
    ):
        split = _neediest(counts)
        splits[case] = split
        counts[split] += 1
    return {case: splits[case] for case in cases}


def _rank(case: str, seed: int) -> str:
    """Rank a case by a hash of its id and the seed alone.

    What else is published with it does not matter.
    """
    return hashlib.sha256(f"{seed}:{case}".encode()).hexdigest()


def _neediest(counts: Mapping[str, int]) -> str:
    """Choose the split furthest below its share of the final total.

    Training comes first, then one case each for test and validation.
    """
    total = sum(counts.values()) + 1
    if counts["train"] and not counts["test"]:
        return "test"
    if counts["train"] and not counts["validation"]:
        return "validation"
    return max(RATIOS, key=lambda split: (RATIOS[split] * total - counts[split], split == "train"))
