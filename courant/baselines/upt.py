"""Universal physics transformer: supernodes, a few latent tokens, queries by cross-attention.

B. Alkin, A. Fürst, S. Schmid, L. Gruber, M. Holzleitner and J. Brandstetter, Universal Physics
Transformers: A Framework For Efficiently Scaling Neural Operators, NeurIPS 2024.

Messages from at most the `max_degree` nearest points within `radius` of each supernode are averaged
there; transformer blocks and a perceiver pool the supernodes into latent tokens; the approximator's
blocks work on these alone; the decoder's blocks and a cross-attention read the field off them at
any query. The query's distance field takes the place of as many channels of its embedding. A
rollout feeds the field back. The counts and what differs from the paper are in docs/baselines.md.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from courant.baselines import baseline
from courant.field_model import FieldModel, Inputs, Queries
from courant.model_config import size
from courant.models import register

_EXTENT = 100.0  # The authors scale coordinates to [0, 200]; here they are within [-1, 1]
_LONGEST_WAVE = 10_000.0


@dataclass(frozen=True)
class UptConfig(baseline.MeshConfig):
    """Sizes of a UPT; the defaults are those of the industrial cases."""

    kind: ClassVar[str] = "upt"

    width: int = size(192, 2, 4096)
    num_heads: int = size(3, 1, 1024)
    #: Blocks of each part: encoder, approximator and decoder.
    num_layers: int = size(3, 0, 64)
    #: Further blocks of the approximator alone.
    num_further_layers: int = size(0, 0, 64)
    #: Latent tokens.
    num_latents: int = size(256, 1, 16_384)
    num_supernodes: int = size(512, 1, 16_384)
    supernode_width: int = size(64, 2, 4096)
    #: Of the neighbourhood of a supernode, in normalised coordinates: the domain is 2 long.
    radius: float = size(0.2, 1e-6, 10.0)
    max_degree: int = size(32, 1, 1024)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_divides("width", "num_heads")
        if self.width - self.num_query_features < 2 * self.dimension:
            raise ValueError(
                f"UptConfig.width = {self.width} leaves no room for a position beside"
                f" {self.num_query_features} query features"
            )

    @property
    def num_sampled_anchors(self) -> int:
        return self.num_supernodes


class AttentionBlock(nn.Module):
    """Pre-norm: x + Attention(norm x, norm context), then x + FeedForward(norm x).

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
        self.feed_forward = baseline.feed_forward(width, 4)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """(B, M, width), context (B, L, width) -> (B, M, width)."""
        queries = source = self.norm(x)
        if context is not None and self.context_norm is not None:
            source = self.context_norm(context)
        key, value = self.key_value(source).chunk(2, dim=-1)
        q, k, v = (
            baseline.split_heads(each, self.num_heads) for each in (self.query(queries), key, value)
        )
        attended = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.output(attended)
        return x + self.feed_forward(x)


class SupernodePooling(nn.Module):
    """Average messages from the points around each supernode."""

    def __init__(self, config: UptConfig) -> None:
        super().__init__()
        self.config = config
        width = config.supernode_width
        self.embedding = nn.Linear(config.num_features + config.num_parameters, width)
        self.message = nn.Sequential(
            nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, width)
        )

    def forward(self, inputs: Inputs, near: baseline.Neighbours) -> Tensor:
        """Take the points (B, S, k) nearest to each supernode -> (B, S, supernode_width)."""
        config = self.config
        reached = near.there & (near.squared <= config.radius**2)
        reached[..., 0] |= near.there[..., 0]
        known = inputs.features
        if inputs.parameters is not None:
            everywhere = inputs.parameters[:, None].expand(-1, known.shape[1], -1)
            known = torch.cat([known, everywhere], dim=-1)
        senders = self.embedding(known) + embed_positions(inputs.points, config.supernode_width)
        # A message is MLP([sender, receiver]), the receiver being the nearest sender. The first map
        # is applied before senders are gathered, the last one to the mean of the messages.
        first, activation, last = self.message
        assert isinstance(first, nn.Linear)
        of_sender, of_receiver = first.weight.chunk(2, dim=1)
        receiver = baseline.Neighbours(*(each[:, :, :1] for each in near)).gather(senders)
        ends = near.gather(linear(senders, of_sender)) + linear(receiver, of_receiver, first.bias)
        count = reached.sum(2)[..., None]
        mean = (activation(ends) * reached[..., None]).sum(2) / count.clamp(min=1)
        return last(mean) * (count > 0)


