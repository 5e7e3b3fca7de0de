"""Give a mean with its interval: 95 %, by Student's distribution of few values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

COVERAGE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean, and how far the interval reaches to each side."""

    mean: float
    half_width: float | None
    """None for a single value, which says nothing about the spread"""
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Return the interval of the values' mean."""
        mean, count = float(np.mean(values)), len(values)
        if count < 2:
            return cls(mean, None, count)
        quantile = float(stdtrit(count - 1, (1 + COVERAGE) / 2))
        return cls(mean, quantile * float(np.std(values, ddof=1)) / math.sqrt(count), count)

    @property
    def low(self) -> float:
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        return self.mean + (self.half_width or 0.0)

    def text(self, digits: int = 3) -> str:
        """`0.123 ± 0.004`, to so many significant digits of the mean."""
        if self.half_width is None or not math.isfinite(self.mean):
            return f"{self.mean:.{digits}g}"
        size = math.floor(math.log10(abs(self.mean))) if self.mean else 0
        places = max(0, digits - 1 - size)
        return f"{self.mean:.{places}f} ± {self.half_width:.{places}f}"
