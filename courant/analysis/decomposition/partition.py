"""Measure the regions that anchors divide the domain into, and which anchors move with the flow.

    dominant anchor     the anchor of largest weight at a point, heads averaged
    contiguity          the share of the volume in the largest connected piece of its region
    temporal variance   v_k = mean over time of |delta_k - its mean|^2 / mean of |delta_k|^2

A contiguity of 1 means that every region is in one piece. Neighbours are the nearest points, so in
cells that are stretched across a layer even one region over everything falls into pieces; there
contiguity tells nothing (`is_connected`). v_k is 0 for an anchor whose field stands
still and 1 for one that swings around zero.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

NEIGHBOURS = {1: 2, 2: 6, 3: 10}
"""Nearest points that count as neighbours, by the dimension of the domain"""
CONNECTED = 0.99


def dominant_anchors(weights: np.ndarray) -> np.ndarray:
    """Return the number of the anchor of largest weight at each point: (M, L) -> (M,)."""
    return np.argmax(weights, axis=-1)


def neighbour_pairs(points: np.ndarray, dimension: int) -> np.ndarray:
    """Return pairs of neighbouring points (P, 2): each point with its nearest ones.

    Points on the two sides of a body thinner than the cells around it are neighbours too.
    """
    number = min(NEIGHBOURS[dimension] + 1, len(points))
    near = cKDTree(points[:, :dimension]).query(points[:, :dimension], k=number)[1]
    near = np.asarray(near).reshape(len(points), number)[:, 1:]
    own = np.repeat(np.arange(len(points)), near.shape[1])
    return np.stack([own, near.ravel()], axis=1)


def is_connected(volumes: np.ndarray, pairs: np.ndarray) -> bool:
    """Tell whether neighbours make all of the domain one piece, but for a hundredth."""
    return contiguity(np.zeros(len(volumes), int), volumes, pairs) >= CONNECTED


def contiguity(labels: np.ndarray, volumes: np.ndarray, pairs: np.ndarray) -> float:
    """Return the share of the volume that lies in the largest piece of its region, 0..1."""
    alike = pairs[labels[pairs[:, 0]] == labels[pairs[:, 1]]]
    num = len(labels)
    graph = coo_array((np.ones(len(alike), bool), (alike[:, 0], alike[:, 1])), shape=(num, num))
    num_pieces, piece = connected_components(graph, directed=False)
    sizes = np.bincount(piece, weights=volumes, minlength=num_pieces)
    largest = np.zeros(int(labels.max()) + 1)
    np.maximum.at(largest, labels, sizes[piece])
    return float(largest.sum() / volumes.sum())


def temporal_moments(fields: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """Return sums over points of V Var_t(delta_k) and V mean_t |delta_k|^2, (2, L).

    `fields` are (T, L, M, C). The sums add up over parts of the points.
    """
    mean = fields.mean(axis=0)
    variance = np.square(fields - mean).mean(axis=0).sum(axis=-1)
    power = np.square(fields).mean(axis=0).sum(axis=-1)
    return np.stack([variance @ volumes, power @ volumes]).astype(np.float64)


def temporal_variance(moments: np.ndarray) -> np.ndarray:
    """Return v_k, (L,), from the summed moments (2, L); NaN for a field without energy."""
    variance, power = moments
    return np.divide(variance, power, out=np.full_like(power, np.nan), where=power > 0)
