"""Fields are compared between meshes without a difference where there is none."""

import numpy as np
import pytest

from bench.mesh_noise import interpolate


@pytest.mark.parametrize("layers", [1, 4])
def test_a_linear_field_is_the_same_on_another_mesh(layers: int) -> None:
    drawn = np.random.default_rng(0)
    places, wanted = drawn.uniform(0, 0.3, (500, 3)), drawn.uniform(0.02, 0.28, (60, 3))
    places[:, 2] = np.linspace(0, 0.05, layers)[drawn.integers(layers, size=500)]
    wanted[:, 2] = drawn.choice(places[:, 2], 60)
    slopes = np.array([[3.0, -1.0], [0.5, 2.0], [0.0, 0.0]])
    found = interpolate(places, 1 + places @ slopes, wanted)
    np.testing.assert_allclose(found, 1 + wanted @ slopes, rtol=1e-6)
