"""Small models and random clouds for the tests of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from courant.field_model import Inputs as ModelInputs
from courant.field_model import Queries
from courant.model import Courant, CourantConfig

Model = TypeVar("Model", bound=nn.Module)

#: 20 = 3 * 6 + 2: the heads leave channels over, as 128 = 3 * 42 + 2 does.
SMALL = CourantConfig(
    num_features=4, num_outputs=2, num_query_features=3, width=20, num_anchors=5, num_levels=2
)
TRANSIENT = replace(SMALL, transient=True)

#: One model for every choice that the paper names.
CHOICES: dict[str, CourantConfig] = {
    "steady": SMALL,
    "transient": TRANSIENT,
    "design parameters": replace(SMALL, num_parameters=3),
    "learned anchors": replace(SMALL, anchor_kind="learned"),
    "abstract queries": replace(SMALL, anchor_kind="abstract"),
    "separate embeddings": replace(SMALL, shared_embedding=False),
    "no distance field": replace(SMALL, num_query_features=0),
    "no features": replace(SMALL, num_features=0),
    "window in encoder": replace(SMALL, gaussian_window="encoder"),
    "window in decoder": replace(SMALL, gaussian_window="decoder"),
    "window in both": replace(SMALL, gaussian_window="both"),
    "window, transient": replace(TRANSIENT, gaussian_window="both"),
    "window, learned anchors": replace(SMALL, gaussian_window="both", anchor_kind="learned"),
    "MLP processor": replace(TRANSIENT, processor="mlp"),
    "half steps": replace(TRANSIENT, step_size=0.5),
    "no loops": replace(SMALL, num_loops=0),
    "two loops": replace(SMALL, num_loops=2),
    "input level only": replace(SMALL, num_levels=0),
    "one head": replace(SMALL, num_heads=1),
    "heads that divide": replace(SMALL, num_heads=4),
    "1D": replace(SMALL, dimension=1),
    "deep decoder": replace(TRANSIENT, gaussian_window="both", decoder_depth=2),
    "2D": replace(SMALL, dimension=2, gaussian_window="both"),
    "checkpointing": replace(SMALL, checkpoint_activations=True),
}


@dataclass(frozen=True)
class Inputs:
    """All that goes into a prediction, tensor by tensor."""

    points: Tensor
    features: Tensor
    query_points: Tensor
    query_features: Tensor | None
    mask: Tensor | None = None
    parameters: Tensor | None = None
    num_steps: int = 1
    anchors: Tensor | None = None
    neighbours: Tensor | None = None

    @property
    def cloud(self) -> ModelInputs:
        given = (self.points, self.features, self.mask, self.parameters, self.anchors)
        return ModelInputs(*given, self.neighbours)

    def reordered(self, order: Tensor) -> Inputs:
        """The same clouds with their points in another order."""
        listed = self.neighbours
        if listed is not None:
            place = torch.cat([order.argsort(), torch.tensor([-1])])  # -1 stays as it is
            listed = place[listed.long()][:, order].int()
        return replace(
            self, points=self.points[:, order], features=self.features[:, order], neighbours=listed
        )

    @property
    def queries(self) -> Queries:
        return Queries(self.query_points, self.query_features)

    def arguments(self) -> dict[str, Any]:
        """Of `Courant.forward` and `Courant.decompose`."""
        return {"inputs": self.cloud, "queries": self.queries, "num_steps": self.num_steps}

    def tensors(self) -> dict[str, Any]:
        """Of the literal model, which reads no edges."""
        names = [field.name for field in fields(self) if field.name != "neighbours"]
        return {name: getattr(self, name) for name in names}


def random_inputs(
    config: CourantConfig,
    *,
    clouds: int = 2,
    points: int = 17,
    queries: int = 11,
    dtype: torch.dtype = torch.float32,
) -> Inputs:
    def uniform(count: int) -> Tensor:
        return 2 * torch.rand(clouds, count, config.dimension, dtype=dtype) - 1

    def normal(*shape: int) -> Tensor:
        return torch.randn(clouds, *shape, dtype=dtype)

    return Inputs(
        points=uniform(points),
        features=normal(points, config.num_features),
        query_points=uniform(queries),
        query_features=normal(queries, config.num_query_features)
        if config.num_query_features
        else None,
        parameters=normal(config.num_parameters) if config.num_parameters else None,
        num_steps=3 if config.transient else 1,
        neighbours=random_edges(clouds, points) if config.reads_edges else None,
    )


def random_edges(clouds: int, points: int, most: int = 4) -> Tensor:
    """Each point's 0 to `most` neighbours (B, N, most), as a mesh lists them."""
    listed = torch.rand(clouds, points, points).argsort(-1)[..., :most]
    counts = torch.randint(0, most + 1, (clouds, points, 1))
    return listed.masked_fill(torch.arange(most) >= counts, -1).int()


def random_model(config: CourantConfig, dtype: torch.dtype = torch.float32) -> Courant:
    """A model away from its initial values, where biases are zero, norms are one and anchors stand
    still.
    """
    return moved(Courant(config).to(dtype))


def moved(model: Model) -> Model:
    """The model, away from its initial values."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def pad_cloud(inputs: Inputs, extra: int, filling: float = float("nan")) -> Inputs:
    """The same clouds with `extra` padded points in front of and behind the real ones."""

    def padded(tensor: Tensor) -> Tensor:
        junk = torch.full_like(tensor[:, :1], filling).expand(-1, extra, -1)
        return torch.cat((junk, tensor, junk), dim=1)

    mask = torch.ones(inputs.points.shape[:2], dtype=torch.bool)
    outside = torch.zeros(len(mask), extra, dtype=torch.bool)
    return replace(
        inputs,
        points=padded(inputs.points),
        features=padded(inputs.features),
        mask=torch.cat((outside, mask, outside), dim=1),
        neighbours=_padded_edges(inputs.neighbours, extra),
    )


def _padded_edges(listed: Tensor | None, extra: int) -> Tensor | None:
    """Neighbours by their new numbers; padded points name real ones, which must not count."""
    if listed is None:
        return None
    moved = torch.where(listed < 0, listed, listed + extra)
    junk = torch.full_like(moved[:, :1], extra).expand(-1, extra, -1)
    return torch.cat((junk, moved, junk), dim=1)


def relative_error(value: Tensor, reference: Tensor) -> float:
    """Largest deviation over the largest magnitude of the reference."""
    value, reference = value.detach(), reference.detach()
    return float((value - reference).abs().max() / reference.abs().max().clamp(min=1e-12))


def assert_same(found: Tensor, expected: Tensor, inputs: Sequence[Tensor]) -> None:
    """Values are close, and gradients of the inputs, too."""
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad(found, inputs, weights),
        torch.autograd.grad(expected, inputs, weights),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
