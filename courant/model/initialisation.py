"""Initialise the weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from courant.model.attention import CrossAttentionBlock, FeedForward, SelfAttentionBlock
from courant.model.config import CourantConfig
from courant.model.gaussian_window import AnchorUpdate

#: The processor applies one block T times, so its increments add up along one direction instead of
#: at random: with this factor a rollout of some ten steps starts near the identity.
_PROCESSOR_GAIN = 0.1


@torch.no_grad()
def initialise(
    modules: Iterable[nn.Module],
    encoder: nn.Module,
    processor: nn.Module | None,
    config: CourantConfig,
) -> None:
    """Initialise the weights of a new model.

    Linear maps keep the variance of a normalised input, biases start at zero, additions to the
    residual stream are scaled by the square root of their number, and anchor updates start at zero
    (Eq. anchor-update).
    """
    every = list(modules)
    for module in every:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    additions = 2 * config.num_blocks * (1 + config.num_loops)
    _scale_residual_branches(encoder, additions**-0.5)
    if processor is not None:
        _scale_residual_branches(processor, _PROCESSOR_GAIN)
    for module in every:
        if isinstance(module, AnchorUpdate):
            nn.init.zeros_(module.displacement.weight)


def _scale_residual_branches(part: nn.Module, gain: float) -> None:
    for module in part.modules():
        if isinstance(module, CrossAttentionBlock | SelfAttentionBlock):
            module.output.weight *= gain
        elif isinstance(module, FeedForward):
            module.contract.weight *= gain
