"""Tell what size errors usually have near a design, from errors at other designs.

The logarithm of the size is regressed on the design parameters and their squares, by ridge
regression. How many of these terms count is decided by leave-one-out errors, which ridge
regression gives in closed form; where the parameters tell nothing, the size is the same everywhere.
Designs are scaled to -1..1 over the ranges of their parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RIDGES = (0.3, 3.0, 30.0)
#: Gain in log-likelihood from which on parameters count.
LEAST_GAIN = 2.0
#: The least size that is told apart, over the median: logarithms of smaller errors say nothing.
LEAST_SIZE = 0.02


@dataclass(frozen=True)
class ErrorSize:
    """Sizes exp(terms @ weights), (n,) at the designs that they were fitted to."""

    degree: int
    """0: the same everywhere; 1: parameters; 2: their squares too"""
    weights: np.ndarray
    left_out: np.ndarray
    """(n,) sizes near each design, from all others"""

    def at(self, designs: np.ndarray) -> np.ndarray:
        """Return the usual size near (k, P) designs, (k,)."""
        return np.exp(_terms(designs, self.degree) @ self.weights)


def fit_error_size(designs: np.ndarray, errors: np.ndarray) -> ErrorSize:
    """Fit sizes to errors (n,) that are not negative, of which one at least is positive."""
    floor = LEAST_SIZE * float(np.median(errors[errors > 0]))
    sizes = np.maximum(errors, floor)
    best = fit_of_degree(designs, sizes, 0, 0.0)
    least = _loss(best, sizes) - LEAST_GAIN
    for degree in (1, 2):
        for ridge in RIDGES:
            fitted = fit_of_degree(designs, sizes, degree, ridge)
            if (loss := _loss(fitted, sizes)) < least:
                best, least = fitted, loss
    return best


def _terms(designs: np.ndarray, degree: int) -> np.ndarray:
    powers = [np.ones((len(designs), 1)), designs, designs**2 - 1 / 3]
    return np.concatenate(powers[: degree + 1], axis=1)


def fit_of_degree(designs: np.ndarray, sizes: np.ndarray, degree: int, ridge: float) -> ErrorSize:
    """Fit sizes (n,) that are positive by a ridge regression of one degree."""
    terms, logs = _terms(designs, degree), np.log(sizes)
    penalty = ridge * np.eye(terms.shape[1])
    penalty[0, 0] = 0.0
    solved = np.linalg.solve(terms.T @ terms + penalty, terms.T)
    weights = solved @ logs
    leverage = np.minimum((terms * solved.T).sum(axis=1), 1 - 1e-6)
    left_out = np.exp(logs - (logs - terms @ weights) / (1 - leverage))
    # The mean of a logarithm is not the logarithm of the mean.
    factor = float((sizes / left_out).mean())
    weights[0] += np.log(factor)
    return ErrorSize(degree, weights, factor * left_out)


def _loss(fitted: ErrorSize, sizes: np.ndarray) -> float:
    """Return the negative log-likelihood of exponentially distributed sizes, left out."""
    return float((np.log(fitted.left_out) + sizes / fitted.left_out).sum())
