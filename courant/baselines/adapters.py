"""Let a model of mesh points, or of a regular grid, read a cloud and predict anywhere.

Mesh points: queries are ghosts. A ghost is processed like a point of the cloud, with the same
weights. It reads what the cloud's points write (slices, messages) and writes nothing, so queries do
not see each other, and a query at a point of the cloud is predicted as that point is. It knows its
own position, given fields and distance field; the state, or the boundary condition, is interpolated
from the cloud.

Grids: the grid spans the bounding box of the cloud's points with `resolution` nodes along every
axis, and each node gets the features of the nearest points, weighted by the inverse square of their
distance. A node inside a body thus gets what is at the body's surface; that it lies inside shows in
the distance field alone. Back: the field at a query is interpolated linearly between the nodes
around it; a query outside of the box gets the value at its border.

Rollouts are autoregressive, at points and ghosts or on the grid, which reads the cloud once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from courant.baselines.baseline import BaselineConfig, MeshConfig, advance, find_nearest
from courant.field_model import FieldModel, Inputs, Queries

MAX_NODES = 2**24
_LEAST_EXTENT = 1e-6
"""Half the extent of a box that is flat along an axis, such as z of a 2D case"""


class Sites(NamedTuple):
    """The points of the cloud, followed by the ghosts."""

    points: Tensor
    """(B, S, d)"""
    features: Tensor
    """(B, S, num_features)"""
    writes: Tensor
    """(B, S) bool, True at the cloud's real points"""
    num_cloud: int
    """N"""
    parameters: Tensor | None
    neighbours: Tensor | None = None
    """(B, N, k) of the cloud's points, as `Inputs` has them"""

    def known(self, features: Tensor) -> Tensor:
        """Join position, features and design parameters of every site, (B, S, c)."""
        parts = [self.points, features]
        if self.parameters is not None:
            parts.append(self.parameters[:, None].expand(-1, self.points.shape[1], -1))
        return torch.cat(parts, dim=-1)


@dataclass(frozen=True)
class GhostConfig(MeshConfig):
    """The sizes of a model that takes the queries along as ghosts."""

    @property
    def waits_for_device(self) -> str | None:
        return "a look at whether the queries are the cloud's points"


class GhostModel(FieldModel):
    """A model of mesh points that takes the queries along as ghosts."""

    config: GhostConfig

    @abstractmethod
    def prepare(self, sites: Sites) -> Any:
        """Compute what all steps share, such as neighbours."""

    @abstractmethod
    def field(self, sites: Sites, features: Tensor, prepared: Any) -> Tensor:
        """Predict the field, or the next state, at every site (B, S, C) from its features."""

    def choose(self, sites: Sites, asked: slice) -> tuple[Sites, slice]:
        """Return the sites that the model works on, and which of them are predicted."""
        return sites, asked

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        self.config.check_steps(num_steps)
        on_cloud = _coincide(inputs.points, queries.points)
        sites = _join(inputs.without_padding(), None if on_cloud else queries, self.config)
        asked = slice(None) if on_cloud else slice(sites.num_cloud, None)
        sites, asked = self.choose(sites, asked)
        prepared, features = self.prepare(sites), sites.features
        states = []
        for _ in range(num_steps):
            state = self.field(sites, features, prepared)
            states.append(state)
            features = advance(features, state, self.config.input_steps)
        return torch.stack([state[:, asked] for state in states], dim=1)

    def predict(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None
    ) -> Tensor:
        """Predict like `forward`; the cloud's own points in one pass, whatever `chunk` is.

        The cloud is processed as a whole anyway.
        """
        on_cloud = _coincide(inputs.points, queries.points)
        return super().predict(inputs, queries, num_steps, None if on_cloud else chunk)


def _coincide(points: Tensor, queries: Tensor) -> bool:
    """Whether the queries are the cloud's points themselves: then they need no ghosts."""
    return points.shape == queries.shape and torch.equal(points, queries)


def _join(inputs: Inputs, queries: Queries | None, config: MeshConfig) -> Sites:
    points, features, mask = inputs.points, inputs.features, inputs.mask
    writes = torch.ones_like(points[..., 0], dtype=torch.bool) if mask is None else mask
    if queries is not None:
        near = find_nearest(queries.points, points, mask, config.dimension + 1)
        known = [near.interpolate(features[..., : config.num_carried])]
        if queries.features is not None:
            known.append(queries.features)
        points = torch.cat([points, queries.points], dim=1)
        features = torch.cat([features, torch.cat(known, dim=-1)], dim=1)
        silent = torch.zeros_like(queries.points[..., 0], dtype=torch.bool)
        writes = torch.cat([writes, silent], dim=1)
    num_cloud = inputs.points.shape[1]
    return Sites(points, features, writes, num_cloud, inputs.parameters, inputs.neighbours)


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
        # In full precision: bfloat16 has 256 places.
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
        self.config.check_steps(num_steps)
        inputs = inputs.without_padding()
        box = Box(inputs.points, inputs.mask)
        config, nodes = self.config, box.nodes(self.config.resolution)
        near = find_nearest(nodes, inputs.points, inputs.mask, config.dimension + 1)
        channels = [near.interpolate(inputs.features), nodes]
        if inputs.parameters is not None:
            channels.append(inputs.parameters[:, None].expand(-1, nodes.shape[1], -1))
        known = torch.cat(channels, dim=-1).transpose(1, 2)
        known = known.unflatten(2, [config.resolution] * config.dimension)
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
