"""Compute statistics of the training split, per component, from the moments of its cases.

A few snapshots of a sudden start, or one case that went wrong, may have nearly all of a component's
variance. A model that is normalised by it sees a constant everywhere else. Such snapshots are left
out of a field's moments, such cases of all moments, of training and of validation, and the record
says which (`LEFT_OUT`). Without any the moments are those of all values, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgen.moments import Moments, is_significant, moments

#: Key of a record of moments: what they leave out. Of a case: numbers of snapshots; of the training
#: split: {"snapshots": how many, "of_cases": of how many cases, "cases": ids that are left out, of
#: any split}.
LEFT_OUT = "left_out"
#: One of so many snapshots or cases may be left out, one at least; of fewer than `LEAST` none.
ONE_OF, LEAST = 20, 5
#: The share of the sum of squared deviations that those few have. Without them the standard
#: deviation is a third of what it was, or a tenth: designs differ more, and for better reasons.
SHARE_OF_SNAPSHOTS, SHARE_OF_CASES = 0.9, 0.99
#: What is left must vary by more than rounding does, relative to the values, unless what is left
#: out is so many times as large as these.
ROUNDING, BEYOND = 1e-5, 1e3


@dataclass(frozen=True)
class LeftOut:
    """Snapshots and cases that the training split's statistics of a field leave out."""

    snapshots: int = 0
    of_cases: int = 0
    """The number of cases that the snapshots are of"""
    cases: tuple[str, ...] = ()
    """Ids of cases that are left out whole, of statistics, training and validation"""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> LeftOut:
        of = record.get(LEFT_OUT, {"snapshots": 0, "of_cases": 0, "cases": ()})
        return cls(int(of["snapshots"]), int(of["of_cases"]), tuple(of["cases"]))


def first_settled(time: np.ndarray | None, startup_s: float) -> int:
    """Return the first snapshot behind the start-up; 0 for a steady case, or one without it."""
    if time is None or not startup_s:
        return 0
    first = int(np.searchsorted(time, startup_s * (1 + 1e-9), side="right"))
    return first if first < len(time) else 0


def settled(values: np.ndarray, time: np.ndarray | None, startup_s: float) -> dict[str, Any]:
    """Return the record of a field's moments behind the start-up, without snapshots that rule.

    `values` are (T, N, C), or (N, C) of a steady case, which has no snapshots to leave out.
    """
    first = first_settled(time, startup_s)
    ruling = [] if time is None else [first + each for each in ruling_snapshots(values[first:])]
    if not ruling:
        return moments(values[first:]).to_record()
    kept = [number for number in range(first, len(values)) if number not in ruling]
    return {**moments(values[kept]).to_record(), LEFT_OUT: ruling}


def ruling_snapshots(values: np.ndarray) -> list[int]:
    """Return the numbers of the few snapshots of (T, N, C) that have nearly all variance."""
    of = [Moments.empty(values.shape[-1]) for _ in values]
    for each, snapshot in zip(of, values, strict=True):
        each.add(snapshot)
    return _ruling(of, SHARE_OF_SNAPSHOTS)


def outlying(
    training: Mapping[str, Mapping[str, Mapping[str, Any]]],
    others: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> list[str]:
    """Return the ids of cases that have nearly all variance of a field, such as diverged ones.

    Both map a case's id to its records of moments by field. Training cases are judged by each
    other, and `others`, which statistics do not read, by the training cases that are left.
    """
    found: set[str] = set()
    for name in next(iter(training.values())).keys() - {"points"}:
        parts = {case: Moments.from_record(record[name]) for case, record in training.items()}
        ruling = [list(parts)[n] for n in _ruling(list(parts.values()))]
        kept = [part for case, part in parts.items() if case not in ruling]
        found.update(ruling)
        if len(kept) + 1 < LEAST:
            continue
        centre = np.median([part.mean for part in kept], axis=0)
        total = sum(_away(part, centre) for part in kept)
        for case, record in others.items():
            part = Moments.from_record(record[name])
            if (_away(part, centre) > total).any() and len(kept) in _ruling([*kept, part]):
                found.add(case)
    return [case for case in (*training, *others) if case in found]


def combine_training(
    records: Mapping[str, Mapping[str, Any]], left_out: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the record of the training split's moments of a field, from those of its cases by id.

    `left_out` are the cases that are `outlying`.
    """
    kept = [record for case, record in records.items() if case not in left_out]
    combined = combine(kept).to_record()
    snapshots = [len(record[LEFT_OUT]) for record in kept if LEFT_OUT in record]
    if not left_out and not snapshots:
        return combined
    told = {"snapshots": sum(snapshots), "of_cases": len(snapshots), "cases": list(left_out)}
    return {**combined, LEFT_OUT: told}


def _ruling(parts: Sequence[Moments], share: float = SHARE_OF_CASES) -> list[int]:
    """Return the numbers of the few parts that have `share` of a component's squared deviations.

    Deviations are from the median of the parts' means, which the few do not move.
    """
    if len(parts) < LEAST:
        return []
    count = sum(part.count for part in parts)
    centre = np.median([part.mean for part in parts], axis=0)
    away = np.stack([_away(part, centre) for part in parts])
    magnitude = np.median([part.squares / part.count + part.mean**2 for part in parts], axis=0)
    noise = ROUNDING**2 * magnitude * count
    size = np.max([part.size for part in parts], axis=0)
    found: set[int] = set()
    for component in np.flatnonzero(is_significant(np.sqrt(away.sum(axis=0) / count), size)):
        found |= _few(away[:, component], share, noise[component])
    return sorted(found)


def _away(part: Moments, centre: np.ndarray) -> np.ndarray:
    """Return the sum of a part's squared deviations from the centre (C,)."""
    return np.asarray(part.squares + part.count * (part.mean - centre) ** 2)


def _few(away: np.ndarray, share: float, noise: float) -> set[int]:
    """Return the parts of largest squared deviation, as long as a few of the rest have `share`."""
    order = np.argsort(away)[::-1]
    begin, end = 0, max(1, len(away) // ONE_OF)
    while begin < end:
        rest = away[order[begin:]]
        carried = np.cumsum(rest[: end - begin])
        enough = np.flatnonzero(carried >= share * rest.sum())
        if not len(enough):
            break
        is_wrecked = rest[0] > (BEYOND / ROUNDING) ** 2 * noise
        if rest[enough[0] + 1 :].sum() <= noise and not is_wrecked:
            break
        begin += int(enough[0]) + 1
    return set(order[:begin].tolist())


def combine(records: Iterable[Mapping[str, Any]]) -> Moments:
    """Combine the moments of several cases, as `to_record` kept them."""
    total: Moments | None = None
    for record in records:
        case = Moments.from_record(record)
        total = case if total is None else total.merge(case)
    if total is None:
        raise ValueError("no cases to combine")
    return total
