"""Gaussian window attention: anchors that move with the latent, and a local bias that costs no L x N matrix.

-|p - x|^2 / sigma^2 = 2 p.x / sigma^2 - |x|^2 / sigma^2 - |p|^2 / sigma^2 is an inner product of a few columns of the
anchor with a few columns of the point, so it joins the logit q.k as extra channels of q and k, and any fused attention
kernel applies. Terms that are constant along the softmax drop out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from courant.model.config import CourantConfig

_NARROWEST = 1e-2  # of sigma_0; keeps 1 / sigma^2 finite should kappa cross zero


class AnchorUpdate(nn.Module):
    """Delta_l: latent (..., d) -> displacement (..., d_c), zero at the start of training.    (Eq. anchor-update)"""

    def __init__(self, width: int, dimension: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.displacement = nn.Linear(width, dimension)

    def forward(self, Z: Tensor) -> Tensor:
        return self.displacement(gelu(self.hidden(Z)))


class GaussianWindows(nn.Module):
    """Anchors p^(l) and widths sigma(l, j) of every windowed cross-attention.    (Eq. anchor-update, Eq. gwa)

    Window l < num_blocks belongs to encoder block l, window num_blocks to the decoder. Window 0 sits at the initial
    anchors; window l > 0 is moved by Delta of the latent that block l - 1 put out (for the decoder: of the latent
    that is decoded, so that in a rollout the windows follow the state). Only windows in use have parameters.
    """

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        blocks = config.num_blocks
        self.in_use = tuple(range(blocks if config.window_in_encoder else 0)) + (
            (blocks,) if config.window_in_decoder else ()
        )
        # sigma_0 = alpha domain / sqrt(L)
        self.initial_width = config.window_scale * config.domain_extent / math.sqrt(config.num_anchors)
        self.kappa = nn.Parameter(torch.ones(len(self.in_use), config.num_anchors))
        self.updates = nn.ModuleDict(
            {str(window): AnchorUpdate(config.width, config.dimension) for window in self.in_use if window > 0}
        )

    def anchors(self, window: int, initial: Tensor, Z: Tensor) -> Tensor:
        """p^(l): initial anchors (B, L, d_c) and latent (B, [T,] L, d) -> (B, [T,] L, d_c)."""
        if window == 0:
            return initial
        displacement = self.updates[str(window)](Z)
        return initial.view(-1, *(1,) * (Z.dim() - 3), *initial.shape[1:]) + displacement

    def inverse_square_width(self, window: int) -> Tensor:
        """1 / sigma(l, j)^2, (L, 1)."""
        sigma_squared = self.initial_width**2 * self.kappa[self.in_use.index(window)].square()
        return sigma_squared.clamp(min=(_NARROWEST * self.initial_width) ** 2).reciprocal()[:, None]


def encoder_columns(anchors: Tensor, inverse_square_width: Tensor) -> Tensor:
    """Query side in the encoder, where the softmax runs over points: [2 p / s^2, -1 / s^2], (B, L, d_c + 1)."""
    inverse = inverse_square_width.expand(*anchors.shape[:-1], 1)
    return torch.cat((2 * inverse * anchors, -inverse), dim=-1)


def point_columns(points: Tensor) -> Tensor:
    """Key side in the encoder: [x, |x|^2], (B, N, d_c + 1)."""
    return torch.cat((points, points.square().sum(-1, keepdim=True)), dim=-1)


def decoder_columns(anchors: Tensor, inverse_square_width: Tensor) -> Tensor:
    """Key side in the decoder, where the softmax runs over anchors: [2 p / s^2, -1 / s^2, -|p|^2 / s^2]."""
    squared = anchors.square().sum(-1, keepdim=True)
    return torch.cat((encoder_columns(anchors, inverse_square_width), -inverse_square_width * squared), dim=-1)


def query_columns(points: Tensor) -> Tensor:
    """Query side in the decoder: [x, |x|^2, 1], (B, M, d_c + 2)."""
    return pad(point_columns(points), (0, 1), value=1.0)
