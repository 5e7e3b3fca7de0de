"""Decompose a predicted field exactly into contributions of single anchors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from courant.field_model import Queries
from courant.model.decoder import Decoder


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
