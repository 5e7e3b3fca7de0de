"""Slide the window of known states in a rollout.

A transient model reads I states one step apart, the oldest first, as the first I C channels of its
features. Each step's prediction becomes the newest of them, and the oldest one goes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def newest(features: Tensor, state_channels: int, num_states: int) -> Tensor:
    """Return the newest state (..., C) of features (..., I C + others)."""
    return features[..., (num_states - 1) * state_channels : num_states * state_channels]


def advance(features: Tensor, state: Tensor, num_states: int, dim: int = -1) -> Tensor:
    """Return the features with `state` as the newest of their states, which lie along `dim`."""
    size, known = state.shape[dim], num_states * state.shape[dim]
    others = features.narrow(dim, known, features.shape[dim] - known)
    return torch.cat([features.narrow(dim, size, known - size), state, others], dim)
