"""Compute statistics of the training split, per component, by streaming.

Welford's update in Chan's form for blocks: Welford, Technometrics 4 (1962) 419; Chan, Golub,
LeVeque, Am. Stat. 37 (1983) 242.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK_BYTES = 1 << 24


@dataclass
class Moments:
    """Count, mean, sum of squared deviations and bounds of C components."""

    count: int
    mean: np.ndarray
    squares: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def empty(cls, components: int) -> Moments:
        return cls(
            0,
            np.zeros(components),
            np.zeros(components),
            np.full(components, np.inf),
            np.full(components, -np.inf),
        )

    def add(self, values: np.ndarray) -> None:
        """Take in a block (..., C)."""
        block = np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1])
        if not len(block):
            return
        mean = block.mean(axis=0)
        squares = ((block - mean) ** 2).sum(axis=0)
        merged = self.merge(
            Moments(len(block), mean, squares, block.min(axis=0), block.max(axis=0))
        )
        self.count = merged.count
        self.mean = merged.mean
        self.squares = merged.squares
        self.low = merged.low
        self.high = merged.high

    def merge(self, other: Moments) -> Moments:
        """Merge the moments of two sets of values."""
        total = self.count + other.count
        shift = other.mean - self.mean
        return Moments(
            total,
            self.mean + shift * other.count / total,
            self.squares + other.squares + shift**2 * self.count * other.count / total,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Moments:
        mean, std, low, high = (
            np.asarray(record[name], dtype=float) for name in ("mean", "std", "min", "max")
        )
        return cls(int(record["count"]), mean, std**2 * record["count"], low, high)

    def to_record(self) -> dict[str, Any]:
        """Return a JSON-ready record; the standard deviation is the population's."""
        std = np.sqrt(self.squares / max(1, self.count))
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "std": std.tolist(),
            "min": self.low.tolist(),
            "max": self.high.tolist(),
        }


def moments(values: np.ndarray) -> Moments:
    """Compute the moments of an array (..., C), in blocks along its first axis to save memory."""
    result = Moments.empty(values.shape[-1])
    for block in np.array_split(values, max(1, values.nbytes // BLOCK_BYTES)):
        result.add(block)
    return result


def first_settled(time: np.ndarray | None, startup_s: float) -> int:
    """Return the first snapshot behind the start-up; 0 for a steady case, or one without it."""
    if time is None or not startup_s:
        return 0
    first = int(np.searchsorted(time, startup_s * (1 + 1e-9), side="right"))
    return first if first < len(time) else 0


def combine(records: Iterable[Mapping[str, Any]]) -> Moments:
    """Combine the moments of several cases, as `to_record` kept them."""
    total: Moments | None = None
    for record in records:
        case = Moments.from_record(record)
        total = case if total is None else total.merge(case)
    if total is None:
        raise ValueError("no cases to combine")
    return total
