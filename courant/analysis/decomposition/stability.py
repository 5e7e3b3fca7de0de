"""Match the fields of two decompositions, across time, seeds or designs, and correlate them.

    correlation  c_kl = integral of a_k . b_l / (|a_k| |b_l|), in -1..1
    matching     the pairs k, l(k) that make the sum of the correlations largest (Hungarian)

The score is the mean of c_{k,l(k)} weighted by the energy of a_k, so that anchors that contribute
nothing do not count. 1 means that the same fields are there again, in whatever order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment


@dataclass(frozen=True)
class Matching:
    """Each field's partner in the other decomposition."""

    partners: np.ndarray
    """(K,) number of the partner; -1 for a field that is left over"""
    correlations: np.ndarray
    """(K,) with the partner; 0 for a field that is left over"""
    energies: np.ndarray
    """(K,) of the first decomposition's fields"""

    @property
    def score(self) -> float:
        """Return the mean correlation, weighted by energy."""
        total = float(self.energies.sum())
        return float(self.correlations @ self.energies) / total if total else 0.0

    @property
    def kept(self) -> float:
        """Return the share of the energy whose fields are their own partners."""
        total = float(self.energies.sum())
        own = self.partners == np.arange(len(self.partners))
        return float(self.energies[own].sum()) / total if total else 0.0


def products(first: np.ndarray, second: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """Return sum over points of V a_k . b_l, (K, L), of fields (K, M, C) and (L, M, C).

    It adds up over parts of the points.
    """
    scaled = (first * volumes[:, None].astype(first.dtype)).reshape(len(first), -1)
    return (scaled @ second.reshape(len(second), -1).T).astype(np.float64)


def product_sums(first: np.ndarray, second: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """Return products of fields, with both energies in a further row and column: (K + 1, L + 1)."""
    found = np.zeros((len(first) + 1, len(second) + 1))
    found[:-1, :-1] = products(first, second, volumes)
    found[:-1, -1] = np.square(first).sum(axis=-1) @ volumes
    found[-1, :-1] = np.square(second).sum(axis=-1) @ volumes
    return found


def match_parts(parts: Sequence[np.ndarray]) -> Matching:
    """Match fields by the `product_sums` of all parts of the points."""
    summed = np.sum(parts, axis=0)
    return match(summed[:-1, :-1], summed[:-1, -1], summed[-1, :-1])


def match(cross: np.ndarray, first: np.ndarray, second: np.ndarray) -> Matching:
    """Match fields by their products (K, L) and energies (K,) and (L,), all in the same unit."""
    norms = np.sqrt(np.outer(first, second))
    correlations = np.divide(cross, norms, out=np.zeros_like(cross), where=norms > 0)
    rows, columns = linear_sum_assignment(correlations, maximize=True)
    partners, found = np.full(len(first), -1), np.zeros(len(first))
    partners[rows], found[rows] = columns, correlations[rows, columns]
    return Matching(partners, found, np.asarray(first, dtype=np.float64))
