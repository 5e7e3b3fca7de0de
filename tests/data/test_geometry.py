"""Anchors in the middle of equal parts of a cloud's volume; distance fields of designs."""

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from courant.data import geometry
from courant.data.geometry import AnchorChoice, distance_field
from simgen.cases.cylinder import family as cylinder
from simgen.errors import InputError
from simgen.point_cloud import point_tree


def square(dense: int = 3000) -> torch.Tensor:
    """A unit square of 40 x 40 points, and many more within a tenth of its area, (N, 3)."""
    line = (np.arange(40) + 0.5) / 40
    x, y = np.meshgrid(line, line, indexing="ij")
    even = np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], axis=1)
    more = np.random.default_rng(0).uniform((0.6, 0.6, 0), (0.9, 0.9, 0), (dense, 3))
    return torch.as_tensor(np.concatenate([even, more]), dtype=torch.float32)


def served(anchors: torch.Tensor) -> np.ndarray:
    """The share of the square's area that is nearest to each anchor."""
    line = (np.arange(200) + 0.5) / 200
    x, y = np.meshgrid(line, line, indexing="ij")
    places = np.stack([x.ravel(), y.ravel(), 0 * x.ravel()], axis=1)
    nearest = cKDTree(anchors.numpy()).query(places)[1]
    return np.bincount(nearest, minlength=len(anchors)) / len(places)


@pytest.mark.parametrize("num", [9, 32])
def test_each_anchor_serves_about_the_same_volume_however_dense_the_cloud_is(num: int) -> None:
    cloud = square()[None]
    by_volume = served(AnchorChoice(num, by="volume").among(cloud)[0])
    farthest = served(AnchorChoice(num).among(cloud)[0])
    # Farthest points on the edge serve half of what those within do, and those in corners less.
    assert by_volume.std() * num < 0.3
    assert by_volume.std() < 0.65 * farthest.std()
    assert by_volume.max() * num < 1.7 and by_volume.min() * num > 0.5


def test_they_are_points_of_the_cloud_and_the_same_with_padding_beside_others() -> None:
    choice, cloud = AnchorChoice(12, by="volume"), square(dense=0)
    alone = choice.among(cloud[None])[0]
    assert cKDTree(cloud.numpy()).query(alone.numpy())[0].max() == 0
    padded = torch.cat([cloud, torch.full((50, 3), 1e6)])
    other = torch.cat([0.5 * cloud, torch.zeros(50, 3)])
    real = torch.arange(len(padded)) < len(cloud)
    both = choice.among(torch.stack([padded, other]), torch.stack([real, real]))
    torch.testing.assert_close(both[0], alone)
    torch.testing.assert_close(both[1], 0.5 * alone)
    few = torch.tensor([[[0.0, 0, 0], [1.0, 0, 0], [0.0, 1, 0]]])
    repeated = AnchorChoice(5, by="volume").among(few)[0]
    assert {tuple(each) for each in repeated.tolist()} == {tuple(each) for each in few[0].tolist()}


def test_a_tree_is_made_where_subnormal_numbers_are_zero() -> None:
    points = np.zeros((700, 3))
    points[500:, 0] = np.arange(200)  # most have the coordinate 0
    torch.set_flush_denormal(True)
    try:
        assert point_tree(points).query([[10.2, 0, 0]])[1].tolist() == [510]
    finally:
        torch.set_flush_denormal(False)


PARAMETERS = {"radius": 2.0, "center_x": 1.0, "center_y": -1.0}


def test_the_channel_is_the_one_that_is_meshed() -> None:
    channel = (geometry.INLET_X, geometry.OUTLET_X, geometry.HALF_HEIGHT)
    assert channel == (cylinder.INLET_X, cylinder.OUTLET_X, cylinder.HALF_HEIGHT)
    assert cylinder.CylinderFlow().patch_kinds == ("inlet", "outlet", "wall", "cylinder")


def test_distances_and_directions_of_a_point_that_one_can_draw() -> None:
    distance, direction = distance_field("cylinder-flow", np.array([[1.0, 4.0, 0.0]]), PARAMETERS)
    np.testing.assert_allclose(distance, [[21.0, 39.0, 6.0, 3.0]])
    np.testing.assert_allclose(
        direction, [[[-1, 0, 0], [1, 0, 0], [0, 1, 0], [0, -1, 0]]], atol=1e-12
    )


@pytest.mark.parametrize("point", [(1.0, 0.0, 0.0), (50.0, 0.0, 0.0), (0.0, -11.0, 0.0)])
def test_points_outside_the_fluid_are_refused(point: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match="1 of 1 points lie outside the channel or inside"):
        distance_field("cylinder-flow", np.array([point]), PARAMETERS)
