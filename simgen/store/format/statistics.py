"""Compute statistics of the training split, per component, from the moments of its cases.

A few snapshots of a sudden start, or one case that went wrong, may have nearly all of a component's
variance. A model that is normalised by it sees a constant everywhere else. Such snapshots and cases
are left out of the moments, and the record says which (`LEFT_OUT`). Without any the moments are
those of all values, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgen.moments import Moments, is_significant, moments

#: Key of a record of moments: what they leave out. Of a case: numbers of snapshots; of the training
#: split: {"snapshots": how many, "of_cases": of how many cases, "cases": ids that are left out}.
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
    """Ids of cases that are left out whole"""

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


def combine_training(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record of the training split's moments, from those of its cases by id.

    Cases that have nearly all variance are left out.
    """
    ids = list(records)
    ruling = [ids[n] for n in _ruling(list(map(Moments.from_record, records.values())))]
    kept = {case: record for case, record in records.items() if case not in ruling}
    combined = combine(kept.values()).to_record()
    snapshots = [len(record[LEFT_OUT]) for record in kept.values() if LEFT_OUT in record]
    if not ruling and not snapshots:
        return combined
    told = {"snapshots": sum(snapshots), "of_cases": len(snapshots), "cases": ruling}
    return {**combined, LEFT_OUT: told}


def _ruling(parts: Sequence[Moments], share: float = SHARE_OF_CASES) -> list[int]:
    """Return the numbers of the few parts that have `share` of a component's squared deviations.

    Deviations are from the median of the parts' means, which the few do not move.
    """
    if len(parts) < LEAST:
        return []
    count = np.array([part.count for part in parts])[:, None]
    mean = np.stack([part.mean for part in parts])
    squares = np.stack([part.squares for part in parts])
    away = squares + count * (mean - np.median(mean, axis=0)) ** 2
    magnitude = np.median(squares / count + mean**2, axis=0)
    noise = ROUNDING**2 * magnitude * count.sum()
    total, size = away.sum(axis=0), np.max([part.size for part in parts], axis=0)
    found: set[int] = set()
    for component in np.flatnonzero(is_significant(np.sqrt(total / count.sum()), size)):
        found |= _few(away[:, component], share, noise[component])
    return sorted(found)


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