class Upt(FieldModel):
    """Encode to latent tokens, propagate them, and decode at queries."""

    config: UptConfig

    def __init__(self, config: UptConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width

        def blocks(further: int = 0) -> nn.Sequential:
            num = config.num_layers + further
            return nn.Sequential(*(AttentionBlock(width, config.num_heads) for _ in range(num)))

        self.pooling = SupernodePooling(config)
        self.encoder = nn.Sequential(nn.Linear(config.supernode_width, width), blocks())
        self.context = nn.Linear(width, width)
        self.tokens = nn.Parameter(torch.empty(config.num_latents, width))
        self.pool = AttentionBlock(width, config.num_heads, cross=True)
        further = config.num_further_layers
        self.approximator = nn.Sequential(nn.Linear(width, width), blocks(further))
        self.decoder = nn.Sequential(nn.Linear(width, width), blocks())
        self.query = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.read = AttentionBlock(width, config.num_heads, cross=True)
        self.output = nn.Linear(width, config.num_outputs)
        nn.init.trunc_normal_(self.tokens, std=0.02)
        baseline.initialise(self)

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        return self.predict(inputs, queries, num_steps)

    def predict(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None
    ) -> Tensor:
        """Predict like `forward`; propagate once, however many chunks of queries there are."""
        latents = self._latents(inputs, num_steps)
        num = queries.points.shape[1]
        chunk = chunk or max(1, num)
        fields = []
        for start in range(0, num, chunk):
            embedded = self._embed(queries.part(slice(start, start + chunk)))
            fields.append(torch.stack([self._decode(each, embedded) for each in latents], 1))
        return torch.cat(fields, dim=2)

    def _latents(self, inputs: Inputs, num_steps: int) -> list[Tensor]:
        """Return what the decoder reads at each step, (B, L, width)."""
        self.config.check_steps(num_steps)
        inputs = inputs.without_padding()
        supernodes = baseline.place(inputs, self.config.num_supernodes)
        near = baseline.find_nearest(supernodes, inputs.points, inputs.mask, self.config.max_degree)
        carried = self.config.num_carried
        shared = inputs.features[..., carried:] if self.config.num_query_features else None
        at_points = self._embed(Queries(inputs.points, shared)) if num_steps > 1 else None
        latents: list[Tensor] = []
        while len(latents) < num_steps:
            if at_points is not None and latents:
                state = self._decode(latents[-1], at_points)
                moved = baseline.advance(inputs.features, state, self.config.input_steps)
                inputs = inputs._replace(features=moved)
            latents.append(self.decoder(self.approximator(self._encode(inputs, near))))
        return latents

    def _encode(self, inputs: Inputs, near: baseline.Neighbours) -> Tensor:
        encoded = self.context(self.encoder(self.pooling(inputs, near)))
        return self.pool(self.tokens.expand(len(encoded), -1, -1), encoded)

    def _embed(self, queries: Queries) -> Tensor:
        """Embed queries (B, M, width), which is the same at all steps."""
        shared = self.config.num_query_features
        embedded = embed_positions(queries.points, self.config.width - shared)
        if queries.features is not None:
            embedded = torch.cat([embedded, queries.features], dim=-1)
        return self.query(embedded)

    def _decode(self, latents: Tensor, embedded: Tensor) -> Tensor:
        return baseline.recomputed(lambda e, z: self.output(self.read(e, z)), embedded, latents)


def embed_positions(points: Tensor, width: int) -> Tensor:
    """Embed (B, P, d) by sines and cosines of falling frequency, (B, P, width).

    Channels that do not divide over the axes are zero.
    """
    num = width // (2 * points.shape[-1])
    exponents = torch.arange(num, device=points.device) / max(1, num)
    with torch.autocast(points.device.type, enabled=False):
        phase = (points[..., None] + 1) * _EXTENT * _LONGEST_WAVE**-exponents
        waves = torch.cat([phase.sin(), phase.cos()], dim=-1).flatten(-2)
    return nn.functional.pad(waves, [0, width - waves.shape[-1]])


register(UptConfig, Upt)
