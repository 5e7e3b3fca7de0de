"""One tiny trained model for all tests of analyses, a model without capabilities, and a grid."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import courant
from courant.field_model import FieldModel, Inputs, ModelConfig, Queries
from courant.prediction.surrogate import Surrogate
from simgen.store.read import Dataset, StoredCase
from tests.world import World


@pytest.fixture(scope="session")
def dataset(waves: Dataset) -> Dataset:
    return waves


@pytest.fixture(scope="session")
def surrogate(world: World) -> Surrogate:
    return courant.load(world.waves_run(), device="cpu")


@pytest.fixture
def case(dataset: Dataset) -> StoredCase:
    return dataset[dataset.cases("test")[0]]


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


@pytest.fixture
def plain(surrogate: Surrogate) -> Surrogate:
    model = PlainModel(PlainConfig(num_features=2, num_outputs=2))
    return Surrogate(surrogate.url, surrogate.problem, surrogate.dataset, model)


def grid(num: int = 40, length: float = 1.0) -> np.ndarray:
    """Centres of num x num square cells of a square domain, (num^2, 3) m, in the plane z = 0."""
    middle = (np.arange(num) + 0.5) * length / num
    x, y = np.meshgrid(middle, middle, indexing="ij")
    return np.stack([x.ravel(), y.ravel(), np.zeros(num * num)], axis=1)
