"""What is drawn of a 3D case: one layer of cells, and nothing across a hole in it."""

import numpy as np
import pytest

from simgen.publish.field_plots import middle_plane


def test_the_middle_plane_of_a_block_with_a_hole_is_one_layer_that_leaves_the_hole_out():
    x, y, z = (
        values.ravel() for values in np.meshgrid(np.arange(20.0), np.arange(5.0), np.arange(12.0))
    )
    points = np.stack([x, y, z], axis=1)
    points = points[np.hypot(x - 10, z - 6) > 3.5]  # a cylinder along y is missing
    triangles = middle_plane(points, np.ones(len(points)))
    assert triangles.axes == (0, 2)
    assert triangles.plane == "y = 2 m"
    assert triangles.aspect == pytest.approx(11 / 19)
    assert set(points[triangles.cell][:, 1]) == {2.0}
    assert len(triangles.cell) == len(points) / 5
    shape = triangles.triangulation
    corners = np.stack([shape.x, shape.y], axis=1)[shape.get_masked_triangles()]
    centroids = corners.mean(axis=1)
    assert (np.hypot(centroids[:, 0] - 10, centroids[:, 1] - 6) > 2.5).all()
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = 0.5 * np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]).sum()
    assert area == pytest.approx(19 * 11 - np.pi * 3.5**2, rel=0.1)


def test_a_plane_at_zero_says_so():
    x, y, z = (
        values.ravel()
        for values in np.meshgrid(np.arange(9.0), np.arange(-2.0, 3.0), np.arange(9.0))
    )
    points = np.stack([x, y - 2e-18, z], axis=1)
    assert middle_plane(points, np.ones(len(points))).plane == "y = 0 m"
