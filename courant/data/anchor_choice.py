"""Choose anchors among the points of a cloud: far apart, or in the middle of equal parts of it.

For the second, volumes are not needed: points that are sampled far apart represent about equal
volumes, however dense the cloud is. Eight such points for each anchor are divided into as many
groups by Lloyd's iteration (k-means), which makes the groups compact and about equal, and the point
of the cloud nearest to a group's mean is its anchor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from courant.model.anchors import farthest_point_sampling, gather_points

GROUP = 8
"""Points that stand for the volume of one anchor"""
ROUNDS = 20
"""Of Lloyd's iteration; anchors hardly move after these"""


@dataclass(frozen=True)
class AnchorChoice:
    """How many anchors are sampled from each cloud, and how they are spread.

    Nothing of it is learned: the same cloud has the same anchors in training and prediction.
    """

    num: int
    by: Literal["distance", "volume"] = "distance"

    def among(self, points: Tensor, mask: Tensor | None = None) -> Tensor:
        """Choose (B, L, 3) anchors among (B, N, 3) normalised points.

        `mask` (B, N) is True at real points. Farthest point sampling starts from the point nearest
        the centroid.
        """
        if self.num == 0:
            return points.new_zeros(len(points), 0, points.shape[-1])
        if self.by == "volume":
            return self._in_the_middle(points, mask)
        return gather_points(points, farthest_point_sampling(points, self.num, mask))

    def _in_the_middle(self, points: Tensor, mask: Tensor | None) -> Tensor:
        real = [slice(None)] * len(points) if mask is None else list(mask)
        return torch.stack(
            [self._of_one(cloud[here][None]) for cloud, here in zip(points, real, strict=True)]
        )

    def _of_one(self, cloud: Tensor) -> Tensor:
        """Return (L, 3), of a cloud (1, N, 3) without padding; zeros where it has no point."""
        if not cloud.shape[1]:
            return cloud.new_zeros(self.num, cloud.shape[-1])
        chosen = farthest_point_sampling(cloud, min(GROUP * self.num, cloud.shape[1]))
        middles = _middles(gather_points(cloud, chosen)[0], self.num)
        return cloud[0, torch.cdist(middles, cloud[0]).argmin(dim=1)]


def _middles(points: Tensor, num: int) -> Tensor:
    """Divide points (K, 3) into `num` compact groups, and return their means, (num, 3).

    It starts from the first `num` points, which farthest point sampling put far apart.
    """
    # Fewer points than anchors: some share one, as in farthest point sampling.
    middles = points[torch.arange(num, device=points.device) % len(points)]
    for _ in range(ROUNDS):
        group = torch.cdist(points, middles).argmin(dim=1)
        count = torch.zeros(num, device=points.device).index_add_(
            0, group, torch.ones(len(points), device=points.device)
        )
        total = torch.zeros_like(middles).index_add_(0, group, points)
        means = total / count.clamp(min=1)[:, None]
        middles = torch.where(count[:, None] > 0, means, middles)
    return middles
