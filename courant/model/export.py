"""torch.export of encoder, processor and decoder, for serving without this package.

    programs = export_model(model)
    torch.export.save(programs.encoder, "encoder.pt2")      # and processor, decoder

    Z = encoder(points, features, mask, anchors, parameters)
    for _ in range(T): Z = processor(Z)                     # one unit of tau
    u = decoder(Z, query_points, query_features, anchors)   # (B, M, d_out)

Numbers of clouds, points and queries stay free. Anchors are an input (farthest point sampling is left to the caller);
inputs that the config does without are passed as None.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from courant.field_model import Inputs, Queries
from courant.model.courant import Courant


class EncoderProgram(nn.Module):
    """points (B, N, d_c), features (B, N, d_f), mask (B, N), anchors (B, L, d_c), parameters (B, n_g) -> Z (B, L, d)."""

    def __init__(self, model: Courant) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, points: Tensor, features: Tensor, mask: Tensor, anchors: Tensor | None, parameters: Tensor | None
    ) -> Tensor:
        return self.model.encode(Inputs(points, features, mask, parameters, anchors))


class ProcessorProgram(nn.Module):
    """Z(tau) (B, L, d) -> Z(tau + 1)."""

    def __init__(self, model: Courant) -> None:
        super().__init__()
        self.model = model

    def forward(self, Z: Tensor) -> Tensor:
        return self.model.rollout(Z, 1)[:, 0]


class DecoderProgram(nn.Module):
    """Z (B, L, d), query_points (B, M, d_c), query_features (B, M, n_xi), anchors (B, L, d_c) -> field (B, M, d_out)."""

    def __init__(self, model: Courant) -> None:
        super().__init__()
        self.model = model

    def forward(self, Z: Tensor, query_points: Tensor, query_features: Tensor | None, anchors: Tensor | None) -> Tensor:
        return self.model.decode(Z, Queries(query_points, query_features), anchors=anchors)


@dataclass(frozen=True)
class ExportedCourant:
    """The exported parts; `processor` is None for a steady model."""

    encoder: ExportedProgram
    processor: ExportedProgram | None
    decoder: ExportedProgram


@torch.no_grad()
def export_model(model: Courant) -> ExportedCourant:
    """Trace the parts on the device and in the precision of the model's weights."""
    config, like = model.config, model.decoder.field.weight
    clouds, points, queries = Dim("clouds", min=1), Dim("points", min=1), Dim("queries", min=1)

    def zeros(count: int, width: int) -> Tensor:
        return torch.zeros(2, count, width, device=like.device, dtype=like.dtype)

    cloud, latent = zeros(7, config.dimension), zeros(config.num_anchors, config.width)
    anchors = None if config.anchor_kind == "abstract" else zeros(config.num_anchors, config.dimension)
    parameters = zeros(1, config.num_parameters)[:, 0] if config.num_parameters else None
    xi = zeros(5, config.num_query_features) if config.num_query_features else None
    decoder_anchors = anchors if config.window_in_decoder else None
    mask = torch.ones(2, 7, dtype=torch.bool, device=like.device)

    def along_clouds(tensor: Tensor | None) -> dict[int, Dim] | None:
        return None if tensor is None else {0: clouds}

    encoder = torch.export.export(
        EncoderProgram(model),
        (cloud, zeros(7, config.num_features), mask, anchors, parameters),
        dynamic_shapes=(
            {0: clouds, 1: points},
            {0: clouds, 1: points},
            {0: clouds, 1: points},
            along_clouds(anchors),
            along_clouds(parameters),
        ),
    )
    decoder = torch.export.export(
        DecoderProgram(model),
        (latent, zeros(5, config.dimension), xi, decoder_anchors),
        dynamic_shapes=(
            {0: clouds},
            {0: clouds, 1: queries},
            None if xi is None else {0: clouds, 1: queries},
            along_clouds(decoder_anchors),
        ),
    )
    if model.processor is None:
        return ExportedCourant(encoder, None, decoder)
    processor = torch.export.export(ProcessorProgram(model), (latent,), dynamic_shapes=({0: clouds},))
    return ExportedCourant(encoder, processor, decoder)
