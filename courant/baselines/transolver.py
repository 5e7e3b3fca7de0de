"""Transolver: attention between a few slices that the points of a mesh are softly assigned to.

H. Wu, H. Luo, H. Wang, J. Wang and M. Long, Transolver: A Fast Transformer Solver for PDEs on
General Geometries, ICML 2024.

The published counts pin the sizes down, exactly (docs/baselines.md). Queries are ghosts that read
slices and write none; slice weights start orthogonal, as the authors intend and their own
initialisation then overwrites.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from courant.baselines import baseline
from courant.model_config import size
from courant.models import register

_LEAST_WEIGHT = 1e-5  # Added to a slice's total weight, so that an empty slice divides by something


@dataclass(frozen=True)
class TransolverConfig(baseline.GhostConfig):
    """Sizes of a Transolver; the defaults are those of the industrial cases."""

    kind: ClassVar[str] = "transolver"

    width: int = size(256, 1, 4096)
    num_heads: int = size(8, 1, 1024)
    num_layers: int = size(8, 1, 64)
    num_slices: int = size(32, 1, 4096)
    #: Hidden width of the feed-forward networks over `width`.
    ffn_multiple: int = size(2, 1, 64)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_divides("width", "num_heads")


class PhysicsAttention(nn.Module):
    """Slice, attend between slices, spread back.

    w = softmax(x S / tau) over slices; token_g = sum_i w_ig f_i / sum_i w_ig over the sites that
    write; the tokens attend to each other; each site gets sum_g w_ig token_g. The maps to the
    slices and tau are one matrix, and f is zero where a site writes nothing, so three arrays of
    the size of x less are kept for the backward pass.
    """

    def __init__(self, config: TransolverConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        head = config.width // config.num_heads
        self.temperature = nn.Parameter(torch.full((config.num_heads, 1, 1), 0.5))
        self.assigned = nn.Linear(config.width, config.width)
        self.carried = nn.Linear(config.width, config.width)
        self.slices = nn.Linear(head, config.num_slices)
        self.query = nn.Linear(head, head, bias=False)
        self.key = nn.Linear(head, head, bias=False)
        self.value = nn.Linear(head, head, bias=False)
        self.output = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, writes: Tensor) -> Tensor:
        """(B, S, width) -> (B, S, width); `writes` (B, S)."""
        weights = baseline.split_heads(linear(x, *self._to_slices()), self.num_heads).softmax(-1)
        carried = baseline.split_heads(self.carried(x) * writes[..., None], self.num_heads)
        written = (weights * writes[:, None, :, None]).sum(2)[..., None]  # (B, H, G, 1)
        tokens = weights.transpose(-1, -2) @ carried / (written + _LEAST_WEIGHT)  # (B, H, G, head)
        tokens = scaled_dot_product_attention(
            self.query(tokens), self.key(tokens), self.value(tokens)
        )
        return self.output((weights @ tokens).transpose(1, 2).flatten(2))

    def _to_slices(self) -> tuple[Tensor, Tensor]:
        """Return weight (H * G, width) and bias (H * G,) of the logits of all heads."""
        slices = self.slices.weight / self.temperature.clamp(0.1, 5.0)  # (H, G, head)
        per_head = (self.num_heads, -1)
        bias = slices @ self.assigned.bias.unflatten(0, per_head)[..., None]
        bias = bias[..., 0] + self.slices.bias / self.temperature[..., 0].clamp(0.1, 5.0)
        return (slices @ self.assigned.weight.unflatten(0, per_head)).flatten(0, 1), bias.flatten()


class TransolverBlock(nn.Module):
    """Pre-norm physics attention and feed-forward network."""

    def __init__(self, config: TransolverConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = PhysicsAttention(config)
        self.feed_forward = baseline.feed_forward(config.width, config.ffn_multiple)

    def forward(self, x: Tensor, writes: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), writes)
        return x + self.feed_forward(x)


class Transolver(baseline.GhostModel):
    """Embed each site, apply the blocks, read the field off each site."""

    config: TransolverConfig

    def __init__(self, config: TransolverConfig) -> None:
        super().__init__()
        self.config = config
        known = config.dimension + config.num_features + config.num_parameters
        self.embedding = nn.Sequential(
            nn.Linear(known, 2 * config.width), nn.GELU(), nn.Linear(2 * config.width, config.width)
        )
        self.placeholder = nn.Parameter(torch.rand(config.width) / config.width)
        self.blocks = nn.ModuleList(TransolverBlock(config) for _ in range(config.num_layers))
        self.output = nn.Sequential(
            nn.LayerNorm(config.width), nn.Linear(config.width, config.num_outputs)
        )
        baseline.initialise(self)
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, PhysicsAttention):
                    nn.init.orthogonal_(module.slices.weight)

    def field(self, sites: baseline.Sites, features: Tensor, prepared: None) -> Tensor:
        x = self.embedding(sites.known(features)) + self.placeholder
        for block in self.blocks:
            x = block(x, sites.writes)
        return self.output(x)


register(TransolverConfig, Transolver)
