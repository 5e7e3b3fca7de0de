"""The decoder, one cross-attention and one linear map, and its exact decomposition by anchors.

Notable choices, all exact:
- it is affine in the values, so W_out W_O^h W_V^h folds into one small table of (d_out)-vectors for
  each head and anchor before the attention: the values shrink from d_h to d_out channels, and the
  same table is the decomposition;
- LN(z) = z~' + beta. The bias beta shifts all keys of a query alike, which does not change the
  softmax; in the values it collects in u_0, since the weights sum to one. So keys and table use LN
  without bias, and delta_k vanishes at z_k = 0;
- the queries depend on neither latent nor time: they are computed once per geometry, with
  `decoder_depth` feed-forward blocks that the paper has not, and W_xi folds into the embedding;
- softmax(q k^T) times the narrow table, summed over heads (`blend`): a GPU attends to the table,
  padded to the width of the heads. On a CPU that would double the arithmetic, so weights are
  computed tile by tile, small enough for the cache; the backward pass recomputes them unless all
  fit a fixed budget, so memory does not grow with queries times anchors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, pad

from courant.field_model import Queries
from courant.model import gaussian_window
from courant.model.attention import FeedForward, attend, pad_heads, padded_width
from courant.model.config import CourantConfig
from courant.model.gaussian_window import GaussianWindows

SPREAD_QUERIES = 1024  # that `spread` looks at: every n-th, so that its cost is bounded
_QUIET = 1e-3  # of the mean energy of anchors: below, a contribution hardly has a place
_TILE = 2**17  # weights in a tile for each thread: half a megabyte in float32
_KEEP = 2**26  # weights that a training step may keep for its backward pass: 256 MB in float32


class Decoder(nn.Module):
    """u(x) = u_0 + sum_k sum_h w_hk(x) W_out W_O^h W_V^h z~_k.

    (Eq. dec-weights, Eq. dec-output, Eq. exact-decomp)
    """

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        self.num_heads, self.head_width = config.num_heads, config.head_width
        self.windowed = config.window_in_decoder
        inner, width = self.num_heads * self.head_width, config.width
        self.query_features = (
            nn.Linear(config.num_query_features, width) if config.num_query_features else None
        )  # W_xi
        self.query_embedding = nn.Linear(2 * width if config.num_query_features else width, width)
        self.query_blocks = nn.ModuleList(
            FeedForward(width, config.ffn_multiple * width) for _ in range(config.decoder_depth)
        )
        self.query_norm = nn.LayerNorm(width)
        self.latent_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, inner, bias=False)
        self.key_value = nn.Linear(width, 2 * inner, bias=False)
        self.output = nn.Linear(inner, width, bias=False)
        self.field = nn.Linear(width, config.num_outputs)  # W_out

    def queries(self, points: Tensor, embedded: Tensor, features: Tensor | None) -> Tensor:
        """Scale queries (B, H, M, P).

        Takes points (B, M, d_c), their embedding (B, M, d) and xi (B, M, n_xi).
        """
        weight, bias = self.query_embedding.weight, self.query_embedding.bias
        if self.query_features is None or features is None:
            e = linear(embedded, weight, bias)
        else:  # e = W [gamma(x), W_xi xi] + b, with W_xi folded into W
            on_points, on_features = weight.chunk(2, dim=1)
            shift = bias + on_features @ self.query_features.bias
            combined = torch.cat((on_points, on_features @ self.query_features.weight), dim=1)
            known = torch.cat((embedded, features.to(embedded.dtype)), dim=-1)
            e = linear(known, combined, shift)
        for block in self.query_blocks:
            e = e + block(e)
        e = self.query_norm(e)
        columns = gaussian_window.decoder_query_columns(points)[:, None] if self.windowed else None
        return self._heads(e, self.query.weight * self.head_width**-0.5, columns)

    def fold(
        self, Z: Tensor, anchors: Tensor | None = None, windows: GaussianWindows | None = None
    ) -> tuple[Tensor, Tensor]:
        """Fold the latent (B, S, L, d) into keys (B, S, H, L, P) and a table (B, S, H, L, d_out).

        With windows, the initial anchors (B, L, d_c) move with the latent.
        """
        z = layer_norm(Z, Z.shape[-1:], self.latent_norm.weight)
        key_weight, _ = self.key_value.weight.chunk(2)
        columns = None
        if self.windowed:
            assert windows is not None and anchors is not None
            last = windows.in_use[-1]
            moved = windows.anchors(last, anchors, Z)
            columns = gaussian_window.decoder_key_columns(
                moved, windows.inverse_square_width(last)
            )[:, :, None]
        # The table is small, so it is in full precision under autocast too.
        with torch.autocast(z.device.type, enabled=False):
            values = self._folded_values().flatten(0, 1)
            table = linear(z.to(self.field.weight.dtype), values)
            table = table.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)
        return self._heads(z, key_weight, columns), table

    def offset(self) -> Tensor:
        """Return u_0 (d_out,): the output with every z_k = 0, that is LN(z_k) = beta."""
        with torch.autocast(self.field.bias.device.type, enabled=False):
            return self._folded_values().sum(0) @ self.latent_norm.bias + self.field.bias

    def forward(self, q: Tensor, k: Tensor, table: Tensor) -> Tensor:
        """Compute the field (B, S, M, d_out).

        Takes queries (B, H, M, P), keys (B, S, H, L, P) and table (B, S, H, L, d_out).
        """
        return blend(q, k, table) + self.offset()

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        """Return w_hk(x) (B, S, H, M, L): non-negative, sum one over anchors. (Eq. dec-weights)"""
        return blend_weights(q, k)

    def _folded_values(self) -> Tensor:
        """Return W_out W_O^h W_V^h, (H, d_out, d)."""
        _, value_weight = self.key_value.weight.chunk(2)
        values = value_weight.unflatten(0, (self.num_heads, -1))  # (H, d_h, d)
        outputs = (self.field.weight @ self.output.weight).unflatten(
            1, (self.num_heads, -1)
        )  # (d_out, H, d_h)
        return outputs.transpose(0, 1) @ values

    def _heads(self, tensor: Tensor, weight: Tensor, columns: Tensor | None) -> Tensor:
        """Split (..., n, d) into heads (..., H, n, P).

        Each head has its d_h channels, then the columns (..., 1, n, e), then zeros.
        """
        num_columns = 0 if columns is None else columns.shape[-1]
        width = padded_width(self.head_width + num_columns)
        if columns is None:
            padded = pad_heads(weight, self.num_heads, width).flatten(0, 1)
            return linear(tensor, padded).unflatten(-1, (self.num_heads, width)).transpose(-2, -3)
        heads = linear(tensor, weight).unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)
        shared = columns.to(heads.dtype).expand(*heads.shape[:-1], -1)
        rest = width - self.head_width - num_columns
        joined = torch.cat((heads, shared), dim=-1)
        return pad(joined, (0, rest)) if rest else joined


def blend_weights(q: Tensor, k: Tensor) -> Tensor:
    """Compute the attention weights (B, S, H, M, L), a softmax over the L anchors.

    Takes scaled queries (B, H, M, P) and keys (B, S, H, L, P). Logits and weights are in at least
    float32, also under autocast.
    """
    precise = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        return (q[:, None].to(precise) @ k.to(precise).transpose(-1, -2)).softmax(-1)


def blend(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    """Apply the weights to the table (B, S, H, L, d_out), summed over heads: (B, S, M, d_out)."""
    if q.device.type != "cpu":
        return _attended(q, k, table)
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return _plain(q, k, table)
    return _TiledBlend.apply(q, k, table)


def _plain(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    """Compute one softmax for each step: the queries are shared, the keys are not."""
    with torch.autocast(q.device.type, enabled=False):
        weights = (blend_weights(q, k[:, s, None])[:, 0] for s in range(k.shape[1]))
        return torch.stack(
            [(w @ table[:, s].to(w.dtype)).sum(1) for s, w in enumerate(weights)], dim=1
        )


def _attended(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    # Kernels take values as wide as the keys, or wider; never a part of them.
    values = pad(table, (0, max(0, q.shape[-1] - table.shape[-1]))).to(q.dtype)
    steps = [attend(q, k[:, s], values[:, s], 1.0) for s in range(k.shape[1])]
    return torch.stack([step[..., : table.shape[-1]].sum(1) for step in steps], dim=1)


class _TiledBlend(torch.autograd.Function):
    """The tiled blend with its gradient; shapes as in `blend`.

    With w = softmax(q k^T), o_h = w t_h, and an incoming gradient g, the gradient of the logits is
    w * (g t_h^T - (g . o_h)): an outer product of d_out + 1 columns, so no reduction over w is
    needed.

    Table and gradient are transposed to (d_out, L) and (d_out, m): products with a matrix of two to
    four columns are some five times slower than the same products with as many rows.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, table: Tensor) -> Tensor:
        t = table.transpose(-1, -2).contiguous()  # (B, S, H, d_out, L)
        heads = q.new_empty(*q.shape[:2], k.shape[1], t.shape[3], q.shape[2])  # (B, H, S, d_out, M)
        keep = any(ctx.needs_input_grad) and k[..., 0].numel() * q.shape[2] <= _KEEP
        kept: list[Tensor] = []
        for b, h, rows in _tiles(q, k):
            w = _tile_weights(q[b, h, rows], k[b, :, h])
            heads[b, h, ..., rows] = torch.bmm(t[b, :, h], w.transpose(1, 2))
            if keep:
                kept.append(w)
        ctx.save_for_backward(q, k, t, heads, *kept)
        return heads.sum(1).transpose(-1, -2).contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, t, heads, *kept = ctx.saved_tensors
        g = gradients[0].transpose(-1, -2).contiguous()  # (B, S, d_out, M)
        projected = (heads * g[:, None]).sum(-2, keepdim=True)
        left = torch.cat(
            (g[:, None].expand_as(heads), -projected), dim=-2
        )  # (B, H, S, d_out + 1, M)
        right = pad(t, (0, 0, 0, 1), value=1.0)  # (B, S, H, d_out + 1, L)
        dq, dk, dt = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(t)
        for i, (b, h, rows) in enumerate(_tiles(q, k)):
            w = kept[i] if kept else _tile_weights(q[b, h, rows], k[b, :, h])
            dt[b, :, h] += torch.bmm(g[b, ..., rows], w)
            dlogits = torch.bmm(left[b, h, ..., rows].transpose(1, 2), right[b, :, h]).mul_(
                w
            )  # (S, m, L)
            dq[b, h, rows] = torch.bmm(dlogits, k[b, :, h]).sum(0)
            dk[b, :, h] += torch.bmm(dlogits.mT, q[b, h, rows].expand(k.shape[1], -1, -1))
        return dq, dk, dt.transpose(-1, -2)


