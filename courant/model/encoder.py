"""The multi-level Perceiver encoder with anchored queries."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, pad
from torch.utils.checkpoint import checkpoint

from courant.field_model import Inputs
from courant.model import gaussian_window
from courant.model.attention import (
    CrossAttentionBlock,
    SelfAttentionBlock,
    is_streamed,
    padded_width,
    streamed_parts,
)
from courant.model.config import CourantConfig
from courant.model.gaussian_window import GaussianWindows

Observe = Callable[[CrossAttentionBlock, Tensor, Tensor, Tensor], None]


class EncoderBlock(nn.Module):
    """Cross-attention to the cloud, then self-attention of latents.   (Eq. enc-ca, Eq. enc-saff)"""

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        self.cross = CrossAttentionBlock(config, config.width + config.num_features)
        self.loops = nn.ModuleList(SelfAttentionBlock(config) for _ in range(config.num_loops))

    def forward(self, Z: Tensor, context: Tensor, query_columns: Tensor) -> Tensor:
        Z = self.cross(Z, context, query_columns)
        for loop in self.loops:
            Z = loop(Z)
        return Z


class Encoder(nn.Module):
    """E(P; X): the latent of a point cloud, one vector for each anchor."""

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        self.config = config
        self.conditioning = (
            nn.Linear(config.num_parameters, config.width) if config.num_parameters else None
        )
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.num_blocks))

    def forward(
        self,
        Z: Tensor,
        embed: Callable[[Tensor], Tensor],
        inputs: Inputs,
        windows: GaussianWindows | None = None,
        observe: Observe | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Encode into the latent (B, L, d), and the anchors (B, L, d_c) of each windowed block.

        Takes initial queries Z (B, L, d), the embedding of coordinates, and the cloud. `observe` is
        shown each cross-attention with its arguments, before it runs.
        """
        windowed = windows is not None and self.config.window_in_encoder
        anchors, mask = inputs.anchors, inputs.mask
        context = self._context(embed, inputs, windowed)
        moved: list[Tensor] = []
        for level, block in enumerate(self.blocks):
            if windowed:
                assert windows is not None and anchors is not None
                moved.append(windows.anchors(level, anchors, Z))
                factor = gaussian_window.encoder_columns(
                    moved[-1], windows.inverse_square_width(level)
                )
                # The kernel divides every logit by sqrt(d_h).
                columns = gaussian_window.left_columns(self.config.head_width**0.5 * factor)
            else:
                columns = Z.new_empty(*Z.shape[:2], 0)
            if mask is not None:
                columns = pad(columns, (0, 1), value=1.0)
            if observe is not None:
                observe(cast(EncoderBlock, block).cross, Z, context, columns)
            if self.config.checkpoint_activations and torch.is_grad_enabled():
                Z = checkpoint(
                    block, Z, context, columns, use_reentrant=False, preserve_rng_state=False
                )
            else:
                Z = block(Z, context, columns)
        return Z, moved

    def _context(self, embed: Callable[[Tensor], Tensor], inputs: Inputs, windowed: bool) -> Tensor:
        """Build the normalised context (B, N, d + d_f + e) of c_i = [gamma(x_i) + g, f_i].

        (Eq. kv-tokens) A large cloud's is written part by part: none of what leads to it is as
        large as itself.
        """
        if not is_streamed(inputs.points):
            return self._tokens(embed, inputs, windowed)
        num, context = inputs.points.shape[1], None
        for part in streamed_parts(num):
            mask = None if inputs.mask is None else inputs.mask[:, part]
            some = inputs._replace(
                points=inputs.points[:, part], features=inputs.features[:, part], mask=mask
            )
            tokens = self._tokens(embed, some, windowed)
            if context is None:
                context = tokens.new_empty(tokens.shape[0], num, tokens.shape[2])
            context[:, part] = tokens
        assert context is not None
        return context

    def _tokens(self, embed: Callable[[Tensor], Tensor], inputs: Inputs, windowed: bool) -> Tensor:
        """Normalise without affine part.

        Then come the columns that bring window and mask into the keys, then zeros up to an aligned
        width.
        """
        embedded = embed(inputs.points)
        if self.conditioning is not None:
            embedded = embedded + self.conditioning(inputs.parameters)[:, None]
        context = torch.cat((embedded, inputs.features.to(embedded.dtype)), dim=-1)
        parts = [layer_norm(context, context.shape[-1:])]
        if windowed:
            parts.append(
                gaussian_window.right_columns(gaussian_window.point_columns(inputs.points))
            )
        if inputs.mask is not None:
            nothing = torch.zeros_like(parts[0][..., :1])
            # So low that its exponential is zero, yet finite: a cloud of padding has a softmax too.
            logit = max(-1e9, torch.finfo(_linear_dtype(embedded)).min / 2)
            parts.append(nothing.masked_fill(~inputs.mask[..., None], logit))
        context = parts[0]
        if len(parts) > 1:
            width = sum(part.shape[-1] for part in parts)
            parts.append(
                context.new_zeros(1).expand(*context.shape[:2], padded_width(width) - width)
            )
            context = torch.cat(parts, dim=-1)
        return context.to(
            _linear_dtype(context)
        )  # once here, not once in each of the blocks' projections


def _linear_dtype(tensor: Tensor) -> torch.dtype:
    """Return the precision in which linear maps run at this moment."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype
