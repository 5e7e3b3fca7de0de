"""Ways to attend on a GPU: each gives what the fused kernel gives, where it is chosen."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as fused

from courant.field_model import Inputs as ModelInputs
from courant.model import attention
from courant.model.attention import attend, in_parts, way_on_gpu, written_out
from tests.model.clouds import CHOICES, assert_same, random_inputs, random_model, relative_error

Way = Callable[..., Tensor]


def example(clouds: int, queries: int, keys: int) -> list[Tensor]:
    torch.manual_seed(0)
    sizes = (queries, keys, keys)
    shapes = [(clouds, 3, size, 8) for size in sizes]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("way", [written_out, in_parts])
@pytest.mark.parametrize(("queries", "keys"), [(5, 300), (64, 7), (130, 7), (3, 3)])
def test_every_way_gives_the_fused_kernels_values_and_gradients(
    way: Way, queries: int, keys: int
) -> None:
    given = example(2, queries, keys)
    assert_same(way(*given, scale=0.3), fused(*given, scale=0.3), given)


@pytest.mark.parametrize(
    ("clouds", "queries", "keys", "dtype", "grad", "expected"),
    [
        (1, 256, 45_000, torch.float32, True, written_out),
        (1, 256, 45_000, torch.float64, False, written_out),
        (1, 256, 45_000, torch.bfloat16, True, fused),
        (1, 256, 174_762, torch.float32, True, written_out),
        (1, 256, 174_763, torch.float32, True, fused),
        (1, 300_000, 256, torch.float32, True, in_parts),
        (1, 300_000, 256, torch.bfloat16, True, in_parts),
        (1, 300_000, 256, torch.float32, False, fused),
        (1, 2**15 - 1, 256, torch.float32, True, fused),
        (1, 2**15, 256, torch.float32, True, in_parts),
        (42, 2**15, 64, torch.float32, True, in_parts),
        (43, 2**15, 64, torch.float32, True, fused),
        (1, 256, 256, torch.float32, True, fused),
    ],
)
def test_the_way_follows_sizes_precision_and_whether_gradients_are_asked(
    clouds: int, queries: int, keys: int, dtype: torch.dtype, grad: bool, expected: Way
) -> None:
    q, k = (torch.empty(clouds, 3, n, 48, dtype=dtype, device="meta") for n in (queries, keys))
    with torch.set_grad_enabled(grad):
        assert way_on_gpu(q, k) is expected


def test_a_cpu_has_its_fused_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "way_on_gpu", None)
    q, k, v = example(1, 3, 9)
    torch.testing.assert_close(attend(q, k, v, 0.3), fused(q, k, v, scale=0.3))


def test_logits_are_not_rounded_by_autocast() -> None:
    q, k = torch.empty(1, 3, 5, 8), torch.empty(1, 3, 50, 8)
    assert way_on_gpu(q, k) is written_out
    torch.set_autocast_enabled("cuda", True)
    try:
        assert way_on_gpu(q, k) is fused
    finally:
        torch.set_autocast_enabled("cuda", False)


def test_programs_that_are_exported_on_a_gpu_take_any_number_of_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention, "_is_on_gpu", lambda q: True)
    model = random_model(CHOICES["steady"])
    encoder = model.export()["encoder"].module()
    given = random_inputs(model.config, clouds=3, points=29)
    mask = torch.ones(3, 29, dtype=torch.bool)
    anchors = model.place_anchors(given.points)
    Z = encoder(given.points, given.features, mask, anchors, None)
    expected = model.encode(ModelInputs(given.points, given.features, mask, None, anchors))
    assert relative_error(Z, expected) < 1e-5
