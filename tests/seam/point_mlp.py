"""A second kind of model, as a user would add one: a perceptron at each query point."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from courant.field_model import FieldModel, Inputs, ModelConfig, Queries
from courant.models import register


@dataclass(frozen=True)
class PointMlpConfig(ModelConfig):
    kind: ClassVar[str] = "point-mlp"
    width: int = 32


class PointMlp(FieldModel):
    def __init__(self, config: PointMlpConfig) -> None:
        super().__init__()
        self.config = config
        read = config.dimension + config.num_query_features + config.num_features + 1
        first, last = nn.Linear(read, config.width), nn.Linear(config.width, config.num_outputs)
        self.layers = nn.Sequential(first, nn.GELU(), last)

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        mask = inputs.points[..., 0].isfinite() if inputs.mask is None else inputs.mask
        real = mask[..., None].float()
        mean = (inputs.features.nan_to_num() * real).sum(1) / real.sum(1)
        at = [queries.points] if queries.features is None else [queries.points, queries.features]
        known = torch.cat([*at, mean[:, None].expand(-1, at[0].shape[1], -1)], -1)
        known = known[:, None].expand(-1, num_steps, -1, -1)
        steps = torch.arange(1.0, num_steps + 1, device=known.device).view(1, -1, 1, 1)
        return self.layers(torch.cat([known, steps.expand(*known.shape[:3], 1)], -1))


register(PointMlpConfig, PointMlp)
