"""Build pre-norm attention blocks with biases, as vision transformers have them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

_FFN_MULTIPLE = 4


class AttentionBlock(nn.Module):
    """x + Attention(norm x, norm context), then x + FeedForward(norm x).

    Without `cross` the context is x itself, normalised once.
    """

    def __init__(self, width: int, num_heads: int, *, cross: bool = False) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(width)
        self.context_norm = nn.LayerNorm(width) if cross else None
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, _FFN_MULTIPLE * width),
            nn.GELU(),
            nn.Linear(_FFN_MULTIPLE * width, width),
        )

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """(B, M, width), context (B, L, width) -> (B, M, width)."""
        asking = self.norm(x)
        told = asking
        if context is not None and self.context_norm is not None:
            told = self.context_norm(context)
        key, value = self.key_value(told).chunk(2, dim=-1)
        q, k, v = (self._heads(each) for each in (self.query(asking), key, value))
        attended = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.output(attended)
        return x + self.feed_forward(x)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, L, width) -> (B, H, L, head)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
