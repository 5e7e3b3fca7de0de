"""FactFormer: attention along one axis of a grid at a time.

Z. Li, D. Shu and A. Barati Farimani, Scalable Transformer for PDE Surrogate Modeling, NeurIPS 2023.

For each axis the field is averaged over the other axes, a small attention between the grid's lines
follows, and its weights mix the values along that axis; the axes are applied one after the other.
As in the library that the paper takes its baselines from, weights are a softmax, positions channels
of the input, and blocks pre-norm. Chosen here: feed-forward networks of twice the width.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from courant.baselines.baseline import GridConfig, GridModel, feed_forward, initialise, split_heads
from courant.model_config import size
from courant.models import register


@dataclass(frozen=True)
class FactFormerConfig(GridConfig):
    """Sizes of a FactFormer; the defaults are those of Pipe and Darcy in the paper."""

    kind: ClassVar[str] = "factformer"

    width: int = size(128, 1, 4096)
    num_heads: int = size(8, 1, 1024)
    num_layers: int = size(8, 1, 64)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_divides("width", "num_heads")


class AxisWeights(nn.Module):
    """Compute how much each line across an axis takes from each other one."""

    def __init__(self, config: FactFormerConfig) -> None:
        super().__init__()
        width, head = config.width, config.width // config.num_heads
        self.num_heads = config.num_heads
        self.reduce = nn.Linear(width, width, bias=False)
        self.line = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
        )
        self.query = nn.Linear(head, head, bias=False)
        self.key = nn.Linear(head, head, bias=False)

    def forward(self, x: Tensor, axis: int) -> Tensor:
        """(B, R, ..., width) -> (B, H, R, R) along `axis`, 1 being the first one."""
        others = [other for other in range(1, x.dim() - 1) if other != axis]
        reduced = self.reduce(x)
        lines = self.line(reduced.mean(others) if others else reduced)  # (B, R, width)
        heads = split_heads(lines, self.num_heads)
        q, k = self.query(heads), self.key(heads)
        return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)


class FactFormerBlock(nn.Module):
    """Pre-norm factorised attention and feed-forward network."""

    def __init__(self, config: FactFormerConfig) -> None:
        super().__init__()
        width, head = config.width, config.width // config.num_heads
        self.num_heads = config.num_heads
        self.norm = nn.LayerNorm(width)
        self.weights = nn.ModuleList(AxisWeights(config) for _ in range(config.dimension))
        self.value = nn.Linear(head, head, bias=False)
        self.output = nn.Linear(width, width)
        self.feed_forward = feed_forward(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(B, R, ..., width) -> the same."""
        normed = self.norm(x)
        mixed = self.value(normed.unflatten(-1, (self.num_heads, -1)))  # (B, R, ..., H, head)
        for axis, weights in enumerate(self.weights, start=1):
            along = mixed.movedim(axis, -2)  # (B, other axes, H, R, head)
            taken = weights(normed, axis)
            for _ in range(along.dim() - taken.dim()):
                taken = taken[:, None]
            mixed = (taken @ along).movedim(-2, axis)
        x = x + self.output(mixed.flatten(-2))
        return x + self.feed_forward(x)


class FactFormer(GridModel):
    """Embed each node, apply the blocks, read the field off each node."""

    config: FactFormerConfig

    def __init__(self, config: FactFormerConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        known = config.num_features + config.dimension + config.num_parameters
        self.embedding = nn.Sequential(
            nn.Linear(known, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.blocks = nn.Sequential(*(FactFormerBlock(config) for _ in range(config.num_layers)))
        self.output = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, config.num_outputs))
        initialise(self)

    def field(self, known: Tensor) -> Tensor:
        x = self.embedding(known.movedim(1, -1))
        return self.output(self.blocks(x)).movedim(-1, 1)


register(FactFormerConfig, FactFormer)
