"""The seam between models and everything that uses them, in nothing but torch.

A model predicts a field at query points from a point cloud. Training, checkpoints, sweeps, prediction, evaluation and
serving know `FieldModel`, `Inputs` and `Queries`, and ask for a capability where they need more: a model that
decomposes its predictions, or whose anchors have positions. They never ask for a class.

Shapes: B clouds, N points, M queries, T steps, C channels, d coordinates, L anchors. Everything is normalised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn


class Inputs(NamedTuple):
    """What a model reads of B clouds. A part that its sizes leave out is None."""

    points: Tensor
    """(B, N, d)"""
    features: Tensor
    """(B, N, num_features)"""
    mask: Tensor | None = None
    """(B, N) bool, True at real points; None where nothing is padded"""
    parameters: Tensor | None = None
    """(B, num_parameters), the design parameters"""
    anchors: Tensor | None = None
    """(B, L, d), points sampled from each cloud beforehand; None lets the model place its own"""


class Queries(NamedTuple):
    """Where a model predicts."""

    points: Tensor
    """(B, M, d)"""
    features: Tensor | None = None
    """(B, M, num_query_features)"""

    def part(self, chosen: slice | Tensor) -> Queries:
        """Some of the query points, by a slice of them or their numbers."""
        features = None if self.features is None else self.features[:, chosen]
        return Queries(self.points[:, chosen], features)


@dataclass(frozen=True)
class ModelConfig:
    """The sizes that a dataset gives to a model. Each kind of model adds its own choices."""

    #: Channels at each encoder point (several input frames are simply more channels).
    num_features: int
    #: C: channels of the predicted field.
    num_outputs: int
    #: Channels at each query, such as the distance field; 0 leaves the query to its coordinates.
    num_query_features: int = 0
    #: Design parameters; 0 for none.
    num_parameters: int = 0
    #: d: 1, 2 or 3. A 2D case may well carry z = 0.
    dimension: int = 3
    #: Predicts the states after 1..T steps, or a single field.
    transient: bool = False

    #: The name under which experiments ask for this kind of model.
    kind: ClassVar[str]

    @property
    def num_sampled_anchors(self) -> int:
        """Points that are sampled from each cloud for this model, once a case; 0 where it needs none."""
        return 0

    @property
    def waits_for_device(self) -> str | None:
        """What in the model makes the host ask the device for a number, so that no CUDA graph can hold it."""
        return None

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Rebuild a config; ValueError names a field that is unknown, missing or of no valid value."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"{cls.__name__} has no field {', '.join(unknown)[:200]}; its fields are {', '.join(sorted(known))}"
            )
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"{cls.__name__} is incomplete: {error}") from error


class FieldModel(nn.Module, ABC):
    """A model as the rest of the project sees it.

    Padding never has an influence: what stands where `mask` is False, NaN included, changes no result and no gradient.
    """

    config: ModelConfig

    @abstractmethod
    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        """The field after 1..T = `num_steps` steps, (B, T, M, C); a steady model predicts one step."""

    def predict(self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None) -> Tensor:
        """As `forward`, with at most `chunk` queries at a time: for inference at millions of points.

        A model whose encoder does not see the queries overrides this and encodes once.
        """
        if chunk is None or chunk >= queries.points.shape[1]:
            return self(inputs, queries, num_steps)
        parts = [
            self(inputs, queries.part(slice(start, start + chunk)), num_steps)
            for start in range(0, queries.points.shape[1], chunk)
        ]
        return torch.cat(parts, dim=2)


class Contributions(Protocol):
    """Contributions at some of the query points."""

    @property
    def queries(self) -> slice:
        """Which query points these are."""

    @property
    def contributions(self) -> Tensor:
        """(B, T, L, M, C)"""


class FieldDecomposition(Protocol):
    """A prediction as an offset and one field for each anchor, whose sum it is."""

    @property
    def offset(self) -> Tensor:
        """(C,)"""

    @property
    def anchors(self) -> Tensor | None:
        """(B, L, d), or None where the anchors have no positions"""

    def chunks(self, size: int = ...) -> Iterator[Contributions]:
        """Parts of at most `size` query points, in order."""

    def whole(self) -> Contributions:
        """All query points at once."""


@runtime_checkable
class Decomposes(Protocol):
    """The capability of taking a prediction apart exactly."""

    def decompose(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> FieldDecomposition:
        """The field of `forward` as an offset and one contribution for each anchor."""
