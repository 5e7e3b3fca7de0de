"""Find the points of a cloud that are nearest to others, and interpolate between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.spatial import cKDTree
from torch import Tensor
from torch.nn.functional import pad

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

    def at(self, nearest: Neighbours, elsewhere: Neighbours) -> Neighbours:
        """Return the neighbours (B, Q, k) of other places.

        They are those of the point (B, Q, 1) that is met there, and `elsewhere` where none is.
        """
        met = nearest.squared == 0
        here = Neighbours(*(nearest.gather(each)[:, :, 0] for each in self))
        here, other = _widened([here, elsewhere])
        return Neighbours(
            torch.where(met, here.numbers, other.numbers),
            torch.where(met, here.squared, other.squared),
        )

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
def connected(lists: Tensor, points: Tensor, mask: Tensor | None) -> Neighbours:
    """Return the neighbours (B, N, k) that a mesh lists for each point of its cloud (B, N, d).

    A number below zero, or that of a point which is not real, is no neighbour.
    """
    found = Neighbours(lists.clamp(min=0).long(), torch.zeros(lists.shape, device=points.device))
    there = lists >= 0
    if mask is not None:
        there = there & found.gather(mask[..., None])[..., 0]
    squared = (found.gather(points) - points[:, :, None]).square().sum(-1)
    return Neighbours(found.numbers, squared.masked_fill(~there, torch.inf))


def join(first: Neighbours, second: Neighbours) -> Neighbours:
    """Return the neighbours of some places followed by those of others, of one cloud."""
    parts = zip(*_widened([first, second]), strict=True)
    return Neighbours(*(torch.cat(part, dim=1) for part in parts))


def _widened(lists: Sequence[Neighbours]) -> list[Neighbours]:
    """Add absent neighbours, so that all lists are as long."""
    width = max(each.numbers.shape[2] for each in lists)

    def to_width(values: Tensor, nothing: float) -> Tensor:
        return pad(values, (0, width - values.shape[2]), value=nothing)

    return [
        Neighbours(to_width(each.numbers, 0), to_width(each.squared, torch.inf)) for each in lists
    ]


@torch.no_grad()
def find_nearest(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, *, others: bool = False
) -> Neighbours:
    """Find the `num` real points (B, N, d) nearest to each place (B, P, d).

    With `others` a point at the place itself does not count.
    """
    kept = min(num, points.shape[1])
    find = _by_trees if places.device.type == "cpu" else _by_distances
    return find(places, points, mask, kept, others)


def _by_distances(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, others: bool
) -> Neighbours:
    """Compare each place with each point, in parts that fit into a GPU's memory."""
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
        parts.append(squared.topk(num, dim=-1, largest=False))
    squared = torch.cat([part.values for part in parts], 1)
    return Neighbours(torch.cat([part.indices for part in parts], 1), squared)


def _by_trees(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, others: bool
) -> Neighbours:
    """Search a tree of each cloud, so that time does not grow with places times points."""
    masks = [None] * len(points) if mask is None else mask
    found = [_in_tree(*item, num, others) for item in zip(places, points, masks, strict=True)]
    numbers, squared = (torch.stack(parts) for parts in zip(*found, strict=True))
    return Neighbours(numbers, squared)


def _in_tree(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, others: bool
) -> tuple[Tensor, Tensor]:
    """Return numbers and squared distances, (P, num) each, of one cloud."""
    real = torch.arange(len(points)) if mask is None else mask.nonzero()[:, 0]
    if not len(real):
        none = places.new_full((len(places), num), torch.inf)
        return torch.zeros_like(none, dtype=torch.long), none
    tree = cKDTree(points[real].detach().double().numpy())
    at = places.detach().double().numpy()
    asked = num + others
    while True:
        found = tree.query(at, range(1, asked + 1))
        distance, nearest = map(torch.from_numpy, found)
        squared = distance.square().to(places.dtype)
        if others:
            squared = squared.masked_fill(squared == 0, torch.inf)
        if asked >= len(real) or (squared.isfinite().sum(1) >= num).all():
            break
        asked *= 2  # several points lie at one place
    squared, order = squared.sort(dim=1, stable=True)
    # Where the cloud has no further point, the tree gives a number that is none of its own.
    nearest = nearest.gather(1, order)[:, :num].clamp(max=len(real) - 1)
    return real[nearest], squared[:, :num]