def _tile_weights(q: Tensor, k: Tensor) -> Tensor:
    """(m, P), (S, L, P) -> (S, m, L)."""
    return torch.bmm(q.expand(k.shape[0], -1, -1), k.transpose(1, 2)).softmax(-1)


def _tiles(q: Tensor, k: Tensor) -> list[tuple[int, int, slice]]:
    """Yield cloud, head and rows of every tile."""
    num_clouds, num_heads, num_queries = q.shape[:3]
    num_rows = max(64, _TILE * torch.get_num_threads() // max(1, k.shape[1] * k.shape[3]))
    return [
        (b, h, slice(start, min(start + num_rows, num_queries)))
        for b in range(num_clouds)
        for h in range(num_heads)
        for start in range(0, num_queries, num_rows)
    ]


def spread(
    q: Tensor,
    keys: Tensor,
    table: Tensor,
    points: Tensor,
    places: Tensor | None,
    mask: Tensor | None,
) -> Tensor:
    """Return L |x - p_k|^2, averaged over points by |delta_k|^2, of the last step: (B, L).

    Takes queries (B, H, M, P), keys and table as in `Decomposition`, points (B, M, d_c), the
    anchors' places (B, [T,] L, d_c) and a mask (B, M), True at real points. ValueError for anchors
    without places. Points count alike, whatever their volumes. Unlike the decomposition it can be
    differentiated.
    """
    if places is None:
        raise ValueError("abstract anchors have no places for contributions to lie near")
    places = places[:, -1] if places.dim() == 4 else places
    part = slice(None, None, -(-points.shape[1] // SPREAD_QUERIES))
    weights = blend_weights(q[:, :, part], keys[:, -1:])[:, 0]  # (B, H, m, L)
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

    queries: slice  # The numbers of these query points
    weights: Tensor  # w_hk(x): (B, T, H, M, L), one in sum over L (the partition of unity)
    table: Tensor  # W_out W_O^h W_V^h z~_k: (B, T, H, L, d_out)

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

    offset: Tensor  # u_0 (d_out,)
    anchors: Tensor | None  # Initial anchors (B, L, d_c), None for abstract queries
    #: Anchors of the Gaussian windows, encoder blocks first (B, L, d_c), then the decoder (B, T, L,
    #: d_c).
    window_anchors: tuple[Tensor, ...]
    keys: Tensor  # Decoder keys: (B, T, H, L, P)
    table: Tensor  # W_out W_O^h W_V^h z~_k: (B, T, H, L, d_out)
    decoder: Decoder
    embed: Callable[[Queries], Tensor]  # Query points -> decoder queries (B, H, M, P)
    query_points: Queries

    @torch.no_grad()
    def chunks(self, size: int = 16_384) -> Iterator[DecompositionPart]:
        """Yield parts of at most `size` query points, in order."""
        num_queries = self.query_points.points.shape[1]
        for start in range(0, num_queries, size):
            part = slice(start, min(start + size, num_queries))
            weights = self.decoder.weights(
                self.embed(self.query_points.part(part)), self.keys
            )  # (B, T, H, M, L)
            yield DecompositionPart(part, weights, self.table)

    def whole(self) -> DecompositionPart:
        """Return all query points at once; memory grows as B T H L M d_out."""
        return next(iter(self.chunks(max(1, self.query_points.points.shape[1]))))
