"""Pre-norm attention blocks of the encoder and the processor.

Notable choices:
- the paper's projections, all without bias, in heads of width // num_heads channels;
- heads are padded to a multiple of 8 channels for the attention (42 -> 48). The terms of the
  Gaussian window and of the mask use these padding channels, so neither needs an L x N bias (see
  `courant.model.gaussian_window`);
- the context of a cross-attention is normalised without the affine part of the LayerNorm, which
  each block folds into its own projection: the statistics are computed once for all levels. The
  LayerNorm's bias shifts every key alike, which does not change a softmax, and every value alike,
  which is added once after the attention;
- on a CPU, where no gradient is asked, a large cloud is attended to part by part: keys and values
  of some thousands of points stay in the cache, and the softmax is merged (M. Milakov and N.
  Gimelshein, Online normalizer calculation for softmax, 2018). A GPU's kernels want all at once.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, pad, scaled_dot_product_attention

from courant.model.config import CourantConfig

_PAD_TO = 8  # GPU kernels copy what is not aligned to this, and CPU kernels run slower on it
_ROWS = 64  # keys that a block of a fused kernel's backward pass works on
_BUSY = 128  # blocks that keep a GPU busy: an A100 has 108 multiprocessors, an H100 132
_KEPT = 2**27  # weights that an attention may keep for its backward pass: 512 MB in float32
_LEAST = 2**15  # fewest queries that are divided: fewer take no longer than the further launches
_PARTS = 64  # into which queries are divided
STREAMED_PART = 2**11  # points at a time: keys and values of three heads are 2 MB in float32
_LEAST_PARTS = 16  # parts; fewer points are attended to at once


def padded_width(width: int) -> int:
    """The next multiple of 8."""
    return -(-width // _PAD_TO) * _PAD_TO


def pad_heads(weight: Tensor, num_heads: int, width: int) -> Tensor:
    """Projection weight (H * d_h, n) -> (H, width, n), zero beyond each head's d_h rows."""
    heads = weight.unflatten(0, (num_heads, -1))
    return pad(heads, (0, 0, 0, width - heads.shape[1]))


def pad_output(weight: Tensor, num_heads: int, width: int) -> Tensor:
    """Output projection (n, H * d_h) -> (n, H * width), zero at each head's padding."""
    heads = weight.unflatten(1, (num_heads, -1))
    return pad(heads, (0, width - heads.shape[2])).flatten(1)


def merge_heads(attended: Tensor) -> Tensor:
    """(B, H, L, P) -> (B, L, H * P)."""
    return attended.transpose(1, 2).flatten(2)


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Compute softmax(scale q k^T) v, (B, H, M, P), by what is fastest on the device."""
    # An exported program takes any number of points, so nothing may be chosen by it.
    chooses = _is_on_gpu(q) and not torch.compiler.is_exporting()
    way = way_on_gpu(q, k) if chooses else scaled_dot_product_attention
    return way(q, k, v, scale=scale)


def _is_on_gpu(q: Tensor) -> bool:
    return q.device.type == "cuda"


def way_on_gpu(q: Tensor, k: Tensor) -> Callable[..., Tensor]:
    """Choose how a GPU attends; docs/gpu.md has the times.

    Its fused kernels share work among the multiprocessors by queries, in the backward pass by keys,
    so a few clouds with some hundred anchors leave most of them idle. In float32 they are slow as
    well, but keep no weights; in bfloat16 they alone keep logits in float32.
    """
    num, num_queries, num_keys = q.shape[0] * q.shape[1], q.shape[2], k.shape[2]
    if num_queries < num_keys:
        few = num * num_queries * num_keys <= _KEPT
        precise = q.dtype in (torch.float32, torch.float64)
        precise = precise and not torch.is_autocast_enabled("cuda")
        return written_out if few and precise else scaled_dot_product_attention
    idle = torch.is_grad_enabled() and num * -(-num_keys // _ROWS) < _BUSY
    return in_parts if idle and num_queries >= _LEAST else scaled_dot_product_attention


def written_out(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Attend by matrix products of all queries with all keys; they use the whole GPU."""
    return ((scale * q) @ k.transpose(-1, -2)).softmax(-1) @ v


