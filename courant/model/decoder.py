"""Decode: one multi-head cross-attention from query points to the latent, and one linear map.

Notable choices, all exact:
- it is affine in the values, so W_out W_O^h W_V^h folds into one small table of (d_out)-vectors for
  each head and anchor before the attention: the values shrink from d_h to d_out channels, and the
  same table is the decomposition;
- LN(z) = z~' + beta. The bias beta shifts all keys of a query alike, which does not change the
  softmax; in the values it collects in u_0, since the weights sum to one. So keys and table use LN
  without bias, and delta_k vanishes at z_k = 0;
- the queries depend on neither latent nor time: they are computed once per geometry, and W_xi folds
  into the embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, pad

from courant.model import gaussian_window
from courant.model.attention import pad_heads, padded_width
from courant.model.blend import blend, blend_weights
from courant.model.config import CourantConfig
from courant.model.gaussian_window import GaussianWindows


class Decoder(nn.Module):
    """u(x) = u_0 + sum_k sum_h w_hk(x) W_out W_O^h W_V^h z~_k.

    (Eq. dec-weights, Eq. dec-output, Eq. exact-decomp)
    """

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        self.num_heads, self.head_width = config.num_heads, config.head_width
        self.windowed = config.window_in_decoder
        inner, width = self.num_heads * self.head_width, config.width
        self.query_features = (
            nn.Linear(config.num_query_features, width) if config.num_query_features else None
        )  # W_xi
        self.query_embedding = nn.Linear(2 * width if config.num_query_features else width, width)
        self.query_norm = nn.LayerNorm(width)
        self.latent_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, inner, bias=False)
        self.key_value = nn.Linear(width, 2 * inner, bias=False)
        self.output = nn.Linear(inner, width, bias=False)
        self.field = nn.Linear(width, config.num_outputs)  # W_out

    def queries(self, points: Tensor, embedded: Tensor, features: Tensor | None) -> Tensor:
        """Scale queries (B, H, M, P).

        Takes points (B, M, d_c), their embedding (B, M, d) and xi (B, M, n_xi).
        """
        e = self.query_norm(self._embed(embedded, features))
        columns = gaussian_window.decoder_query_columns(points)[:, None] if self.windowed else None
        return self._heads(e, self.query.weight * self.head_width**-0.5, columns)

    def fold(
        self, Z: Tensor, anchors: Tensor | None = None, windows: GaussianWindows | None = None
    ) -> tuple[Tensor, Tensor]:
        """Fold the latent (B, S, L, d) into keys (B, S, H, L, P) and a table (B, S, H, L, d_out).

        With windows, the initial anchors (B, L, d_c) move with the latent.
        """
        z = layer_norm(Z, Z.shape[-1:], self.latent_norm.weight)
        key_weight, _ = self.key_value.weight.chunk(2)
        columns = None
        if self.windowed:
            assert windows is not None and anchors is not None
            last = windows.in_use[-1]
            moved = windows.anchors(last, anchors, Z)
            columns = gaussian_window.decoder_key_columns(
                moved, windows.inverse_square_width(last)
            )[:, :, None]
        return self._heads(z, key_weight, columns), self._table(z)

    def offset(self) -> Tensor:
        """Return u_0 (d_out,): the output with every z_k = 0, that is LN(z_k) = beta."""
        with torch.autocast(self.field.bias.device.type, enabled=False):
            return self._folded_values().sum(0) @ self.latent_norm.bias + self.field.bias

    def forward(self, q: Tensor, k: Tensor, table: Tensor) -> Tensor:
        """Compute the field (B, S, M, d_out).

        Takes queries (B, H, M, P), keys (B, S, H, L, P) and table (B, S, H, L, d_out).
        """
        return blend(q, k, table) + self.offset()

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        """Return w_hk(x) (B, S, H, M, L): non-negative, sum one over anchors. (Eq. dec-weights)"""
        return blend_weights(q, k)

    def _embed(self, embedded: Tensor, features: Tensor | None) -> Tensor:
        """Compute e = W [gamma(x), W_xi xi] + b, with W_xi folded into W."""
        weight, bias = self.query_embedding.weight, self.query_embedding.bias
        if self.query_features is None:
            return linear(embedded, weight, bias)
        on_points, on_features = weight.chunk(2, dim=1)
        shift = bias + on_features @ self.query_features.bias
        combined = torch.cat((on_points, on_features @ self.query_features.weight), dim=1)
        assert features is not None
        return linear(torch.cat((embedded, features.to(embedded.dtype)), dim=-1), combined, shift)

    def _table(self, z: Tensor) -> Tensor:
        """Return (B, S, H, L, d_out) for (B, S, L, d).

        It is small, so it is in full precision under autocast too.
        """
        with torch.autocast(z.device.type, enabled=False):
            contributions = linear(
                z.to(self.field.weight.dtype), self._folded_values().flatten(0, 1)
            )
            return contributions.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)

    def _folded_values(self) -> Tensor:
        """Return W_out W_O^h W_V^h, (H, d_out, d)."""
        _, value_weight = self.key_value.weight.chunk(2)
        values = value_weight.unflatten(0, (self.num_heads, -1))  # (H, d_h, d)
        outputs = (self.field.weight @ self.output.weight).unflatten(
            1, (self.num_heads, -1)
        )  # (d_out, H, d_h)
        return outputs.transpose(0, 1) @ values

    def _heads(self, tensor: Tensor, weight: Tensor, columns: Tensor | None) -> Tensor:
        """Split (..., n, d) into heads (..., H, n, P).

        Each head has its d_h channels, then the columns (..., 1, n, e), then zeros.
        """
        num_columns = 0 if columns is None else columns.shape[-1]
        width = padded_width(self.head_width + num_columns)
        if columns is None:
            padded = pad_heads(weight, self.num_heads, width).flatten(0, 1)
            return linear(tensor, padded).unflatten(-1, (self.num_heads, width)).transpose(-2, -3)
        heads = linear(tensor, weight).unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)
        shared = columns.to(heads.dtype).expand(*heads.shape[:-1], -1)
        rest = width - self.head_width - num_columns
        joined = torch.cat((heads, shared), dim=-1)
        return pad(joined, (0, rest)) if rest else joined
