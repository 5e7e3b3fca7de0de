"""Ways to attend at sizes that choose each of them, against float64."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from courant.model.attention import attend, in_parts, way_on_gpu, written_out

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    ("queries", "keys", "way"), [(256, 12_000, written_out), (2**15 + 3, 64, in_parts)]
)
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_values_and_gradients_are_near_those_of_float64(
    queries: int, keys: int, way: object, dtype: torch.dtype, near: float
) -> None:
    if dtype == torch.bfloat16 and way is written_out:
        way = scaled_dot_product_attention
    torch.manual_seed(0)
    shapes = [(1, 3, size, 48) for size in (queries, keys, keys)]
    exact = [torch.randn(shape, device="cuda", dtype=torch.float64) for shape in shapes]
    given = [each.to(dtype).requires_grad_() for each in exact]
    exact = [each.detach().double().requires_grad_() for each in given]
    assert way_on_gpu(*given[:2]) is way
    found, expected = attend(*given, scale=0.15), attend(*exact, scale=0.15)
    weight = torch.randn_like(found)
    pairs = zip(
        (found, *torch.autograd.grad(found, given, weight)),
        (expected, *torch.autograd.grad(expected, exact, weight.double())),
        strict=True,
    )
    for one, other in pairs:
        assert float((one.double() - other).norm() / other.norm()) < near
