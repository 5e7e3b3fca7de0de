"""The shedding frequency of known signals."""

import numpy as np
import pytest

from simgen.cases.cylinder.shedding import shedding
from simgen.point_cloud import BoundaryCloud, PointCloud


def wake(frequency: float, amplitude: float) -> PointCloud:
    """A channel grid whose transverse velocity oscillates everywhere with one frequency."""
    x, y = np.meshgrid(np.arange(-19.5, 40), np.arange(-9.5, 10), indexing="ij")
    points = np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], axis=1).astype("f4")
    time = np.arange(1.0, 501.0)
    velocity = np.zeros((500, len(points), 2), "f4")
    velocity[..., 0] = 0.27
    velocity[..., 1] = amplitude * np.sin(2 * np.pi * frequency * time)[:, None]
    boundary = BoundaryCloud(points[:1], points[:1], np.ones(1, "f4"), np.zeros(1, "u1"))
    ones, fields = np.ones((len(points), 1), "f4"), {"velocity": velocity}
    distances = ones[:, 0], ones, 0 * points[:, None]
    return PointCloud(points, *distances, ("wall",), time, fields, boundary)


@pytest.mark.parametrize(
    ("frequency", "radius", "center"),
    [
        *[(each, 1.5, (0.0, 0.0)) for each in (0.0135, 0.0222, 0.0343)],
        # The probe one diameter above the centre lies at y = 13 m, the wall at 10: it is left out.
        (0.0135, 4.0, (8.0, 5.0)),
    ],
)
def test_the_frequency_is_found_to_half_a_percent(frequency, radius, center):
    found = shedding(wake(frequency, 0.1), radius=radius, center=center, start=100.0)
    assert found.frequency == pytest.approx(frequency, rel=5e-3)


def test_a_steady_wake_has_no_frequency():
    assert shedding(wake(0.02, 1e-4), radius=1.5, center=(0.0, 0.0), start=100.0).frequency is None
