"""Which split a case belongs to: decided when it is first published, and never again.

The members of a version keep their places in every later one; new cases are shuffled with the seed and dealt out so that the
totals come as near as they can to the ratios. A dataset of two accepted cases has a test case, one of three a validation
case as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

Split = Literal["train", "validation", "test"]
SPLITS: tuple[str, ...] = get_args(Split)

#: Table tab:dataset-details.
SEED = 42
RATIOS: dict[str, float] = {"train": 0.7, "validation": 0.15, "test": 0.15}


def assign_splits(cases: Iterable[str], members: Mapping[str, str], seed: int = SEED) -> dict[str, str]:
    """Splits of all `cases` (ids), in their order; those in `members` stay where they are."""
    cases = list(cases)
    splits = {case: members[case] for case in cases if case in members}
    counts = {split: sum(1 for assigned in splits.values() if assigned == split) for split in SPLITS}
    for case in sorted((case for case in cases if case not in members), key=lambda case: _rank(case, seed)):
        split = _neediest(counts)
        splits[case] = split
        counts[split] += 1
    return {case: splits[case] for case in cases}


def _rank(case: str, seed: int) -> str:
    """A shuffle that depends on the case and the seed alone, not on what else is published with it."""
    return hashlib.sha256(f"{seed}:{case}".encode()).hexdigest()


def _neediest(counts: Mapping[str, int]) -> str:
    """The split furthest below its share of the total to come; training first, then one case each for test and validation."""
    total = sum(counts.values()) + 1
    if counts["train"] and not counts["test"]:
        return "test"
    if counts["train"] and not counts["validation"]:
        return "validation"
    return max(SPLITS, key=lambda split: (RATIOS[split] * total - counts[split], split == "train"))
