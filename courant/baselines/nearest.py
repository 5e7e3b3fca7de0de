"""Find the points of a cloud that are nearest to others, and interpolate between them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_MOST_DISTANCES = 2**24
"""Distances held at a time, 64 MiB"""
_CLOSE = 1e-12
"""Squared distance below which a point counts as met, in normalised coordinates"""


class Neighbours(NamedTuple):
    """The k points of a cloud that are nearest to each of P places, nearest first."""

    numbers: Tensor
    """(B, P, k) int64"""
    squared: Tensor
    """(B, P, k), squared distances; inf where the cloud has no such point"""

    @property
    def there(self) -> Tensor:
        """(B, P, k) bool, False where the cloud has no such point."""
        return self.squared.isfinite()

    def gather(self, values: Tensor) -> Tensor:
        """(B, N, c) at the cloud's points -> (B, P, k, c)."""
        flat = self.numbers.flatten(1)[..., None].expand(-1, -1, values.shape[-1])
        return values.gather(1, flat).unflatten(1, self.numbers.shape[1:])

    def interpolate(self, values: Tensor) -> Tensor:
        """Weigh (B, N, c) by the inverse square of the distance, (B, P, c).

        At a point of the cloud this is that point's value.
        """
        weights = self.there / (self.squared + _CLOSE)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=_CLOSE)
        return (weights[..., None] * self.gather(values)).sum(2)


@torch.no_grad()
def find_nearest(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, *, others: bool = False
) -> Neighbours:
    """Find the `num` real points (B, N, d) nearest to each place (B, P, d).

    With `others` a point at the place itself does not count.
    """
    kept = min(num, points.shape[1])
    chunk = max(1, _MOST_DISTANCES // (points.shape[0] * points.shape[1]))
    parts = []
    for part in places.split(chunk, dim=1):
        # The product form of distances is faster, and does not give zero where points coincide.
        distance = torch.cdist(part, points, compute_mode="donot_use_mm_for_euclid_dist")
        squared = distance.square()
        if mask is not None:
            squared = squared.masked_fill(~mask[:, None], torch.inf)
        if others:
            squared = squared.masked_fill(squared == 0, torch.inf)
        parts.append(squared.topk(kept, dim=-1, largest=False))
    squared = torch.cat([part.values for part in parts], 1)
    return Neighbours(torch.cat([part.indices for part in parts], 1), squared)
