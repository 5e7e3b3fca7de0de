"""Fourier neural operator: convolutions on a grid, with a weight for each low frequency.

Z. Li, N. Kovachki, K. Azizzadenesheli, B. Liu, K. Bhattacharya, A. Stuart and A. Anandkumar,
Fourier Neural Operator for Parametric Partial Differential Equations, ICLR 2021.

The domain is not periodic, so the grid is padded by an eighth of its nodes along each axis, as the
authors do. Frequencies are the lowest `num_modes` along each axis, of both signs. The sizes, 3.5 %
above the paper's count, are in docs/baselines.md.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from courant.baselines.baseline import GridConfig, GridModel
from courant.model_config import size
from courant.models import register


@dataclass(frozen=True)
class FnoConfig(GridConfig):
    """Sizes of an FNO; the defaults are those of the industrial case."""

    kind: ClassVar[str] = "fno"

    width: int = size(32, 1, 1024)
    num_layers: int = size(4, 1, 64)
    #: Frequencies of each sign along every axis.
    num_modes: int = size(10, 1, 512)
    #: Hidden width of the networks in front of and behind the layers.
    projection_width: int = size(128, 1, 4096)

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 * self.num_modes > self.resolution:
            raise ValueError(
                f"FnoConfig.num_modes = {self.num_modes} needs a resolution of"
                f" {2 * self.num_modes} at least, got {self.resolution}"
            )


class SpectralConvolution(nn.Module):
    """Multiply the lowest frequencies of (B, width, R, ...) by a complex matrix each."""

    def __init__(self, config: FnoConfig) -> None:
        super().__init__()
        self.num_modes, self.dimension = config.num_modes, config.dimension
        kept = [2 * config.num_modes] * (config.dimension - 1) + [config.num_modes]
        # Real and imaginary parts: optimisers and collectives know real numbers best.
        start = torch.rand(config.width, config.width, *kept, 2) / config.width**2
        self.weights = nn.Parameter(start)

    def forward(self, x: Tensor) -> Tensor:
        axes = tuple(range(-self.dimension, 0))
        with torch.autocast(x.device.type, enabled=False):
            frequencies = torch.fft.rfftn(x.float(), dim=axes)
            # -m to m - 1; 0 to m - 1 on the last axis
            ahead = torch.arange(self.num_modes, device=x.device)
            both = torch.cat([ahead, ahead - self.num_modes])
            lowest = torch.meshgrid([both] * (self.dimension - 1) + [ahead], indexing="ij")
            kept: tuple[slice | Tensor, ...] = (slice(None), slice(None), *lowest)
            weights = torch.view_as_complex(self.weights)
            low = torch.einsum("bi...,io...->bo...", frequencies[kept], weights)
            filtered = torch.zeros_like(frequencies)
            filtered[kept] = low
            return torch.fft.irfftn(filtered, s=x.shape[2:], dim=axes)


class PointwiseLinear(nn.Linear):
    """A linear map of the channels of (B, c, R, ...), the same at each node."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class Fno(GridModel):
    """Lift, apply the layers x <- gelu(K x + W x), the last without gelu, and project."""

    config: FnoConfig

    def __init__(self, config: FnoConfig) -> None:
        super().__init__()
        self.config = config
        known = config.num_features + config.dimension + config.num_parameters
        width, hidden = config.width, config.projection_width
        self.lift = nn.Sequential(
            PointwiseLinear(known, hidden), nn.GELU(), PointwiseLinear(hidden, width)
        )
        self.spectral = nn.ModuleList(SpectralConvolution(config) for _ in range(config.num_layers))
        self.local = nn.ModuleList(PointwiseLinear(width, width) for _ in range(config.num_layers))
        self.project = nn.Sequential(
            PointwiseLinear(width, hidden), nn.GELU(), PointwiseLinear(hidden, config.num_outputs)
        )

    def field(self, known: Tensor) -> Tensor:
        size = self.config.resolution
        x = pad(self.lift(known), [0, size // 8] * self.config.dimension)
        for number, (spectral, local) in enumerate(
            zip(self.spectral, self.local, strict=True), start=1
        ):
            x = spectral(x) + local(x)
            x = x if number == self.config.num_layers else gelu(x)
        inside = (slice(None), slice(None), *[slice(size)] * self.config.dimension)
        return self.project(x[inside])


register(FnoConfig, Fno)
