"""Let a model that needs a regular grid read a cloud and predict anywhere.

To the grid: it spans the bounding box of the cloud's points with `resolution` nodes along every
axis, and each node gets the features of the nearest points, weighed by the inverse square of their
distance. A node inside a body thus gets what is at the body's surface; that it lies inside shows in
the distance field alone. Back: the field at a query is interpolated linearly between the nodes
around it; a query outside of the box gets the value at its border.

A rollout is autoregressive and stays on the grid: the cloud is carried there once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from courant.baselines.known_states import advance
from courant.baselines.nearest import find_nearest
from courant.baselines.sizes import BaselineConfig
from courant.field_model import FieldModel, Inputs, Queries

MAX_NODES = 2**24
_LEAST_EXTENT = 1e-6
"""Half the extent of a box that is flat along an axis, such as z of a 2D case"""


@dataclass(frozen=True)
class GridConfig(BaselineConfig):
    """The sizes of a model on a grid."""

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"resolution": (4, 4096)}

    #: Nodes along every axis of the cloud's bounding box.
    resolution: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resolution**self.dimension > MAX_NODES:
            raise ValueError(
                f"{type(self).__name__}.resolution = {self.resolution} makes a grid of more than"
                f" {MAX_NODES:,} nodes in {self.dimension}D; lower it"
            )


class Box:
    """The bounding box of each cloud's real points."""

    def __init__(self, points: Tensor, mask: Tensor | None) -> None:
        absent = None if mask is None else ~mask[..., None]
        low = points if absent is None else points.masked_fill(absent, torch.inf)
        high = points if absent is None else points.masked_fill(absent, -torch.inf)
        lowest, highest = low.amin(1, keepdim=True), high.amax(1, keepdim=True)
        self.centre = (lowest + highest) / 2  # (B, 1, d)
        self.half = ((highest - lowest) / 2).clamp(min=_LEAST_EXTENT)

    def nodes(self, resolution: int) -> Tensor:
        """Return (B, R^d, d), the nodes in the order of the grid's axes."""
        line = torch.linspace(-1, 1, resolution, device=self.half.device, dtype=self.half.dtype)
        axes = torch.meshgrid([line] * self.half.shape[-1], indexing="ij")
        return self.centre + self.half * torch.stack(axes, -1).flatten(0, -2)

    def sample(self, field: Tensor, places: Tensor) -> Tensor:
        """(B, C, R, ...) at the places (B, M, d) -> (B, M, C)."""
        at = ((places - self.centre) / self.half).flip(-1)  # the last axis comes first
        if field.dim() == 3:  # grid_sample knows two axes at least
            field, at = field[:, :, None], torch.cat([at, torch.zeros_like(at)], -1)
        at = at.view(len(at), *[1] * (at.shape[-1] - 1), *at.shape[1:])
        # Whatever autocast says: bfloat16 knows 256 places.
        exact = torch.promote_types(field.dtype, at.dtype)
        with torch.autocast(field.device.type, enabled=False):
            sampled = grid_sample(
                field.to(exact), at.to(exact), padding_mode="border", align_corners=True
            )
        return sampled.flatten(2).transpose(1, 2)


class GridModel(FieldModel):
    """A model of fields on a regular grid."""

    config: GridConfig

    @abstractmethod
    def field(self, known: Tensor) -> Tensor:
        """Predict the field, or the next state, (B, C, R, ...) from all channels of the grid."""

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        if num_steps != 1 and not self.config.transient:
            raise ValueError(f"a steady model predicts one step, got num_steps = {num_steps}")
        inputs = inputs.without_padding()
        box = Box(inputs.points, inputs.mask)
        known = self._carry(inputs, box)
        steps = []
        for _ in range(num_steps):
            state = self.field(known)
            steps.append(box.sample(state, queries.points))
            known = advance(known, state, self.config.input_steps, dim=1)
        return torch.stack(steps, dim=1)

    def predict(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None
    ) -> Tensor:
        """Predict like `forward`: the grid costs most, and it is computed once."""
        return self(inputs, queries, num_steps)

    def _carry(self, inputs: Inputs, box: Box) -> Tensor:
        """Return features, position and design parameters of every node, (B, c, R, ...)."""
        config, nodes = self.config, box.nodes(self.config.resolution)
        near = find_nearest(nodes, inputs.points, inputs.mask, config.dimension + 1)
        channels = [near.interpolate(inputs.features), nodes]
        if inputs.parameters is not None:
            channels.append(inputs.parameters[:, None].expand(-1, nodes.shape[1], -1))
        joined = torch.cat(channels, dim=-1).transpose(1, 2)
        return joined.unflatten(2, [config.resolution] * config.dimension)
