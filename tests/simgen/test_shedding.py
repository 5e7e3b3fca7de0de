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
    cells = len(points)
    return PointCloud(
        points,
        np.ones(cells, "f4"),
        np.ones((cells, 1), "f4"),
        np.zeros((cells, 1, 3), "f4"),
        ("wall",),
        time,
        {"velocity": velocity},
        boundary,
    )


@pytest.mark.parametrize("frequency", [0.0135, 0.0222, 0.0343])
def test_the_frequency_is_found_to_half_a_percent(frequency):
    found = shedding(wake(frequency, 0.1), radius=1.5, center=(0.0, 0.0), start=100.0)
    assert found.frequency == pytest.approx(frequency, rel=5e-3)


def test_a_steady_wake_has_no_frequency():
    assert shedding(wake(0.02, 1e-4), radius=1.5, center=(0.0, 0.0), start=100.0).frequency is None


def test_probes_outside_the_channel_are_left_out():
    # Radius 4 at y = 5: the probe one diameter above the centre lies at y = 13, the wall is at 10.
    assert shedding(
        wake(0.0135, 0.1), radius=4.0, center=(8.0, 5.0), start=100.0
    ).frequency == pytest.approx(0.0135, rel=5e-3)
