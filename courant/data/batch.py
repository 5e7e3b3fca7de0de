"""Define one batch of training samples: the tensors that a model reads, and its targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from courant.field_model import Inputs, ModelConfig, Queries


@dataclass(frozen=True)
class Batch:
    """B samples, normalised: the model's inputs and targets.

    Features are those of transient windows; `courant.problems.steady` documents the steady ones. N
    encoder points, M queries, T window steps, I input steps; C channels, G given ones, D distance
    channels, L anchors.
    """

    points: Tensor
    """(B, N, 3)"""
    features: Tensor
    """(B, N, I C + G + D): the snapshots up to the start, oldest first, the given fields and the
    distance field
    """
    mask: Tensor | None
    """(B, N): True at real points; None where nothing is padded"""
    anchors: Tensor
    """(B, L, 3) sampled from the cloud; L = 0 for a model that needs none"""
    query_points: Tensor
    """(B, M, 3)"""
    query_features: Tensor
    """(B, M, G + D)"""
    query_mask: Tensor | None
    """(B, M)"""
    targets: Tensor
    """(B, T, M, C); T = 1 in steady problems, M = 0 where a prediction is asked for"""
    parameters: Tensor
    """(B, P) design parameters"""
    scale: Tensor | None = None
    """(B, C), by how much each sample's units are those of the split; None where they are them"""
    neighbours: Tensor | None = None
    """(B, N, k) int32, the points that share a face with each, -1 beyond them; None where the model
    reads no edges, or the points have no mesh
    """

    def for_model(self, config: ModelConfig) -> tuple[Inputs, Queries]:
        """Return what a model of these sizes reads; a size that leaves out a part drops it."""
        d = config.dimension
        inputs = Inputs(
            points=self.points[..., :d],
            # The distance field is last: a model without it reads the channels before.
            features=self.features[..., : config.num_features],
            mask=self.mask,
            parameters=self.parameters if config.num_parameters else None,
            anchors=self.anchors[..., :d] if config.num_sampled_anchors else None,
            neighbours=self.neighbours if config.reads_edges else None,
        )
        width = config.num_query_features
        features = self.query_features[..., :width] if width else None
        return inputs, Queries(self.query_points[..., :d], features)

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Batch:
        """Build a batch from its `tensors`."""
        rest = {name: tensor for name, tensor in tensors.items() if "mask" not in name}
        return cls(mask=tensors.get("mask"), query_mask=tensors.get("query_mask"), **rest)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors that are not None, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def num_steps(self) -> int:
        """T, the states that are predicted."""
        return self.targets.shape[1]

    @property
    def num_bytes(self) -> int:
        return sum(value.numel() * value.element_size() for value in self.tensors.values())

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Join batches of the same shapes."""
        first, *_ = batches
        if len(batches) == 1:
            return first
        names = [name for name, value in vars(first).items() if value is not None]
        return replace(
            first,
            **{name: torch.cat([getattr(batch, name) for batch in batches]) for name in names},
        )

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Apply a function to each tensor."""
        return replace(self, **{name: function(value) for name, value in self.tensors.items()})
