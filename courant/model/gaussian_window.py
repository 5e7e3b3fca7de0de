"""Gaussian window attention: anchors move with the latent, and the bias needs no L x N matrix.

-|p - x|^2 / sigma^2 = 2 p.x / sigma^2 - |x|^2 / sigma^2 - |p|^2 / sigma^2 is an inner product of a
few columns of the anchor with a few columns of the point, so it joins the logit q.k as extra
channels of q and k, and any fused attention kernel applies. Terms that are constant along the
softmax drop out.

Under reduced precision (autocast, TF32) the factors are split into a rounded part and its
remainder, a = a1 + a2, and a.x is computed as a1 x1 + a1 x2 + a2 x1: the kernels sum in float32, so
distances keep some 16 bits instead of 8.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from courant.model.config import CourantConfig

_NARROWEST = 1e-2  # of sigma_0; keeps 1 / sigma^2 finite should kappa cross zero


class AnchorUpdate(nn.Module):
    """Delta_l: latent (..., d) -> displacement (..., d_c), zero at first.    (Eq. anchor-update)"""

    def __init__(self, width: int, dimension: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.displacement = nn.Linear(width, dimension)

    def forward(self, Z: Tensor) -> Tensor:
        with torch.autocast(Z.device.type, enabled=False):  # positions in full precision
            return self.displacement(gelu(self.hidden(Z.to(self.hidden.weight.dtype))))


class GaussianWindows(nn.Module):
    """Anchors p^(l) and widths sigma(l, j) of every windowed cross-attention.

    (Eq. anchor-update, Eq. gwa) Window l < num_blocks belongs to encoder block l, window num_blocks
    to the decoder. Window 0 is at the initial anchors; window l > 0 is moved by Delta of the output
    of block l - 1 (for the decoder: of the latent that is decoded, so that in a rollout the windows
    follow the state). Only windows in use have parameters.
    """

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        blocks = config.num_blocks
        self.in_use = tuple(range(blocks if config.window_in_encoder else 0)) + (
            (blocks,) if config.window_in_decoder else ()
        )
        # sigma_0 = alpha domain / sqrt(L)
        self.initial_width = config.window_scale * config.domain_extent / config.num_anchors**0.5
        self.kappa = nn.Parameter(torch.ones(len(self.in_use), config.num_anchors))
        self.updates = nn.ModuleDict(
            {
                str(window): AnchorUpdate(config.width, config.dimension)
                for window in self.in_use
                if window > 0
            }
        )

    def anchors(self, window: int, initial: Tensor, Z: Tensor) -> Tensor:
        """Move the initial anchors (B, L, d_c) by the latent (B, [T,] L, d) to p^(l)."""
        if window == 0:
            return initial
        displacement = self.updates[str(window)](Z)
        return initial.view(-1, *(1,) * (Z.dim() - 3), *initial.shape[1:]) + displacement

    def inverse_square_width(self, window: int) -> Tensor:
        """Return 1 / sigma(l, j)^2, (L, 1)."""
        sigma_squared = self.initial_width**2 * self.kappa[self.in_use.index(window)].square()
        return sigma_squared.clamp(min=(_NARROWEST * self.initial_width) ** 2).reciprocal()[:, None]


def split_dtype(device: torch.device) -> torch.dtype | None:
    """Return the precision to which factors must be split here and now; None in full precision."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    if device.type == "cuda" and torch.get_float32_matmul_precision() != "highest":
        return torch.bfloat16
    return None


def left_columns(factor: Tensor) -> Tensor:
    """Return the factor (..., e) on the anchors' side, or [a1, a1, a2] where it must be split."""
    first, second = _split(factor)
    return factor if second is None else torch.cat((first, first, second), dim=-1)


def right_columns(factor: Tensor) -> Tensor:
    """Return the factor (..., e) on the points' side, or [x1, x2, x1] where it must be split."""
    first, second = _split(factor)
    return factor if second is None else torch.cat((first, second, first), dim=-1)


def encoder_columns(anchors: Tensor, inverse_square_width: Tensor) -> Tensor:
    """Return the encoder's query columns [2 p / s^2, -1 / s^2], (B, L, d_c + 1) unsplit.

    In the encoder the softmax runs over points.
    """
    inverse = inverse_square_width.expand(*anchors.shape[:-1], 1)
    return torch.cat((2 * inverse * anchors, -inverse), dim=-1)


def point_columns(points: Tensor) -> Tensor:
    """Return the points' columns [x, |x|^2], (B, N, d_c + 1) unsplit."""
    return torch.cat((points, points.square().sum(-1, keepdim=True)), dim=-1)


def decoder_key_columns(anchors: Tensor, inverse_square_width: Tensor) -> Tensor:
    """Return the decoder's key columns [2 p / s^2, -1 / s^2] and -|p|^2 / s^2.

    In the decoder the softmax runs over anchors, so the last term differs along it. It is
    multiplied by one, so its two parts are side by side.
    """
    moving = left_columns(encoder_columns(anchors, inverse_square_width))
    first, second = _split(-inverse_square_width * anchors.square().sum(-1, keepdim=True))
    return torch.cat((moving, first) if second is None else (moving, first, second), dim=-1)


def decoder_query_columns(points: Tensor) -> Tensor:
    """Return the decoder's query columns: [x, |x|^2] and one or two ones."""
    num_ones = 1 if split_dtype(points.device) is None else 2
    return pad(right_columns(point_columns(points)), (0, num_ones), value=1.0)


def _split(factor: Tensor) -> tuple[Tensor, Tensor | None]:
    dtype = split_dtype(factor.device)
    if dtype is None:
        return factor, None
    first = factor.to(dtype).to(factor.dtype)
    return first, factor - first
