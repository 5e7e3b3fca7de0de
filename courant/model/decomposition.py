"""Decompose a predicted field exactly into contributions of single anchors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from courant.field_model import Queries
from courant.model.decoder import Decoder

SPREAD_QUERIES = 1024
"""Query points that `spread` looks at: every n-th, so that its cost is bounded"""
_QUIET = 1e-3
"""Energy, over the mean of all anchors, below which a contribution hardly has a place"""


def spread(
    weigh: Callable[[Tensor, Tensor], Tensor],
    q: Tensor,
    keys: Tensor,
    table: Tensor,
    points: Tensor,
    places: Tensor | None,
    mask: Tensor | None,
) -> Tensor:
    """Return L |x - p_k|^2, averaged over points by |delta_k|^2, of the last step: (B, L).

    Takes the decoder's `weights`, queries (B, H, M, P), keys and table as in `Decomposition`,
    points (B, M, d_c), the anchors' places (B, [T,] L, d_c) and a mask (B, M), True at real points.
    ValueError for anchors without places. Points count alike, whatever their volumes. Unlike the
    decomposition it can be differentiated.
    """
    if places is None:
        raise ValueError("abstract anchors have no places for contributions to lie near")
    places = places[:, -1] if places.dim() == 4 else places
    part = slice(None, None, -(-points.shape[1] // SPREAD_QUERIES))
    weights = weigh(q[:, :, part], keys[:, -1:])[:, 0]  # (B, H, m, L)
    fields = torch.einsum("bhml,bhlc->blmc", weights, table[:, -1].to(weights.dtype))
    energy = fields.square().sum(-1)  # (B, L, m)
    if mask is not None:
        energy = energy * mask[:, None, part]
    away = (points[:, None, part] - places[:, :, None]).square().sum(-1)
    total = energy.sum(-1)
    quiet = _QUIET * total.mean(-1, keepdim=True) + 1e-12
    return places.shape[1] * (energy * away).sum(-1) / (total + quiet)


@dataclass(frozen=True)
class DecompositionPart:
    """Contributions at a slice of the query points."""

    #: The numbers of these query points.
    queries: slice
    #: w_hk(x): (B, T, H, M, L), one in sum over L (the partition of unity).
    weights: Tensor
    #: W_out W_O^h W_V^h z~_k: (B, T, H, L, d_out).
    table: Tensor

    @property
    def head_contributions(self) -> Tensor:
        """Contribution of each head and anchor: (B, T, H, L, M, d_out)."""
        return self.weights.transpose(-1, -2)[..., None] * self.table[..., None, :]

    @property
    def contributions(self) -> Tensor:
        """delta_k(x): (B, T, L, M, d_out).    (Eq. exact-decomp)

        The sum over heads is a product of matrices, without the H times larger tensor.
        """
        return torch.einsum("bthml,bthlc->btlmc", self.weights, self.table)


@dataclass(frozen=True)
class Decomposition:
    """u(x) = u_0 + sum_k delta_k(x), equal to `Courant.forward` to float tolerance.

    Only the small parts are kept. The contributions, L times the size of the field, are computed
    for one chunk of query points at a time by `chunks`, or all at once by `whole`.
    """

    #: u_0 (d_out,).
    offset: Tensor
    #: Z after encoder or processor: (B, T, L, d).
    latent: Tensor
    #: Initial anchors (B, L, d_c), None for abstract queries.
    anchors: Tensor | None
    #: Anchors of the Gaussian windows, encoder blocks first (B, L, d_c), then the decoder (B, T, L,
    #: d_c).
    window_anchors: tuple[Tensor, ...]
    #: Decoder keys: (B, T, H, L, P).
    keys: Tensor
    #: W_out W_O^h W_V^h z~_k: (B, T, H, L, d_out).
    table: Tensor
    decoder: Decoder
    #: Query points -> decoder queries (B, H, M, P).
    embed: Callable[[Queries], Tensor]
    query_points: Queries

    @property
    def num_queries(self) -> int:
        return self.query_points.points.shape[1]

    @torch.no_grad()
    def chunks(self, size: int = 16_384) -> Iterator[DecompositionPart]:
        """Yield parts of at most `size` query points, in order."""
        for start in range(0, self.num_queries, size):
            part = slice(start, min(start + size, self.num_queries))
            weights = self.decoder.weights(
                self.embed(self.query_points.part(part)), self.keys
            )  # (B, T, H, M, L)
            yield DecompositionPart(part, weights, self.table)

    def whole(self) -> DecompositionPart:
        """Return all query points at once; memory grows as B T H L M d_out."""
        return next(iter(self.chunks(max(1, self.num_queries))))
