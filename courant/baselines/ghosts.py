"""Let a model that works on the points of a mesh predict anywhere: queries are ghosts.

A ghost is processed like a point of the cloud, with the same weights. It reads what the cloud's
points write (slices, messages) and writes nothing, so queries do not see each other, and a query at
a point of the cloud is predicted as that point is. It knows its own position, given fields and
distance field; the state, or the boundary condition, is interpolated from the cloud.

A rollout is autoregressive: each step's prediction, at points and ghosts, is the next one's state.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from courant.baselines.known_states import advance
from courant.baselines.nearest import find_nearest
from courant.baselines.sizes import MeshConfig
from courant.field_model import FieldModel, Inputs, Queries


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
        """Return the sites that the model works on, and which of them are asked for."""
        return sites, asked

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        if num_steps != 1 and not self.config.transient:
            raise ValueError(f"a steady model predicts one step, got num_steps = {num_steps}")
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
        """Predict like `forward`; the cloud's own points in one pass, whatever `chunk` says.

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
