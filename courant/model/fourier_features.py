"""Compute random Fourier features, the only way in which coordinates enter the model."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class FourierFeatures(nn.Module):
    """gamma(x) = [cos(2 pi sigma B x), sin(2 pi sigma B x)]. (Eq. rff)

    B is learnable, drawn from N(0, 1). `bandwidth` is sigma, in cycles per unit of the normalised
    coordinates.
    """

    def __init__(self, dimension: int, width: int, bandwidth: float) -> None:
        super().__init__()
        self.frequencies = nn.Parameter(torch.randn(width // 2, dimension))  # B
        self.bandwidth = bandwidth

    def forward(self, points: Tensor) -> Tensor:
        """Map (..., d_c) coordinates to (..., width).

        In full precision even under autocast: a phase loses its meaning in bf16.
        """
        with torch.autocast(points.device.type, enabled=False):
            scaled = (2 * math.pi * self.bandwidth) * self.frequencies
            phase = points.to(scaled.dtype) @ scaled.T
            return torch.cat((phase.cos(), phase.sin()), dim=-1)
