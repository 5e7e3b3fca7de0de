"""Give every error an address: the anchors that the erroneous points listen to.

At each point the weights of the anchors sum to one (heads averaged), so the squared error divides
among them without a rest:

    E_k = integral of w_k |e|^2        sum over k of E_k = integral of |e|^2, exactly
    V_k = integral of w_k              sum over k of V_k = 1

e is in standard deviations. E_k / V_k is the mean square error where anchor k is listened to. This
says where the error is and who speaks there; it does not prove that the anchor causes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WORST_SHARE = 0.1
"""Share of the anchors whose part in the error is reported"""


@dataclass(frozen=True)
class ErrorAddresses:
    """The squared error of a prediction, divided among L anchors."""

    errors: np.ndarray
    """E_k: (L,)"""
    governed: np.ndarray
    """V_k: (L,), each anchor's share of the volume"""
    centres: np.ndarray
    """The centroid of w_k |e|^2, (L, d) m; NaN where E_k is zero"""
    squared: np.ndarray
    """|e|^2 at each point: (M,)"""

    @classmethod
    def joined(cls, parts: Sequence[AddressSums]) -> ErrorAddresses:
        """Join sums over parts of the points, in order."""
        volume = float(sum(part.volume for part in parts))
        errors = np.sum([part.errors for part in parts], axis=0)
        moments = np.sum([part.moments for part in parts], axis=0)
        places = np.full_like(moments, np.nan)
        np.divide(moments, errors[:, None], out=places, where=errors[:, None] > 0)
        return cls(
            errors / volume,
            np.sum([part.governed for part in parts], axis=0) / volume,
            places,
            np.concatenate([part.squared for part in parts]),
        )

    @property
    def total(self) -> float:
        """Return the mean square error over the volume, summed over the components."""
        return float(self.errors.sum())

    @property
    def densities(self) -> np.ndarray:
        """Return E_k / V_k, the mean square error where each anchor is listened to: (L,)."""
        return np.divide(
            self.errors, self.governed, out=np.zeros_like(self.errors), where=self.governed > 0
        )

    @property
    def worst(self) -> np.ndarray:
        """Return the numbers of the anchors, the one that carries most of the error first."""
        return np.argsort(-self.errors, kind="stable")

    def carried(self, share: float = WORST_SHARE) -> float:
        """Return the part of the error at the worst `share` of the anchors, at least one."""
        number = max(1, round(share * len(self.errors)))
        total = self.total
        return float(self.errors[self.worst[:number]].sum()) / total if total else 0.0


@dataclass(frozen=True)
class AddressSums:
    """What adds up over parts of the points."""

    errors: np.ndarray
    governed: np.ndarray
    moments: np.ndarray
    """sum of V w_k |e|^2 x: (L, d)"""
    squared: np.ndarray
    volume: float


def address_sums(
    weights: np.ndarray, errors: np.ndarray, points: np.ndarray, volumes: np.ndarray
) -> AddressSums:
    """Divide the errors (M, C) at some points (M, d) by weights (M, L) that sum to one."""
    weights, volumes = weights.astype(np.float64), volumes.astype(np.float64)
    # In single precision the weights sum to one to 1e-7 only.
    weights = weights / weights.sum(axis=1, keepdims=True)
    squared = np.square(errors, dtype=np.float64).sum(axis=1)
    carried = weights * (volumes * squared)[:, None]
    return AddressSums(
        errors=carried.sum(axis=0),
        governed=volumes @ weights,
        moments=carried.T @ points.astype(np.float64),
        squared=squared,
        volume=float(volumes.sum()),
    )
