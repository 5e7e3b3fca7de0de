"""softmax(q k^T) times a narrow table, summed over heads: the inner loop of the decoder."""

from __future__ import annotations

import torch
from torch import Tensor


def blend_weights(q: Tensor, k: Tensor) -> Tensor:
    """Scaled queries (B, H, M, P), keys (B, S, H, L, P) -> softmax over the L anchors, (B, S, H, M, L), in the precision
    of the softmax (float32 under autocast)."""
    return (q[:, None] @ k.transpose(-1, -2)).softmax(-1)


def blend(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    """As `blend_weights`, applied to the table (B, S, H, L, d_out) and summed over heads: (B, S, M, d_out)."""
    steps = []
    for step in range(k.shape[1]):
        weights = (q @ k[:, step].transpose(-1, -2)).softmax(-1)
        steps.append((weights @ table[:, step]).sum(1))
    return torch.stack(steps, dim=1)
