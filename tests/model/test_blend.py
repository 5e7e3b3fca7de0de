"""The decoder's kernel: its own backward pass, tiles, and what it keeps."""

import pytest
import torch
from torch import Tensor

from courant.model import decoder as module
from courant.model.decoder import blend, blend_weights
from tests.model.clouds import assert_same


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


def test_an_equal_table_comes_out_whatever_the_weights() -> None:
    q, k, _ = tensors()
    field = blend(q, k, torch.ones(2, 2, 3, 5, 2, dtype=torch.float64))
    torch.testing.assert_close(field, torch.full_like(field, 3.0))  # one for each of three heads
