"""Measure how few anchors carry a prediction, and how much of them cancels.

curve         sum of the k largest E_k over sum of all E_k
Gini          0 where all anchors carry the same energy, 1 - 1/L where one carries all
cancellation  integral of sum_k |delta_k| over integral of |sum_k delta_k|: 1 where none cancels
"""

from __future__ import annotations

import numpy as np

from courant.analysis.decomposition.anchor_fields import AnchorFields


def energy_curve(energies: np.ndarray) -> np.ndarray:
    """Return the share of the energy that the k strongest hold, for k = 0..L: (L + 1,)."""
    held = np.concatenate([[0.0], np.cumsum(np.sort(energies)[::-1])])
    return held / held[-1] if held[-1] else held


def top_share(energies: np.ndarray, number: int) -> float:
    """Return the share of the energy that the `number` strongest hold."""
    return float(energy_curve(energies)[min(number, len(energies))])


def gini(energies: np.ndarray) -> float:
    """Return the Gini coefficient of the energies, 0 (all alike) to 1 - 1/L (one has all)."""
    total, num = float(energies.sum()), len(energies)
    if not total:
        return 0.0
    ranks = np.arange(1, num + 1)
    return float(2 * (ranks @ np.sort(energies)) / (num * total) - (num + 1) / num)


def cancellation(fields: AnchorFields) -> float:
    """Return how many times larger the fields are than their sum; 1 is the least, NaN of zero."""
    shares = fields.shares
    apart = float((fields.magnitudes @ shares).sum())
    together = float(fields.total @ shares)
    return apart / together if together else float("nan")
