"""Anchors: sampled far apart, and Gaussian windows as a few extra channels of the inner product."""

import torch
from torch import Tensor

from courant.model import Courant, farthest_point_sampling
from courant.model import gaussian_window as module
from courant.model.coordinates import TIE, gather_points
from courant.model.gaussian_window import GaussianWindows
from tests.model.clouds import CHOICES, random_inputs


def cloud(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    anchors = 2 * torch.rand(2, 5, 3, dtype=dtype) - 1
    points = 2 * torch.rand(2, 9, 3, dtype=dtype) - 1
    inverse_square_width = 1 / (0.1 + 0.2 * torch.rand(5, 1, dtype=dtype)) ** 2
    return anchors, points, inverse_square_width


def bias(anchors: Tensor, points: Tensor, inverse_square_width: Tensor) -> Tensor:
    return -inverse_square_width * (anchors[:, :, None] - points[:, None]).square().sum(-1)


def test_distances_survive_a_kernel_of_reduced_precision() -> None:
    """Rounded to bf16 the plain columns are off by whole units of the logit; split into two parts
    they are not.
    """
    anchors, points, inverse = cloud(torch.float32)
    exact = bias(anchors, points, inverse)

    def rounded(left: Tensor, right: Tensor) -> Tensor:
        return left.bfloat16().float() @ right.bfloat16().float().transpose(1, 2)

    plain = rounded(
        module.decoder_key_columns(anchors, inverse), module.decoder_query_columns(points)
    )
    with torch.autocast("cpu", torch.bfloat16):
        left = module.decoder_key_columns(anchors, inverse)
        right = module.decoder_query_columns(points)
    assert float((plain - exact).abs().max()) > 0.2
    assert float((rounded(left, right) - exact).abs().max()) < 0.01


def test_a_window_is_never_narrower_than_a_hundredth_of_the_first() -> None:
    windows = GaussianWindows(CHOICES["window in both"])
    first = windows.inverse_square_width(0).rsqrt().max()
    torch.nn.init.constant_(windows.kappa, 1e-6)
    torch.testing.assert_close(windows.inverse_square_width(0).rsqrt().max(), first / 100)
    torch.nn.init.constant_(windows.kappa, -0.5)
    torch.testing.assert_close(windows.inverse_square_width(0).rsqrt().max(), first / 2)


def test_training_starts_from_the_initial_anchors_and_moves_them() -> None:
    config = CHOICES["window in both"]
    model, inputs = Courant(config), random_inputs(config)
    decomposition = model.decompose(**inputs.arguments())
    for anchors in decomposition.window_anchors:
        torch.testing.assert_close(anchors.reshape(2, 5, 3), decomposition.anchors)
    model(**inputs.arguments()).square().sum().backward()
    assert model.windows is not None
    for update in model.windows.updates.values():
        slope = update.displacement.weight.grad
        assert slope is not None and slope.abs().max() > 0


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
        torch.testing.assert_close(newest, distance.amax(1), rtol=TIE, atol=0)


def test_rounding_chooses_no_other_cells_of_a_regular_grid() -> None:
    grid = torch.cartesian_prod(torch.linspace(-1, 1, 40), torch.linspace(-0.3, 0.3, 12))[None]
    chosen = farthest_point_sampling(grid, 16)
    for _ in range(5):
        assert torch.equal(farthest_point_sampling(grid + 1e-6 * torch.rand_like(grid), 16), chosen)


def test_padding_is_never_chosen_and_changes_nothing() -> None:
    points = torch.rand(2, 30, 3)
    padded = torch.cat((points, torch.full((2, 10, 3), float("nan"))), dim=1)
    mask = torch.arange(40).expand(2, -1) < 30
    found = farthest_point_sampling(padded, 12, mask)
    assert torch.equal(found, farthest_point_sampling(points, 12))


def test_a_small_cloud_repeats_its_points_but_not_the_padding() -> None:
    points = torch.rand(1, 8, 3)
    mask = torch.tensor([[False, True, False, True, True, False, False, False]])
    indices = farthest_point_sampling(points, 6, mask)
    assert set(indices[0].tolist()) == {1, 3, 4}
