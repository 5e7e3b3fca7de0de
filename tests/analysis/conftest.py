"""One tiny trained model for all tests of analyses, a model without capabilities, and a grid."""

import numpy as np
import pytest

import courant
from courant.models import build
from courant.prediction.surrogate import Surrogate
from simgen.store.read import Dataset, StoredCase
from tests.baselines.tiny import tiny
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


@pytest.fixture
def plain(surrogate: Surrogate) -> Surrogate:
    """Of a model without latents and without a decomposition."""
    model = build(tiny("fno", "transient 2D"))
    return Surrogate(surrogate.url, surrogate.problem, surrogate.dataset, model)


def grid(num: int = 40, length: float = 1.0) -> np.ndarray:
    """Centres of num x num square cells of a square domain, (num^2, 3) m, in the plane z = 0."""
    middle = (np.arange(num) + 0.5) * length / num
    x, y = np.meshgrid(middle, middle, indexing="ij")
    return np.stack([x.ravel(), y.ravel(), np.zeros(num * num)], axis=1)
