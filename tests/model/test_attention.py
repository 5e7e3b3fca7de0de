"""Ways to attend on a GPU: each gives what the fused kernel gives, where it is chosen."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from courant.model.attention import _on_gpu, attend, in_parts, written_out

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
    expected = scaled_dot_product_attention(*given, scale=0.3)
    found = way(*given, scale=0.3)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, given, weight),
        torch.autograd.grad(expected, given, weight),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("clouds", "queries", "keys", "dtype", "grad", "expected"),
    [
        (1, 256, 45_000, torch.float32, True, written_out),
        (1, 256, 45_000, torch.bfloat16, True, scaled_dot_product_attention),
        (64, 256, 45_000, torch.float32, True, scaled_dot_product_attention),
        (1, 300_000, 256, torch.float32, True, in_parts),
        (1, 300_000, 256, torch.bfloat16, True, in_parts),
        (1, 300_000, 256, torch.float32, False, scaled_dot_product_attention),
        (100, 2_400, 64, torch.float32, True, scaled_dot_product_attention),
        (1, 972, 64, torch.float32, True, scaled_dot_product_attention),
        (1, 256, 256, torch.float32, True, scaled_dot_product_attention),
    ],
)
def test_the_way_follows_sizes_precision_and_whether_gradients_are_asked(
    clouds: int, queries: int, keys: int, dtype: torch.dtype, grad: bool, expected: Way
) -> None:
    q, k = (torch.empty(clouds, 3, n, 48, dtype=dtype, device="meta") for n in (queries, keys))
    with torch.set_grad_enabled(grad):
        assert _on_gpu(q, k) is expected


def test_a_cpu_has_its_fused_kernel_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("courant.model.attention._on_gpu", None)
    q, k, v = example(1, 3, 9)
    torch.testing.assert_close(
        attend(q, k, v, 0.3), scaled_dot_product_attention(q, k, v, scale=0.3)
    )
