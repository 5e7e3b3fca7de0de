"""Average a number over nearby designs, drawn towards its mean over all designs.

Designs are scaled to -1..1 over the ranges of their parameters. Where data are few, or neighbours
tell nothing of one another, the average is the mean of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

#: Weight of the mean of all designs, in designs.
PRIOR = 2.0
#: Lengths that are tried, for one parameter; distances grow with the root of their number.
LENGTHS = (0.25, 0.5, 1.0, np.inf)

Loss = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Loss of means (n,) against values (n,), (n,)"""


@dataclass(frozen=True)
class KernelMean:
    """A Gaussian kernel's average of values (n,) at designs (n, P)."""

    designs: np.ndarray
    values: np.ndarray
    length: float
    """Infinite: the same mean everywhere"""

    def at(self, designs: np.ndarray) -> np.ndarray:
        """Return the average near each of (k, P) designs, (k,)."""
        weights = self._weights(designs)
        mean = self.values.mean()
        return (PRIOR * mean + weights @ self.values) / (PRIOR + weights.sum(1))

    def left_out(self) -> np.ndarray:
        """Return the average near each of the designs, from all others, (n,)."""
        number = len(self.values)
        if number < 2:
            return np.full(number, np.nan)
        weights = self._weights(self.designs)
        np.fill_diagonal(weights, 0.0)
        mean = (self.values.sum() - self.values) / (number - 1)
        return (PRIOR * mean + weights @ self.values) / (PRIOR + weights.sum(1))

    def _weights(self, designs: np.ndarray) -> np.ndarray:
        return np.exp(-cdist(designs, self.designs, "sqeuclidean") / (2 * self.length**2))


def fit_kernel_mean(designs: np.ndarray, values: np.ndarray, loss: Loss) -> KernelMean:
    """Choose the length with the least leave-one-out loss; without locality where it is no less."""
    root = np.sqrt(max(1, designs.shape[1]))
    candidates = [KernelMean(designs, values, float(length * root)) for length in LENGTHS[::-1]]
    if len(values) < 2:
        return candidates[0]
    return min(candidates, key=lambda each: float(loss(each.left_out(), values).sum()))


def share_loss(means: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """Return the loss of shares of outcomes that are 0 or 1: the Bernoulli distribution's."""
    shares = np.clip(means, 1e-6, 1 - 1e-6)
    return -np.where(outcomes > 0, np.log(shares), np.log(1 - shares))