def in_parts(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Attend with parts of the queries as if each were of another cloud: more blocks of keys."""
    num_clouds, num_queries = q.shape[0], q.shape[2]
    each = -(-num_queries // _PARTS)
    q = pad(q, (0, 0, 0, _PARTS * each - num_queries)).unflatten(2, (_PARTS, each))
    k, v = (same[:, None].expand(-1, _PARTS, -1, -1, -1).flatten(0, 1) for same in (k, v))
    made = scaled_dot_product_attention(q.transpose(1, 2).flatten(0, 1), k, v, scale=scale)
    made = made.unflatten(0, (num_clouds, _PARTS)).transpose(1, 2).flatten(2, 3)
    return made[:, :, :num_queries]


class FeedForward(nn.Module):
    """LayerNorm, Linear, GELU, Linear (with biases)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)

    def forward(self, Z: Tensor) -> Tensor:
        return self.contract(gelu(self.expand(self.norm(Z))))


class SelfAttentionBlock(nn.Module):
    """Compute Z + SelfAttn(Z), (B, L, d) -> (B, L, d).

    It is the second half of an encoder level (Eq. enc-saff) and, without its "Z +", the right-hand
    side of the processor (Eq. ode).
    """

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        self.num_heads, self.head_width = config.num_heads, config.head_width
        inner = self.num_heads * self.head_width
        self.norm = nn.LayerNorm(config.width)
        self.query = nn.Linear(config.width, inner, bias=False)
        self.key_value = nn.Linear(config.width, 2 * inner, bias=False)
        self.output = nn.Linear(inner, config.width, bias=False)
        self.feed_forward = FeedForward(config.width, config.ffn_multiple * config.width)

    def fused_weights(self) -> tuple[Tensor, Tensor]:
        """Return one projection of q, k and v, (3 * H * P, d), and the output's (d, H * P)."""
        width = padded_width(self.head_width)
        projection = torch.cat((self.query.weight, self.key_value.weight))
        return (
            pad_heads(projection, 3 * self.num_heads, width).flatten(0, 1),
            pad_output(self.output.weight, self.num_heads, width),
        )

    def increment(self, Z: Tensor, weights: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return what the block adds to Z; pass `fused_weights()` when calling it repeatedly."""
        projection, output = self.fused_weights() if weights is None else weights
        heads = linear(self.norm(Z), projection).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, H, L, P)
        attended = attend(q, k, v, self.head_width**-0.5)
        attended = linear(merge_heads(attended), output)
        return attended + self.feed_forward(Z + attended)

    def forward(self, Z: Tensor) -> Tensor:
        return Z + self.increment(Z)


class CrossAttentionBlock(nn.Module):
    """Compute Z + CrossAttn(Z, context), the first half of an encoder level (Eq. enc-ca).

    The context (B, N, c + e) is normalised without affine part. Its columns beyond c go to the keys
    unchanged, to be multiplied with those of `query_columns` (B, L, e): the terms of window and
    mask (`courant.model.encoder`).
    """

    def __init__(self, config: CourantConfig, context_width: int) -> None:
        super().__init__()
        self.num_heads, self.head_width = config.num_heads, config.head_width
        inner = self.num_heads * self.head_width
        self.query_norm = nn.LayerNorm(config.width)
        self.context_norm = nn.LayerNorm(context_width)
        self.query = nn.Linear(config.width, inner, bias=False)
        self.key_value = nn.Linear(context_width, 2 * inner, bias=False)
        self.output = nn.Linear(inner, config.width, bias=False)
        self.feed_forward = FeedForward(config.width, config.ffn_multiple * config.width)

    def forward(self, Z: Tensor, context: Tensor, query_columns: Tensor) -> Tensor:
        num_columns = query_columns.shape[-1]
        width = padded_width(self.head_width + num_columns)
        keys, values = (
            weight.flatten(0, 1)
            for weight in self._context_projections(width, num_columns, context.shape[-1])
        )
        q = self._queries(Z, query_columns.to(context.dtype), width)
        if is_streamed(context):
            attended = attend_streamed(q, context, keys, values, self.head_width**-0.5)
        else:
            # Two products, not one that is split: the gradient of a split makes an extra copy of
            # both halves.
            k, v = (
                linear(context, weight).unflatten(-1, (self.num_heads, width)).transpose(1, 2)
                for weight in (keys, values)
            )
            attended = attend(q, k, v, self.head_width**-0.5)
        _, of_values = self.key_value.weight.chunk(2)
        constant = self.output.weight @ (of_values @ self.context_norm.bias)
        Z = Z + linear(
            merge_heads(attended), pad_output(self.output.weight, self.num_heads, width), constant
        )
        return Z + self.feed_forward(Z)

    def weights(self, Z: Tensor, context: Tensor, query_columns: Tensor) -> Tensor:
        """Return the attention of latents (B, A, d) to the context's points, (B, H, A, N).

        They are those that `forward` multiplies the values with, computed densely.
        """
        num_columns = query_columns.shape[-1]
        width = padded_width(self.head_width + num_columns)
        weight, _ = self._context_projections(width, num_columns, context.shape[-1])
        k = linear(context, weight.flatten(0, 1)).unflatten(-1, (self.num_heads, width))
        q = self._queries(Z, query_columns.to(k.dtype), width)
        logits = q @ k.permute(0, 2, 3, 1) * self.head_width**-0.5
        return logits.float().softmax(dim=-1)

    def _queries(self, Z: Tensor, columns: Tensor, width: int) -> Tensor:
        """(B, L, d) -> (B, H, L, P): each head's d_h channels, then the columns, then zeros."""
        q = self.query(self.query_norm(Z)).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        shared = columns[:, None].expand(-1, self.num_heads, -1, -1)
        return pad(
            torch.cat((q, shared.to(q.dtype)), dim=-1),
            (0, width - self.head_width - columns.shape[-1]),
        )

    def _context_projections(
        self, width: int, num_columns: int, context_width: int
    ) -> tuple[Tensor, Tensor]:
        """Return the projections of keys and values, (H, P, c + e).

        The LayerNorm's scale is folded in; the keys' has an identity that passes the columns
        through.
        """
        weight = self.key_value.weight * self.context_norm.weight
        rest = context_width - weight.shape[1]
        padded = pad_heads(pad(weight, (0, rest)) if rest else weight, 2 * self.num_heads, width)
        keys, values = padded.chunk(2)
        if num_columns:
            identity = torch.eye(num_columns, rest, dtype=weight.dtype, device=weight.device)
            below = width - self.head_width - num_columns
            keys = keys + pad(identity, (weight.shape[1], 0, self.head_width, below))
        return keys, values


def is_streamed(cloud: Tensor) -> bool:
    """Whether a cloud (B, N, c) is read part by part at this moment."""
    return (
        cloud.device.type == "cpu"
        and not torch.compiler.is_compiling()  # an exported program takes any number of points
        and not torch.is_autocast_enabled("cpu")
        and not torch.is_grad_enabled()
        and cloud.shape[1] > _LEAST_PARTS * STREAMED_PART
    )


def streamed_parts(num: int) -> Iterator[slice]:
    """Yield the parts of so many points."""
    return (slice(start, start + STREAMED_PART) for start in range(0, num, STREAMED_PART))


def attend_streamed(
    q: Tensor, context: Tensor, keys: Tensor, values: Tensor, scale: float
) -> Tensor:
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
    for part in streamed_parts(context.shape[1]):
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
