"""Choose anchors among the points of a cloud: far apart, closer together where that is asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from courant.model.anchors import farthest_point_sampling, gather_points

NEIGHBOURS = 8
"""Places whose closeness a point takes the mean of, by the inverse square of their distance"""
_NEAR = 1e-3
"""Distance in length scales below which a place counts as this far away"""


@dataclass(frozen=True)
class AnchorChoice:
    """How many anchors are sampled from each cloud, and where they lie closer together.

    Nothing of it is learned: the same cloud has the same anchors in training and prediction.
    """

    num: int
    closer: tuple[tuple[float, float, float, float], ...] = ()
    """Places x, y, z in normalised coordinates, and how many times closer anchors lie there than
    where the number is one; empty = equally far everywhere
    """

    def among(self, points: Tensor, mask: Tensor | None = None) -> Tensor:
        """Choose (B, L, 3) anchors among (B, N, 3) normalised points by farthest point sampling.

        It starts from the point nearest the centroid. `mask` (B, N) is True at real points.
        """
        if self.num == 0:
            return points.new_zeros(len(points), 0, points.shape[-1])
        closeness = None
        if self.closer:
            closeness = torch.from_numpy(self.closeness_at(points.detach().cpu().numpy()))
            closeness = closeness.to(points)
        return gather_points(points, farthest_point_sampling(points, self.num, mask, closeness))

    def closeness_at(self, points: np.ndarray) -> np.ndarray:
        """Return (...), the closeness at points (..., 3) from that of the nearest places."""
        if not self.closer:
            return np.ones(points.shape[:-1])
        places = np.array(self.closer)
        number = min(NEIGHBOURS, len(places))
        distance, nearest = cKDTree(places[:, :3]).query(points, k=number)
        shape = (*points.shape[:-1], number)
        weight = 1 / np.maximum(distance.reshape(shape), _NEAR) ** 2
        found = (weight * places[nearest.reshape(shape), 3]).sum(-1) / weight.sum(-1)
        return np.asarray(found)
