"""Decompose the mean of several predictions into the contributions of all members' anchors.

Each member's field is u_0 + sum_k delta_k (Eq. exact-decomp). So the mean over K members is the
mean of their offsets, and delta_k / K of each of their anchors. Weights are divided alike: in each
head they sum to one over the anchors of all members.

Shapes: B clouds, T steps, H heads, M queries, C channels, K members of L anchors each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from courant.field_model import Contributions, FieldDecomposition, MovesAnchors, Partitions


class Part(Contributions, Partitions, Protocol):
    """Contributions of a member, whose weights divide every point among its anchors."""


class MemberDecomposition(FieldDecomposition, MovesAnchors, Protocol):
    """The decomposition of a member."""

    def chunks(self, size: int = ...) -> Iterator[Part]:
        """Yield parts of at most `size` query points, in order."""

    def whole(self) -> Part:
        """Return all query points at once."""


@dataclass(frozen=True)
class MeanPart:
    """Contributions of all members' anchors at a slice of the query points."""

    parts: Sequence[Part]

    @property
    def queries(self) -> slice:
        return self.parts[0].queries

    @property
    def weights(self) -> Tensor:
        """(B, T, H, M, K L), one in sum over the anchors."""
        return torch.cat([part.weights for part in self.parts], dim=-1) / len(self.parts)

    @property
    def contributions(self) -> Tensor:
        """(B, T, K L, M, C)"""
        return torch.cat([part.contributions for part in self.parts], dim=2) / len(self.parts)


@dataclass(frozen=True)
class MeanDecomposition:
    """The members' decompositions as one, equal to the ensemble's prediction."""

    of: Sequence[MemberDecomposition]

    @property
    def offset(self) -> Tensor:
        """The mean of the members' offsets, (C,)."""
        return torch.stack([each.offset for each in self.of]).mean(0)

    @property
    def anchors(self) -> Tensor | None:
        """(B, K L, d), member after member; None where anchors have no positions."""
        return joined([each.anchors for each in self.of])

    @property
    def window_anchors(self) -> tuple[Tensor, ...]:
        """Places level by level, (B, K L, d) or (B, T, K L, d)."""
        levels = zip(*(each.window_anchors for each in self.of), strict=True)
        return tuple(torch.cat(places, dim=-2) for places in levels)

    def chunks(self, size: int = 16_384) -> Iterator[MeanPart]:
        """Yield parts of at most `size` query points, in order."""
        for parts in zip(*(each.chunks(size) for each in self.of), strict=True):
            yield MeanPart(parts)

    def whole(self) -> MeanPart:
        """Return all query points at once."""
        return MeanPart([each.whole() for each in self.of])


def joined(anchors: Sequence[Tensor | None]) -> Tensor | None:
    """Join anchors (B, L, d) of members to (B, K L, d); None where they have no positions."""
    places = [each for each in anchors if each is not None]
    return torch.cat(places, dim=1) if places else None
