"""Assign cases to splits, and compute the statistics of the training split.

A case is assigned once, when it is first published, and keeps its place in every later version. New
cases are shuffled with the seed so that the totals come as close as possible to the ratios; of a
few cases, the first to test and to validate are none with an outermost design. Solved cases of one
design have one split. Splits that a source or a request names are taken as they are.
Calibration, for bands of error, is never drawn.

Statistics, per component, combine the moments of the training cases. A few snapshots or cases may
have nearly all of a component's variance, and a model that is normalised by it sees a constant
elsewhere. They are left out, and the record has which.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from simgen.moments import Moments, is_significant, moments

Split = Literal["train", "validation", "test", "calibration"]
SPLITS: tuple[str, ...] = get_args(Split)
Origin = Literal["drawn", "published"]

#: Column of the design table: the split that the case's source, or the request for it, gave it.
PUBLISHED = "published_split"

#: Paper: Table tab:dataset-details.
SEED = 42
RATIOS: dict[str, float] = {"train": 0.7, "validation": 0.15, "test": 0.15}
FEW = 12  # Of fewer cases the first to be tested by are none with an outermost design


def counts_of(cases_of: Callable[[str], Sequence[str]]) -> dict[str, int]:
    """Return the number of cases by split: of those that are drawn, and others that have any."""
    counts = {split: len(cases_of(split)) for split in SPLITS}
    return {split: count for split, count in counts.items() if count or split in RATIOS}


def assign_splits(
    cases: Sequence[str],
    members: Mapping[str, str],
    parameters: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, str]:
    """Return the splits of all `cases` (ids), in their order; those in `members` keep theirs.

    Cases of one design, by their `parameters`, have one split: a test of a design that was trained
    on, with other settings or on another mesh, would flatter.
    """
    splits = {case: members[case] for case in cases if case in members}
    designs = {case: str(sorted(of.items())) for case, of in (parameters or {}).items() if of}
    taken = {designs[case]: split for case, split in members.items() if case in designs}
    counts = Counter(splits.values())

    def rank(case: str) -> str:  # whatever else is published with the case
        return hashlib.sha256(f"{SEED}:{case}".encode()).hexdigest()

    waiting = sorted((case for case in cases if case not in members), key=rank)
    # Judged by an outermost design, a model of few cases extrapolates.
    outer = _outermost({case: (parameters or {}).get(case, {}) for case in waiting})
    while waiting:
        total, case = sum(counts[split] for split in RATIOS) + 1, waiting[0]
        # Training comes first, then one case each for test and validation.
        lacks = [split for split in ("test", "validation") if not counts[split]]
        if counts["train"] and lacks:
            split = lacks[0]
            case = next((case for case in waiting if case not in outer), case)
        else:
            split = max(RATIOS, key=lambda of: (RATIOS[of] * total - counts[of], of == "train"))
        design = designs.get(case, case)
        splits[case] = taken[design] = split = taken.get(design, split)
        counts[split] += 1
        waiting.remove(case)
    return {case: splits[case] for case in cases}


def _outermost(designs: Mapping[str, Mapping[str, float]]) -> set[str]:
    """Return the ids of designs with the least or the greatest value of a parameter, of a few."""
    if len(designs) >= FEW:
        return set()
    found = set[str]()
    for name in set().union(*designs.values()):
        column = {case: of[name] for case, of in designs.items() if name in of}
        ends = {min(column.values()), max(column.values())}
        found |= {case for case, value in column.items() if len(ends) > 1 and value in ends}
    return found


def note_of_few(splits: Iterable[str | None], least: int = 0) -> str:
    """Return a note where one or two cases will test a model, or less than `least` train it."""
    counts, notes = Counter(splits), list[str]()
    if (tests := counts["test"]) in (1, 2):
        few = f"{tests} test case{'s' * (tests > 1)} will judge a model, which proves little"
        notes.append(f"{few}; of 18 cases three are drawn")
    if (trained := counts["train"]) < least:
        few = "no model is trained on a single case"
        if trained > 1:
            few = f"with {trained} training cases a model has quantities, by a regression, but"
            few += f" hardly fields, which take {least} or more here"
        notes.append(few)
    return "; ".join(notes)


#: Key of a record of moments: what they leave out. Of a case: numbers of snapshots; of the training
#: split: the fields of `LeftOut`.
LEFT_OUT = "left_out"
#: One of so many snapshots or cases may be left out, one at least; of fewer than `LEAST` none.
ONE_OF, LEAST = 20, 5
#: The share of the sum of squared deviations that those few have: without them the standard
#: deviation is a third of what it was, or a tenth.
SHARE_OF_SNAPSHOTS, SHARE_OF_CASES = 0.9, 0.99
#: What is left must vary by more than rounding does, relative to the values, unless what is left
#: out is so many times as large as these.
ROUNDING, BEYOND = 1e-5, 1e3


@dataclass(frozen=True)
class LeftOut:
    """Snapshots and cases that the training split's statistics of a field leave out."""

    snapshots: int = 0
    of_cases: int = 0  # The number of cases that the snapshots are of
    cases: Sequence[str] = ()
    """Ids of cases that are left out whole, of statistics, training and validation"""


