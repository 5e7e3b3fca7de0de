"""Compute softmax(q k^T) times a narrow table, summed over heads: the decoder's inner loop.

A GPU attends to the table, padded to the width of the heads (`courant.model.attention`). On a CPU
that padding would double the arithmetic, so the weights are computed tile by tile, small enough for
the cache. The backward pass recomputes them unless all of them fit a fixed budget, so memory
does not grow with queries times anchors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from courant.model.attention import attend

_TILE = 2**17  # weights in a tile for each thread: half a megabyte in float32
_KEEP = 2**26  # weights that a training step may keep for its backward pass: 256 MB in float32


def blend_weights(q: Tensor, k: Tensor) -> Tensor:
    """Compute the attention weights (B, S, H, M, L), a softmax over the L anchors.

    Takes scaled queries (B, H, M, P) and keys (B, S, H, L, P). Logits and weights are in at least
    float32, also under autocast.
    """
    precise = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        return (q[:, None].to(precise) @ k.to(precise).transpose(-1, -2)).softmax(-1)


def blend(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    """Apply the weights to the table (B, S, H, L, d_out), summed over heads: (B, S, M, d_out).

    Other arguments as in `blend_weights`.
    """
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
            dk[b, :, h] += torch.bmm(
                dlogits.transpose(1, 2), q[b, h, rows].expand(k.shape[1], -1, -1)
            )
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
