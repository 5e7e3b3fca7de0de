"""Define the seam between models and everything that uses them, in nothing but torch.

A model predicts a field at query points from a point cloud. Training, checkpoints, sweeps,
prediction, evaluation and serving know `FieldModel`, `Inputs` and `Queries`, and ask for a
capability where they need more: a model that decomposes its predictions, or whose anchors have
positions. They never ask for a class.

Shapes: B clouds, N points, M queries, T steps, C channels, d coordinates, L anchors. Everything is
normalised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode

from courant.model_config import ModelConfig


class Inputs(NamedTuple):
    """The input of a model for B clouds; a part that its sizes leave out is None."""

    points: Tensor  # (B, N, d)
    features: Tensor  # (B, N, num_features)
    mask: Tensor | None = None  # (B, N) bool, True at real points; None where nothing is padded
    parameters: Tensor | None = None  # (B, num_parameters), the design parameters
    anchors: Tensor | None = None  # (B, L, d), sampled beforehand; None: the model places its own
    neighbours: Tensor | None = None
    """(B, N, k) int32, the numbers of the points that a mesh connects to each point, -1 beyond
    them; None where no mesh is known, and for models that read none
    """

    def without_padding(self) -> Inputs:
        """Replace padding values, which may be NaN, by zeros."""
        if self.mask is None:
            return self
        padding, listed = ~self.mask[..., None], self.neighbours
        return self._replace(
            points=self.points.masked_fill(padding, 0.0),
            features=self.features.masked_fill(padding, 0.0),
            neighbours=None if listed is None else listed.masked_fill(padding, -1),
        )


class Queries(NamedTuple):
    """The points where a model predicts."""

    points: Tensor  # (B, M, d)
    features: Tensor | None = None  # (B, M, num_query_features)

    def part(self, chosen: slice | Tensor) -> Queries:
        """Select some of the query points, by a slice or by their numbers."""
        features = None if self.features is None else self.features[:, chosen]
        return Queries(self.points[:, chosen], features)


class Unfilled(TorchFunctionMode):
    """Makes tensors and never fills them: to draw on the meta device, torch loads its compiler."""

    def __torch_function__(self, call: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        name, named = call.__name__, named or {}
        if name.endswith("_") and not name.endswith("__"):
            return next(iter([*given, *named.values()]))
        made = torch.empty if name in ("rand", "randn") else call
        return made(*given, **named)


class FieldModel(nn.Module, ABC):
    """A model as the rest of the project sees it.

    Padding never has an influence: values where `mask` is False, NaN included, change no result and
    no gradient.
    """

    config: ModelConfig

    @abstractmethod
    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        """Predict the field after 1..T = `num_steps` steps, one in steady models: (B, T, M, C)."""

    def predict(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None
    ) -> Tensor:
        """Predict like `forward`, with at most `chunk` queries at a time.

        This is for inference at millions of points. A model whose encoder does not see the queries
        overrides it and encodes once.
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
        """The numbers of these query points."""

    @property
    def contributions(self) -> Tensor:
        """(B, T, L, M, C)"""


@runtime_checkable
class Partitions(Protocol):
    """Contributions whose weights divide every point among the anchors."""

    @property
    def weights(self) -> Tensor:
        """(B, T, H, M, L) of H heads; not negative, and one in sum over the anchors."""


class FieldDecomposition(Protocol):
    """A prediction as the sum of an offset and one field for each anchor.

    One whose anchors move has `window_anchors` too, their places level by level: a tuple of
    (B, L, d) or (B, T, L, d).
    """

    @property
    def offset(self) -> Tensor:
        """(C,)"""

    @property
    def anchors(self) -> Tensor | None:
        """(B, L, d), or None where the anchors have no positions."""

    def chunks(self, size: int = ...) -> Iterator[Contributions]:
        """Yield parts of at most `size` query points, in order."""

    def whole(self) -> Contributions:
        """Return all query points at once."""


@runtime_checkable
class Decomposes(Protocol):
    """The capability of taking a prediction apart exactly."""

    def decompose(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> FieldDecomposition:
        """Split the field of `forward` into an offset and one contribution for each anchor."""


@runtime_checkable
class Encodes(Protocol):
    """The capability of reducing the input to latents."""

    def encode(self, inputs: Inputs) -> Tensor:
        """Return Z(0), (B, L, d)."""


@runtime_checkable
class Decodes(Encodes, Protocol):
    """The capability of decoding any latent state, not only one that it encoded itself."""

    def place_anchors(self, points: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """Return the anchors of clouds, (B, L, d); None for anchors without positions."""

    def decode(
        self, Z: Tensor, queries: Queries, anchors: Tensor | None = None, chunk: int | None = None
    ) -> Tensor:
        """Decode Z (B, L, d) at query points: (B, M, C)."""


class Reading(NamedTuple):
    """What anchors read of a cloud, level by level."""

    weights: Tensor  # (B, levels, A, N) of A anchors, averaged over heads; sum over points: 1
    anchors: tuple[Tensor, ...]  # places (B, L, d) at each level; empty: they do not move


@runtime_checkable
class Reads(Protocol):
    """The capability of telling which input points an anchor reads."""

    def reading(self, inputs: Inputs, chosen: Sequence[int]) -> Reading:
        """Return the attention of some anchors to the points of the cloud."""


@runtime_checkable
class Evolves(Encodes, Protocol):
    """The capability of a transient model to advance a latent state by dZ/dtau = f(Z)."""

    def rollout(self, Z: Tensor, num_steps: int) -> Tensor:
        """Return Z after 1..T steps of one unit of tau: (B, T, L, d)."""

    def derivative(self, Z: Tensor) -> Tensor:
        """Return f(Z), (B, L, d)."""

    @property
    def integrator(self) -> tuple[str, float]:
        """The scheme of the rollout, such as "euler" or "rk4", and its step in tau.

        An adaptive scheme is taken as exact.
        """


@runtime_checkable
class Exports(Protocol):
    """The capability of being saved as programs that need only torch."""

    def export(self) -> Mapping[str, ExportedProgram]:
        """Export the model's parts by name; ValueError for choices that no program can hold."""
