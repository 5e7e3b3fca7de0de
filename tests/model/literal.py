"""The paper's equations, read literally, on the parameters of a `Courant`: the oracle of tests and
benchmarks.

A normalisation at every level, the query embedding at every step, values of full width, a dense
Gaussian bias, boolean masks. `attention` is the core: `explicit_attention` spells the softmax out,
`fused_attention` is torch's fused kernel, which is what a straightforward implementation would
call.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from courant.model import Courant
from courant.model.attention import CrossAttentionBlock, SelfAttentionBlock
from courant.model.coordinates import FourierFeatures
from courant.model.gaussian_window import GaussianWindows

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (logits if bias is None else logits + bias).softmax(-1) @ v


def fused_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def literal_forward(
    model: Courant,
    points: Tensor,
    features: Tensor,
    query_points: Tensor,
    query_features: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    parameters: Tensor | None = None,
    num_steps: int = 1,
    anchors: Tensor | None = None,
    attention: Attention = explicit_attention,
) -> Tensor:
    anchors = model.place_anchors(points, mask) if anchors is None else anchors
    Z = _encode(model, points, features, mask, parameters, anchors, attention)
    if model.processor is None:
        return literal_decode(model, Z, query_points, query_features, anchors, attention)[:, None]
    states = []
    for _ in range(num_steps):
        for _ in range(model.config.num_substeps):  # Eq. ode
            Z = Z + model.config.step_size * _right_hand_side(model, Z, attention)
        states.append(literal_decode(model, Z, query_points, query_features, anchors, attention))
    return torch.stack(states, dim=1)


def gamma(embedding: FourierFeatures, points: Tensor) -> Tensor:
    """Eq. rff."""
    phase = 2 * math.pi * embedding.bandwidth * (points @ embedding.frequencies.T)
    return torch.cat((torch.cos(phase), torch.sin(phase)), dim=-1)


def gaussian_bias(windows: GaussianWindows, window: int, anchors: Tensor, points: Tensor) -> Tensor:
    """b_ji (Eq. gwa): (B, L, N), dense."""
    sigma = windows.initial_width * windows.kappa[windows.in_use.index(window)]
    difference = anchors[:, :, None] - points[:, None]
    return -difference.square().sum(-1) / sigma[:, None] ** 2


def moved_anchors(windows: GaussianWindows, window: int, anchors: Tensor, Z: Tensor) -> Tensor:
    """p^(l) (Eq. anchor-update)."""
    if window == 0:
        return anchors
    update = windows.updates[str(window)]
    return anchors + update.displacement(functional.gelu(update.hidden(Z)))


def _encode(
    model: Courant,
    points: Tensor,
    features: Tensor,
    mask: Tensor | None,
    parameters: Tensor | None,
    anchors: Tensor | None,
    attention: Attention,
) -> Tensor:
    if model.learned_queries is not None:
        Z = model.learned_queries.expand(len(points), -1, -1)
    else:
        assert anchors is not None
        Z = gamma(model.embedding, anchors)  # Eq. anchor-init
    embedded = gamma(model.embedding, points)
    if model.encoder.conditioning is not None:
        embedded = embedded + model.encoder.conditioning(parameters)[:, None]
    context = torch.cat((embedded, features), dim=-1)  # Eq. kv-tokens
    for level, block in enumerate(model.encoder.blocks):
        bias = None
        if model.windows is not None and model.config.window_in_encoder:
            assert anchors is not None
            moved = moved_anchors(model.windows, level, anchors, Z)
            bias = gaussian_bias(model.windows, level, moved, points)[:, None]
        if mask is not None:
            outside = torch.zeros_like(mask, dtype=points.dtype).masked_fill(~mask, -math.inf)[
                :, None, None
            ]
            bias = outside.expand(-1, -1, Z.shape[1], -1) if bias is None else bias + outside
        Z = Z + _cross_attention(block.cross, Z, context, bias, attention)  # Eq. enc-ca
        Z = Z + block.cross.feed_forward(Z)
        for loop in block.loops:  # Eq. enc-saff
            Z = Z + _self_attention(loop, Z, attention)
            Z = Z + loop.feed_forward(Z)
    return Z


def literal_decode(
    model: Courant,
    Z: Tensor,
    query_points: Tensor,
    query_features: Tensor | None,
    anchors: Tensor | None,
    attention: Attention,
) -> Tensor:
    decoder = model.decoder
    e = gamma(model.query_embedding or model.embedding, query_points)
    if decoder.query_features is not None:
        e = torch.cat((e, decoder.query_features(query_features)), dim=-1)
    e = decoder.query_embedding(e)
    for block in decoder.query_blocks:
        e = e + block(e)
    e = decoder.query_norm(e)
    z = decoder.latent_norm(Z)
    bias = None
    if model.windows is not None and model.config.window_in_decoder:
        assert anchors is not None
        window = model.config.num_blocks
        moved = moved_anchors(model.windows, window, anchors, Z)
        bias = gaussian_bias(model.windows, window, moved, query_points).transpose(-1, -2)[:, None]
    q = _heads(decoder.query(e), decoder.num_heads)
    k, v = (_heads(part, decoder.num_heads) for part in decoder.key_value(z).chunk(2, dim=-1))
    return decoder.field(
        decoder.output(_merge(attention(q, k, v, bias)))
    )  # Eq. dec-weights, Eq. dec-output


def _right_hand_side(model: Courant, Z: Tensor, attention: Attention) -> Tensor:
    assert model.processor is not None
    block = model.processor.right_hand_side
    if not isinstance(block, SelfAttentionBlock):
        return block(Z)
    attended = _self_attention(block, Z, attention)
    return attended + block.feed_forward(Z + attended)


def _self_attention(block: SelfAttentionBlock, Z: Tensor, attention: Attention) -> Tensor:
    z = block.norm(Z)
    q = _heads(block.query(z), block.num_heads)
    k, v = (_heads(part, block.num_heads) for part in block.key_value(z).chunk(2, dim=-1))
    return block.output(_merge(attention(q, k, v, None)))


def _cross_attention(
    block: CrossAttentionBlock,
    Z: Tensor,
    context: Tensor,
    bias: Tensor | None,
    attention: Attention,
) -> Tensor:
    q = _heads(block.query(block.query_norm(Z)), block.num_heads)
    projected = block.key_value(block.context_norm(context))
    k, v = (_heads(part, block.num_heads) for part in projected.chunk(2, dim=-1))
    return block.output(_merge(attention(q, k, v, bias)))


def _heads(tensor: Tensor, num_heads: int) -> Tensor:
    """(B, n, H * d_h) -> (B, H, n, d_h)."""
    return tensor.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _merge(tensor: Tensor) -> Tensor:
    """(B, H, n, d_h) -> (B, n, H * d_h)."""
    return tensor.transpose(1, 2).flatten(2)
