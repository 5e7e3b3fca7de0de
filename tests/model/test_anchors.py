import pytest
import torch

from courant.model import farthest_point_sampling
from courant.model.coordinates import gather_points


def test_sampling_starts_at_the_centre_and_goes_to_the_ends() -> None:
    line = torch.linspace(-1, 1, 101)[None, :, None]
    assert farthest_point_sampling(line, 3).tolist() == [[50, 0, 100]]


def test_each_next_point_is_the_farthest_from_all_chosen() -> None:
    points = torch.rand(3, 60, 3)
    indices = farthest_point_sampling(points, 12)
    chosen = gather_points(points, indices)
    for count in range(1, 12):
        distance = torch.cdist(points, chosen[:, :count]).amin(-1)
        newest = torch.cdist(chosen[:, count : count + 1], chosen[:, :count]).amin((1, 2))
        torch.testing.assert_close(newest, distance.amax(1))


def test_sampling_is_deterministic_and_independent_of_the_rest_of_the_batch() -> None:
    points = torch.rand(4, 50, 2)
    together = farthest_point_sampling(points, 9)
    assert torch.equal(together, farthest_point_sampling(points, 9))
    assert torch.equal(together[2:3], farthest_point_sampling(points[2:3], 9))


def test_padding_is_never_chosen_and_changes_nothing() -> None:
    points = torch.rand(2, 30, 3)
    padded = torch.cat((points, torch.full((2, 10, 3), float("nan"))), dim=1)
    mask = torch.arange(40).expand(2, -1) < 30
    assert torch.equal(
        farthest_point_sampling(padded, 12, mask), farthest_point_sampling(points, 12)
    )


def test_a_small_cloud_repeats_its_points_but_not_the_padding() -> None:
    points = torch.rand(1, 8, 3)
    mask = torch.tensor([[False, True, False, True, True, False, False, False]])
    indices = farthest_point_sampling(points, 6, mask)
    assert set(indices[0].tolist()) == {1, 3, 4}


def test_a_cloud_without_real_points_gives_some_index() -> None:
    assert farthest_point_sampling(
        torch.rand(1, 4, 3), 2, torch.zeros(1, 4, dtype=torch.bool)
    ).tolist() == [[0, 0]]


def test_no_anchors_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        farthest_point_sampling(torch.rand(1, 4, 3), 0)
