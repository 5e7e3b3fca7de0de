"""A model without any capability."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Tensor

from courant.field_model import FieldModel, Inputs, ModelConfig, Queries


@dataclasses.dataclass(frozen=True)
class PlainConfig(ModelConfig):
    kind: ClassVar[str] = "plain"


class PlainModel(FieldModel):
    """A model without any further capability."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.weight = config, torch.nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        raise NotImplementedError
