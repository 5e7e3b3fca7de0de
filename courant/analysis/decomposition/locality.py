"""Measure how local the fields of anchors are, and whether they lie where their anchors are.

    centroid            c_k = integral of x |delta_k|^2 / E_k
    radius of gyration  r_k = sqrt(integral of |x - c_k|^2 |delta_k|^2 / E_k)
    support             the smallest share of the volume that holds 90 % of E_k
    overlap             integral of |delta_k| |delta_l| / sqrt(E_k E_l), the mean over pairs k != l

Lengths are in m here; scores divide them by the spacing domain / sqrt(L), the paper's width of L
windows that tile the domain. A field without energy has no centroid: its numbers are NaN.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial import cKDTree

from courant.analysis.decomposition.anchor_fields import AnchorFields

ENERGY_SHARE = 0.9
"""Share of a field's energy that its support holds"""


def spacing(domain: float, num_anchors: int) -> float:
    """Return domain / sqrt(L) in m, the distance between anchors that tile a square domain."""
    return domain / math.sqrt(num_anchors)


def gyration_radii(fields: AnchorFields) -> np.ndarray:
    """Return the root mean square distance of each field's energy from its centroid, (L,) m."""
    found = np.full(fields.num_anchors, np.nan)
    for number, centre in enumerate(fields.centroids):
        cells, density = fields.density(number)
        if energy := density.sum():
            away = np.square(fields.points[cells] - centre).sum(axis=1)
            found[number] = math.sqrt(density @ away / energy)
    return found


def support_fractions(fields: AnchorFields, share: float = ENERGY_SHARE) -> np.ndarray:
    """Return the smallest share of the volume that holds `share` of each field's energy, (L,).

    Between a cell's volume and `share`, which a field of constant magnitude has.
    """
    found = np.full(fields.num_anchors, np.nan)
    for number, magnitude in enumerate(fields.magnitudes):
        cells, density = fields.density(number)
        order = np.argsort(-magnitude[cells])
        held = np.cumsum(density[order])
        if len(held):
            # Rounding must not add a cell to a sum that is exact.
            last = int(np.searchsorted(held, share * held[-1] * (1 - 1e-9)))
            found[number] = fields.shares[cells[order[: last + 1]]].sum()
    return found


def overlap(fields: AnchorFields) -> float:
    """Return the mean overlap of pairs of fields: 0 apart, 1 with the same magnitude everywhere."""
    roots, joint, num = np.sqrt(fields.shares), np.zeros(len(fields.points)), 0
    for magnitude in fields.magnitudes:
        scaled = roots * magnitude
        if norm := float(np.linalg.norm(scaled)):
            joint += scaled / norm
            num += 1
    # |sum of unit vectors|^2 is num plus the sum over ordered pairs.
    return max(0.0, float((joint @ joint - num) / (num * (num - 1)))) if num > 1 else 0.0


def anchor_distances(fields: AnchorFields) -> np.ndarray | None:
    """Return the distance from each anchor to its field's centroid, (L,) m; None without places."""
    if fields.anchors is None:
        return None
    return np.linalg.norm(fields.centroids - fields.anchors, axis=1)


def own_anchor_nearest(fields: AnchorFields) -> np.ndarray | None:
    """Tell for each field whether no anchor is nearer to its centroid than its own, (L,) bool."""
    if fields.anchors is None:
        return None
    centres = fields.centroids
    has_energy = np.isfinite(centres).all(axis=1)
    nearest = cKDTree(fields.anchors).query(np.nan_to_num(centres))[0]
    own = np.linalg.norm(centres - fields.anchors, axis=1)
    return has_energy & (own <= nearest * (1 + 1e-9))
