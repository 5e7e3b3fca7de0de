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

PART = 2**11  # points at a time: keys and values of three heads are 2 MB in float32
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
    # What `scaled_dot_product_attention` runs on a CPU. It returns the logarithm of the softmax's
    # sum as well, by which parts are combined; logits never leave the cache.
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    num_heads = q.shape[1]
    attended, total = torch.zeros_like(q), q.new_zeros(*q.shape[:-1], 1)
    norm = torch.full_like(total, -math.inf)
    for part in parts(context.shape[1]):
        k, v = (
            linear(context[:, part], weight).unflatten(-1, (num_heads, -1)).transpose(1, 2)
            for weight in (keys, values)
        )
        of_part, norm_of_part = fused(q, k, v, scale=scale)
        higher = torch.maximum(norm, norm_of_part[..., None])
        shrink, share = (norm - higher).exp_(), (norm_of_part[..., None] - higher).exp_()
        attended = attended.mul_(shrink).addcmul_(of_part, share)
        total = total.mul_(shrink).add_(share)
        norm = higher
    return attended.div_(total)
