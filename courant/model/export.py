"""Export encoder, processor and decoder with torch.export, for serving without this package.

    programs = model.export()
    torch.export.save(programs["encoder"], "encoder.pt2")      # and processor, decoder

    Z = encoder(points, features, mask, anchors, parameters)
    for _ in range(T): Z = processor(Z)                     # one unit of tau
    u = decoder(Z, query_points, query_features, anchors)   # (B, M, d_out)

Numbers of clouds, points and queries stay free. Sampled anchors are an input (farthest point
sampling is left to the caller), learned ones are in the programs; inputs that the config does
without are passed as None.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from courant.field_model import Inputs, Queries
from courant.model.config import FIXED_STEP_SOLVERS, CourantConfig


class Parts(Protocol):
    """A model of anchors whose parts are called one after the other: `Courant`."""

    config: CourantConfig

    def parameters(self) -> Iterator[nn.Parameter]: ...
    def place_anchors(self, points: Tensor, mask: Tensor | None = None) -> Tensor | None: ...
    def encode(self, inputs: Inputs) -> Tensor: ...
    def rollout(self, Z: Tensor, num_steps: int) -> Tensor: ...
    def decode(self, Z: Tensor, queries: Queries, *, anchors: Tensor | None = None) -> Tensor: ...


class EncoderProgram(nn.Module):
    """Encode into Z (B, L, d).

    Takes points (B, N, d_c), features (B, N, d_f), mask (B, N), anchors (B, L, d_c) and parameters
    (B, n_g).
    """

    def __init__(self, model: Parts) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        points: Tensor,
        features: Tensor,
        mask: Tensor,
        anchors: Tensor | None,
        parameters: Tensor | None,
    ) -> Tensor:
        return self.model.encode(Inputs(points, features, mask, parameters, anchors))


class ProcessorProgram(nn.Module):
    """Advance Z(tau) (B, L, d) to Z(tau + 1)."""

    def __init__(self, model: Parts) -> None:
        super().__init__()
        self.model = model

    def forward(self, Z: Tensor) -> Tensor:
        return self.model.rollout(Z, 1)[:, 0]


class DecoderProgram(nn.Module):
    """Decode into the field (B, M, d_out).

    Takes Z (B, L, d), query_points (B, M, d_c), query_features (B, M, n_xi) and anchors (B, L,
    d_c).
    """

    def __init__(self, model: Parts) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, Z: Tensor, query_points: Tensor, query_features: Tensor | None, anchors: Tensor | None
    ) -> Tensor:
        if self.model.config.anchor_kind == "learned":
            anchors = self.model.place_anchors(query_points)
        return self.model.decode(Z, Queries(query_points, query_features), anchors=anchors)


@torch.no_grad()
def export_model(model: Parts) -> dict[str, ExportedProgram]:
    """Trace the parts on the device and in the precision of the model's weights.

    A steady model has no processor. ValueError for a solver whose steps depend on the data.
    """
    if model.config.waits_for_device:
        raise ValueError(
            f"{model.config.waits_for_device} chooses its steps by the data; train with one of"
            f" fixed steps ({', '.join(FIXED_STEP_SOLVERS)})"
        )
    config, like = model.config, next(model.parameters())
    clouds, points, queries = Dim("clouds", min=1), Dim("points", min=1), Dim("queries", min=1)

    def zeros(count: int, width: int) -> Tensor:
        return torch.zeros(2, count, width, device=like.device, dtype=like.dtype)

    cloud, latent = zeros(7, config.dimension), zeros(config.num_anchors, config.width)
    anchors = zeros(config.num_anchors, config.dimension) if config.num_sampled_anchors else None
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
    if not config.transient:
        return {"encoder": encoder, "decoder": decoder}
    processor = torch.export.export(
        ProcessorProgram(model), (latent,), dynamic_shapes=({0: clouds},)
    )
    return {"encoder": encoder, "processor": processor, "decoder": decoder}
