"""A second kind of model, as a user would add one: a perceptron at each query point. One file, one registry line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from courant.field_model import FieldModel, Inputs, ModelConfig, Queries
from courant.models import register


@dataclass(frozen=True)
class PointMlpConfig(ModelConfig):
    """Sizes of a PointMlp."""

    kind: ClassVar[str] = "point-mlp"
    width: int = 32


class PointMlp(FieldModel):
    """Predicts from a query's place, its features, and the mean of the cloud's features."""

    def __init__(self, config: PointMlpConfig) -> None:
        super().__init__()
        self.config = config
        read = config.dimension + config.num_query_features + config.num_features + 1
        self.layers = nn.Sequential(
            nn.Linear(read, config.width), nn.GELU(), nn.Linear(config.width, config.num_outputs)
        )

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        real = torch.ones_like(inputs.points[..., :1]) if inputs.mask is None else inputs.mask[..., None].float()
        mean = (inputs.features.nan_to_num() * real).sum(1) / real.sum(1)
        at = torch.cat([queries.points, *([] if queries.features is None else [queries.features])], -1)
        known = torch.cat([at, mean[:, None].expand(-1, at.shape[1], -1)], -1)
        times = torch.arange(1, num_steps + 1, device=at.device).view(1, -1, 1, 1).expand(len(at), -1, at.shape[1], 1)
        return self.layers(torch.cat([known[:, None].expand(-1, num_steps, -1, -1), times], -1))


register(PointMlpConfig, PointMlp)
