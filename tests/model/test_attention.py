"""Ways to attend on a GPU, and the decoder's kernel: values, gradients, tiles, what is kept."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as fused

from courant.field_model import Inputs as ModelInputs
from courant.model import attention
from courant.model import decoder as module
from courant.model.attention import in_parts, way_on_gpu, written_out
from courant.model.decoder import blend, blend_weights
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
        (1, 256, 45_000, torch.float64, False, written_out),
        (1, 256, 45_000, torch.bfloat16, True, fused),
        (1, 256, 174_762, torch.float32, True, written_out),
        (1, 256, 174_763, torch.float32, True, fused),
        (1, 300_000, 256, torch.bfloat16, True, in_parts),
        (1, 300_000, 256, torch.float32, False, fused),
        (1, 2**15 - 1, 256, torch.float32, True, fused),
        (1, 2**15, 256, torch.float32, True, in_parts),
        (43, 2**15, 64, torch.float32, True, fused),
    ],
)
def test_the_way_follows_sizes_precision_and_whether_gradients_are_asked(
    clouds: int, queries: int, keys: int, dtype: torch.dtype, grad: bool, expected: Way
) -> None:
    q, k = (torch.empty(clouds, 3, n, 48, dtype=dtype, device="meta") for n in (queries, keys))
    with torch.set_grad_enabled(grad):
        assert way_on_gpu(q, k) is expected


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


def tensors(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """q (B, H, M, P), k (B, S, H, L, P), table (B, S, H, L, d_out), laid out as the decoder lays
    them out.
    """
    q = torch.randn(2, 7, 3, 4, dtype=dtype).transpose(1, 2)
    k = torch.randn(2, 2, 5, 3, 4, dtype=dtype).transpose(2, 3)
    table = torch.randn(2, 2, 5, 3, 2, dtype=dtype).transpose(2, 3)
    return q.requires_grad_(), k.requires_grad_(), table.requires_grad_()


def explicit(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    return (blend_weights(q, k) @ table).sum(2)


@pytest.mark.parametrize("keep", [0, 2**26], ids=["recomputed weights", "kept weights"])
def test_gradients_by_finite_differences(keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEEP", keep)
    assert torch.autograd.gradcheck(blend, tensors())


@pytest.mark.parametrize("core", [module._plain, module._attended], ids=["plain", "attended"])
def test_every_core_gives_the_same_field_and_gradients(core) -> None:  # type: ignore[no-untyped-def]
    inputs = tensors()
    assert_same(core(*inputs), explicit(*inputs), inputs)


def test_more_channels_than_a_head_is_wide_are_all_there() -> None:
    """Species of a combustion, in a narrow model."""
    q, k, _ = tensors()
    table = torch.randn(*k.shape[:4], q.shape[-1] + 3, dtype=q.dtype)
    torch.testing.assert_close(module._attended(q, k, table), explicit(q, k, table))


def test_tiles_cover_a_cloud_that_no_tile_divides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TILE", 0)  # the least number of rows: 64
    q, k, table = torch.randn(1, 2, 150, 4), torch.randn(1, 1, 2, 6, 4), torch.randn(1, 1, 2, 6, 3)
    assert len(module._tiles(q, k)) == 2 * 3
    torch.testing.assert_close(blend(q, k, table), explicit(q, k, table))
