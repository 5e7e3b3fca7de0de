"""Moments of components, by streaming, and the one rule of what in them is information.

Welford's update in Chan's form for blocks: Welford, Technometrics 4 (1962) 419; Chan, Golub,
LeVeque, Am. Stat. 37 (1983) 242.

The rule decides which components are channels of a model (`is_significant`), and which precision an
array is stored in (`stored_type`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK_BYTES = 1 << 24
#: The share of the largest component's squared deviations below which a component is noise, such as
#: the third component of a flow in the plane or in a wedge.
INSIGNIFICANT = 1e-8
#: The share of the largest value below which a deviation is noise: rounding in double precision is
#: 1e-16 of a value, and a solver's operations enlarge it.
NOISE = 1e-10
#: The most that the spacing of single precision may be of a field's deviation, or of the distance
#: between points. Beyond that double precision is stored.
SPACING = 1e-3


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
        zeros, bound = np.zeros(components), np.full(components, np.inf)
        return cls(0, zeros, zeros, bound, -bound)

    def add(self, values: np.ndarray) -> None:
        """Take in a block (..., C)."""
        flat = np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1])
        if not len(flat):
            return
        # Along a long axis numpy reduces several times faster than along one of a few components.
        block = np.ascontiguousarray(flat.T)
        mean = block.mean(axis=1)
        deviation = block - mean[:, None]
        squares = np.einsum("cn,cn->c", deviation, deviation)
        of_block = Moments(len(flat), mean, squares, block.min(axis=1), block.max(axis=1))
        vars(self).update(vars(self.merge(of_block)))

    def merge(self, other: Moments) -> Moments:
        total = self.count + other.count
        shift = other.mean - self.mean
        return Moments(
            total,
            self.mean + shift * other.count / total,
            self.squares + other.squares + shift**2 * self.count * other.count / total,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def deviation(self) -> np.ndarray:
        """(C,), the population's standard deviation"""
        return np.asarray(np.sqrt(self.squares / max(1, self.count)))

    @property
    def size(self) -> np.ndarray:
        """(C,), the largest magnitude"""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def stored_type(self) -> np.dtype[Any]:
        """float32 where that keeps what varies of every component, else float64"""
        return np.dtype("f4" if fits_single(self.deviation, self.size).all() else "f8")

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Moments:
        mean, std, low, high = (
            np.asarray(record[name], dtype=float) for name in ("mean", "std", "min", "max")
        )
        return cls(int(record["count"]), mean, std**2 * record["count"], low, high)

    def to_record(self) -> dict[str, Any]:
        """Return a JSON-ready record."""
        return {
            "count": self.count,
            "mean": self.mean.tolist(),
            "std": self.deviation.tolist(),
            "min": self.low.tolist(),
            "max": self.high.tolist(),
        }


def moments(values: np.ndarray) -> Moments:
    """Compute the moments of an array (..., C), in blocks along its first axis to save memory."""
    result = Moments.empty(values.shape[-1])
    for block in np.array_split(values, max(1, values.nbytes // BLOCK_BYTES)):
        result.add(block)
    return result


def is_significant(deviation: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return (C,), whether each component of a field varies by more than noise.

    `deviation` (C,) are standard deviations, `size` (C,) the largest magnitudes.
    """
    share = INSIGNIFICANT * np.max(deviation**2, initial=0.0)
    return np.asarray((deviation > NOISE * size) & (deviation**2 > share))


def fits_single(deviation: Any, size: Any) -> np.ndarray:
    """Return whether single precision keeps what varies of values of that size."""
    with np.errstate(over="ignore", invalid="ignore"):  # values that no check has passed yet
        spacing = np.spacing(np.asarray(size, dtype=np.float32))
    return np.asarray((spacing <= SPACING * deviation) | (deviation <= NOISE * size))


_SINGLE = (np.float16, np.float32, np.bool_)


def stored_type(values: np.ndarray) -> np.dtype[Any]:
    """Return the type in which a field (..., C) is stored: float32 where that keeps what varies."""
    is_single = not values.size or values.dtype in _SINGLE
    return np.dtype("f4") if is_single else moments(values).stored_type


def stored_type_of_points(points: np.ndarray, dimension: int) -> np.dtype[Any]:
    """Return the type in which points (N, 3) in m are stored: float32 unless far from the origin.

    It is enough where its spacing is small beside the mean distance between points.
    """
    if not points.size or points.dtype in _SINGLE:
        return np.dtype("f4")
    distance = np.ptp(points, axis=0).max() / len(points) ** (1 / dimension)
    return np.dtype("f4" if fits_single(distance, np.abs(points).max()) else "f8")
