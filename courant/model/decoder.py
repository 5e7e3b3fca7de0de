"""The decoder: one multi-head cross-attention from query points to the latent, and one linear map.

Notable choices, all exact:
- it is affine in the values, so W_out W_O^h W_V^h folds into one small table of (d_out)-vectors for each head and
  anchor before the attention: the values shrink from d_h to d_out channels, and the same table is the decomposition;
- LN(z) = z~' + beta. The bias beta shifts all keys of a query alike, which the softmax does not see; in the values it
  collects in u_0, since the weights sum to one. So keys and table use LN without bias, and delta_k vanishes at z_k = 0;
- the query side knows neither latent nor time: it is computed once per geometry, and W_xi folds into the embedding.
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
    """u(x) = u_0 + sum_k sum_h w_hk(x) W_out W_O^h W_V^h z~_k.    (Eq. dec-weights, Eq. dec-output, Eq. exact-decomp)"""

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        self.num_heads, self.head_width = config.num_heads, config.head_width
        self.num_columns = config.dimension + 2 if config.window_in_decoder else 0
        inner, width = self.num_heads * self.head_width, config.width
        self.query_features = nn.Linear(config.num_query_features, width) if config.num_query_features else None  # W_xi
        self.query_embedding = nn.Linear(2 * width if config.num_query_features else width, width)
        self.query_norm = nn.LayerNorm(width)
        self.latent_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, inner, bias=False)
        self.key_value = nn.Linear(width, 2 * inner, bias=False)
        self.output = nn.Linear(inner, width, bias=False)
        self.field = nn.Linear(width, config.num_outputs)  # W_out

    def queries(self, points: Tensor, embedded: Tensor, features: Tensor | None) -> Tensor:
        """Points (B, M, d_c), their embedding (B, M, d) and xi (B, M, n_xi) -> scaled queries (B, H, M, P)."""
        e = self.query_norm(self._embed(embedded, features))
        width = self._padded_width()
        weight = pad_heads(self.query.weight * self.head_width**-0.5, self.num_heads, width)
        if not self.num_columns:
            return linear(e, weight.flatten(0, 1)).unflatten(-1, (self.num_heads, width)).transpose(1, 2)
        q = linear(e, weight[:, : self.head_width].flatten(0, 1))
        q = q.unflatten(-1, (self.num_heads, self.head_width)).transpose(1, 2)
        return self._with_columns(q, gaussian_window.query_columns(points)[:, None])

    def fold(
        self, Z: Tensor, anchors: Tensor | None = None, windows: GaussianWindows | None = None
    ) -> tuple[Tensor, Tensor]:
        """Latent (B, S, L, d) -> keys (B, S, H, L, P) and table of contributions (B, S, H, L, d_out); for windows, the
        initial anchors (B, L, d_c) move with the latent."""
        z = layer_norm(Z, Z.shape[-1:], self.latent_norm.weight)
        key_weight, _ = self.key_value.weight.chunk(2)
        if not self.num_columns:
            key_weight = pad_heads(key_weight, self.num_heads, self._padded_width()).flatten(0, 1)
        k = linear(z, key_weight).unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)
        if self.num_columns:
            assert windows is not None and anchors is not None
            last = windows.in_use[-1]
            moved = windows.anchors(last, anchors, Z)
            k = self._with_columns(
                k, gaussian_window.decoder_columns(moved, windows.inverse_square_width(last))[:, :, None]
            )
        table = linear(z, self._folded_values().flatten(0, 1)).unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)
        return k, table

    def offset(self) -> Tensor:
        """u_0 (d_out,): the output with every z_k = 0, that is LN(z_k) = beta."""
        return self._folded_values().sum(0) @ self.latent_norm.bias + self.field.bias

    def forward(self, q: Tensor, k: Tensor, table: Tensor) -> Tensor:
        """Queries (B, H, M, P), keys (B, S, H, L, P), table (B, S, H, L, d_out) -> field (B, S, M, d_out)."""
        return blend(q, k, table) + self.offset()

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        """w_hk(x) (B, S, H, M, L): at least zero, and one in sum over the anchors.    (Eq. dec-weights)"""
        return blend_weights(q, k)

    def _embed(self, embedded: Tensor, features: Tensor | None) -> Tensor:
        """e = W [gamma(x), W_xi xi] + b, with W_xi folded into W."""
        weight, bias = self.query_embedding.weight, self.query_embedding.bias
        if self.query_features is None:
            return linear(embedded, weight, bias)
        on_points, on_features = weight.chunk(2, dim=1)
        shift = bias + on_features @ self.query_features.bias
        combined = torch.cat((on_points, on_features @ self.query_features.weight), dim=1)
        assert features is not None
        return linear(torch.cat((embedded, features.to(embedded.dtype)), dim=-1), combined, shift)

    def _folded_values(self) -> Tensor:
        """W_out W_O^h W_V^h, (H, d_out, d)."""
        _, value_weight = self.key_value.weight.chunk(2)
        values = value_weight.unflatten(0, (self.num_heads, -1))  # (H, d_h, d)
        outputs = (self.field.weight @ self.output.weight).unflatten(1, (self.num_heads, -1))  # (d_out, H, d_h)
        return outputs.transpose(0, 1) @ values

    def _padded_width(self) -> int:
        return padded_width(self.head_width, self.num_columns, self.query.weight.device)

    def _with_columns(self, heads: Tensor, columns: Tensor) -> Tensor:
        shared = columns.to(heads.dtype).expand(*heads.shape[:-1], -1)
        width = self._padded_width()
        return pad(torch.cat((heads, shared), dim=-1), (0, width - self.head_width - self.num_columns))
