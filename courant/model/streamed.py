"""Attend to a large cloud part by part, where no gradient is asked.

Keys and values of all its points would take more memory than the cloud. On a CPU they are made for
some thousands of points at a time, which stay in its cache, and the softmax is carried along
(M. Milakov and N. Gimelshein, Online normalizer calculation for softmax, 2018). A GPU has fused
kernels that want all points at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import linear

PART = 2**11  # points at a time: their logits at 256 anchors and three heads are 6 MB in float32
_LOWEST = -80.0  # e^-80 vanishes beside the largest weight, 1; MKL is slow where e^x underflows
_LEAST = 16  # parts; fewer points are attended to at once


def fits(cloud: Tensor) -> bool:
    """Tell whether a cloud (B, N, c) is read part by part at this moment."""
    return (
        cloud.device.type == "cpu"
        and not torch.compiler.is_compiling()  # an exported program takes any number of points
        and not torch.is_autocast_enabled("cpu")
        and not torch.is_grad_enabled()
        and cloud.shape[1] > _LEAST * PART
    )


def parts(num: int) -> Iterator[slice]:
    """Yield the parts of so many points."""
    return (slice(start, start + PART) for start in range(0, num, PART))


def attend(q: Tensor, context: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Compute softmax(scale q k^T) v, (B, H, L, P).

    Takes queries (B, H, L, P), the context (B, N, c) and the projections (H * P, c) that make its
    keys and values.
    """
    num_heads = q.shape[1]
    q = scale * q
    most = q.new_full((*q.shape[:-1], 1), -math.inf)
    total, weighted = torch.zeros_like(most), torch.zeros_like(q)
    for part in parts(context.shape[1]):
        k, v = (
            linear(context[:, part], weight).unflatten(-1, (num_heads, -1)).transpose(1, 2)
            for weight in (keys, values)
        )
        logits = q @ k.transpose(-1, -2)
        higher = torch.maximum(most, logits.amax(-1, keepdim=True))
        shrink = (most - higher).exp_()
        weights = logits.sub_(higher).clamp_(min=_LOWEST).exp_()
        total = total.mul_(shrink).add_(weights.sum(-1, keepdim=True))
        weighted = weighted.mul_(shrink).add_(weights @ v)
        most = higher
    return weighted.div_(total)
