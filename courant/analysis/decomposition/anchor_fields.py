"""Reduce the fields of anchors to what their scores need, one part of the points at a time.

A field delta_k is one anchor's contribution to a prediction, in standard deviations of the training
cases, so that components of different units count alike. Integrals over the domain are weighted by
the cells' volumes and divided by the total volume: an energy is a mean square, without a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class AnchorFields:
    """L fields at M points, reduced: memory grows as L M, not as L M C."""

    points: np.ndarray
    """(M, d) m"""
    volumes: np.ndarray
    """(M,) of the cells, in any unit; ones where the dataset has none"""
    magnitudes: np.ndarray
    """|delta_k(x)|, the norm over the components: (L, M)"""
    total: np.ndarray
    """|sum_k delta_k(x)|: (M,)"""
    products: np.ndarray
    """sum over points of V delta_k . delta_l, not yet divided by the total volume: (L, L)"""
    anchors: np.ndarray | None = None
    """(L, d) m; None for anchors without positions"""

    @classmethod
    def of(
        cls,
        fields: np.ndarray,
        points: np.ndarray,
        volumes: np.ndarray,
        anchors: np.ndarray | None = None,
    ) -> AnchorFields:
        """Reduce fields (L, M, C)."""
        scaled = (fields * np.sqrt(volumes)[:, None].astype(fields.dtype)).reshape(len(fields), -1)
        return cls(
            points=points,
            volumes=volumes,
            magnitudes=np.linalg.norm(fields, axis=-1),
            total=np.linalg.norm(fields.sum(axis=0), axis=-1),
            products=(scaled @ scaled.T).astype(np.float64),
            anchors=anchors,
        )

    @classmethod
    def joined(cls, parts: Sequence[AnchorFields]) -> AnchorFields:
        """Join the fields at parts of the points, in order."""
        return replace(
            parts[0],
            points=np.concatenate([part.points for part in parts]),
            volumes=np.concatenate([part.volumes for part in parts]),
            magnitudes=np.concatenate([part.magnitudes for part in parts], axis=1),
            total=np.concatenate([part.total for part in parts]),
            products=np.sum([part.products for part in parts], axis=0),
        )

    @property
    def num_anchors(self) -> int:
        return len(self.magnitudes)

    @cached_property
    def shares(self) -> np.ndarray:
        """Each cell's share of the volume: (M,), sum one."""
        volumes = self.volumes.astype(np.float64)
        return volumes / volumes.sum()

    @cached_property
    def centroids(self) -> np.ndarray:
        """c_k = integral of x |delta_k|^2 / E_k: (L, d) m, NaN for a field without energy."""
        found = np.full((self.num_anchors, self.points.shape[1]), np.nan)
        for number in range(self.num_anchors):
            cells, density = self.density(number)
            if energy := density.sum():
                found[number] = density @ self.points[cells] / energy
        return found

    def density(self, anchor: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells where a field is not zero, and its energy in each of them."""
        magnitude = self.magnitudes[anchor]
        cells = np.flatnonzero(magnitude)
        return cells, self.shares[cells] * np.square(magnitude[cells], dtype=np.float64)

    @property
    def gram(self) -> np.ndarray:
        """G_kl = integral of delta_k . delta_l over the domain: (L, L)."""
        return self.products / self.volumes.astype(np.float64).sum()

    @property
    def energies(self) -> np.ndarray:
        """E_k = integral of |delta_k|^2 over the domain: (L,)."""
        return np.diagonal(self.gram)
