"""Count a config's parameters by arithmetic, before anything is built.

This bounds what an untrusted config can make this process allocate.
"""

from __future__ import annotations

from courant.model.config import CourantConfig


def count_parameters(config: CourantConfig) -> int:
    """Return the number of parameters of `Courant(config)`, buffers included (there are none)."""
    d, dimension, anchors = config.width, config.dimension, config.num_anchors
    embeddings = (1 if config.shared_embedding else 2) * (d // 2) * dimension
    first_queries = {"sampled": 0, "learned": anchors * dimension, "abstract": anchors * d}
    conditioning = _linear(config.num_parameters, d) if config.num_parameters else 0
    block = _cross_block(config) + config.num_loops * _self_block(config)
    return (
        embeddings
        + first_queries[config.anchor_kind]
        + _windows(config)
        + conditioning
        + config.num_blocks * block
        + _processor(config)
        + _decoder(config)
    )


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _feed_forward(width: int, hidden: int) -> int:
    return 2 * width + _linear(width, hidden) + _linear(hidden, width)


def _attention(config: CourantConfig, context: int) -> int:
    """Count query, key, value and output projections, all without bias."""
    inner = config.num_heads * config.head_width
    return inner * (2 * config.width + 2 * context)


def _cross_block(config: CourantConfig) -> int:
    d, context = config.width, config.width + config.num_features
    norms = 2 * d + 2 * context
    return norms + _attention(config, context) + _feed_forward(d, config.ffn_multiple * d)


def _self_block(config: CourantConfig) -> int:
    d = config.width
    return 2 * d + _attention(config, d) + _feed_forward(d, config.ffn_multiple * d)


def _windows(config: CourantConfig) -> int:
    in_use = config.num_blocks * config.window_in_encoder + config.window_in_decoder
    # Window 0 stays at the initial anchors and has no update.
    moved = in_use - config.window_in_encoder
    update = _linear(config.width, config.width) + _linear(config.width, config.dimension)
    return in_use * config.num_anchors + moved * update


def _processor(config: CourantConfig) -> int:
    if not config.transient:
        return 0
    if config.processor == "attention":
        return _self_block(config)
    return _feed_forward(config.width, 4 * config.width)


def _decoder(config: CourantConfig) -> int:
    d, features = config.width, config.num_query_features
    queries = _linear(features, d) + _linear(2 * d, d) if features else _linear(d, d)
    return queries + 4 * d + _attention(config, d) + _linear(d, config.num_outputs)
