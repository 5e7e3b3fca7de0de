"""One tiny trained model for all tests of analyses, a model without capabilities, and a grid."""

import numpy as np
import pytest

from courant.models import build
from courant.prediction.surrogate import Surrogate
from tests.baselines.tiny import tiny


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