def settled(values: np.ndarray, time: np.ndarray | None, startup_s: float) -> dict[str, Any]:
    """Return the record of a field's moments behind the start-up, without snapshots that dominate.

    `values` are (T, N, C), or (N, C) of a steady case, which has no snapshots to leave out. A case
    that ends in its start-up counts whole.
    """
    if time is None:
        return moments(values).to_record()
    first = int(np.searchsorted(time, startup_s * (1 + 1e-9), side="right")) if startup_s else 0
    first = first if first < len(time) else 0
    each = [moments(snapshot) for snapshot in values[first:]]
    left_out = [first + number for number in _dominant(each, SHARE_OF_SNAPSHOTS)]
    if not left_out:
        return moments(values[first:]).to_record()
    kept = [number for number in range(first, len(values)) if number not in left_out]
    return {**moments(values[kept]).to_record(), LEFT_OUT: left_out}


def outlying(
    training: Mapping[str, Mapping[str, Mapping[str, Any]]],
    others: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> list[str]:
    """Return the ids of cases that have nearly all variance of a field, such as diverged ones.

    Both map ids to records of moments by field. `others` are judged by the training cases left.
    """
    found: set[str] = set()
    for name in next(iter(training.values())).keys() - {"points"}:
        parts = {case: Moments.from_record(record[name]) for case, record in training.items()}
        dominant = [list(parts)[number] for number in _dominant(list(parts.values()))]
        kept = [part for case, part in parts.items() if case not in dominant]
        found.update(dominant)
        if len(kept) + 1 < LEAST:
            continue
        centre = np.median([part.mean for part in kept], axis=0)
        total = sum(_away(part, centre) for part in kept)
        for case, record in others.items():
            part = Moments.from_record(record[name])
            if (_away(part, centre) > total).any() and len(kept) in _dominant([*kept, part]):
                found.add(case)
    return [case for case in (*training, *others) if case in found]


def combine_training(
    records: Mapping[str, Mapping[str, Any]], left_out: Sequence[str] = ()
) -> dict[str, Any]:
    """Combine the moments of a field of training cases by id, without the outlying ones."""
    kept = [record for case, record in records.items() if case not in left_out]
    first, *rest = map(Moments.from_record, kept)
    for each in rest:
        first = first.merge(each)
    snapshots = [len(record[LEFT_OUT]) for record in kept if LEFT_OUT in record]
    if not left_out and not snapshots:
        return first.to_record()
    listed = {"snapshots": sum(snapshots), "of_cases": len(snapshots), "cases": list(left_out)}
    return {**first.to_record(), LEFT_OUT: listed}


def _dominant(parts: Sequence[Moments], share: float = SHARE_OF_CASES) -> list[int]:
    """Return the numbers of the few parts that have `share` of a component's squared deviations."""
    if len(parts) < LEAST:
        return []
    count = sum(part.count for part in parts)
    centre = np.median([part.mean for part in parts], axis=0)  # which the few do not move
    away = np.stack([_away(part, centre) for part in parts])
    magnitude = np.median([part.squares / part.count + part.mean**2 for part in parts], axis=0)
    noise = ROUNDING**2 * magnitude * count
    size = np.max([part.size for part in parts], axis=0)
    found: set[int] = set()
    for component in np.flatnonzero(is_significant(np.sqrt(away.sum(axis=0) / count), size)):
        of = away[:, component]
        order = np.argsort(of)[::-1]
        begin, end = 0, max(1, len(of) // ONE_OF)
        while begin < end:  # as long as a few of the rest have `share`
            rest = of[order[begin:]]
            enough = np.flatnonzero(np.cumsum(rest[: end - begin]) >= share * rest.sum())
            if not len(enough):
                break
            is_wrecked = rest[0] > (BEYOND / ROUNDING) ** 2 * noise[component]
            if rest[enough[0] + 1 :].sum() <= noise[component] and not is_wrecked:
                break
            begin += int(enough[0]) + 1
        found.update(order[:begin].tolist())
    return sorted(found)


def _away(part: Moments, centre: np.ndarray) -> np.ndarray:
    """Return a part's squared deviations from the centre, (C,)."""
    return np.asarray(part.squares + part.count * (part.mean - centre) ** 2)
