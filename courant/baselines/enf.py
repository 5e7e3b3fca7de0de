"""Equivariant neural field: latents with positions, fitted to the input by gradient descent.

D. R. Wessels, D. M. Knigge, S. Papa, R. Valperga, S. Vadgama, E. Gavves and E. J. Bekkers,
Grounding Continuous Representations in Geometry: Equivariant Neural Fields, ICLR 2025; in time as
in D. M. Knigge and others, NeurIPS 2024; steady problems as in G. Catalani and others, 2025.

A point attends to its nearest latents; it knows them by its position relative to theirs, and a
Gaussian window makes them local. A few gradient steps fit the latents' contexts to the input
features at the cloud's points, and training goes through these steps (meta-learning). Messages
between the latents then give the next state's contexts, or the solution's. The sizes and what
differs from the papers are in docs/baselines.md.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from courant.baselines import baseline
from courant.field_model import FieldModel, Inputs, Queries
from courant.model_config import size
from courant.models import register


@dataclass(frozen=True)
class EnfConfig(baseline.BaselineConfig):
    """Sizes of an ENF; the defaults are those of the cylinder."""

    kind: ClassVar[str] = "enf"

    #: Of contexts, keys of each head and hidden layers.
    width: int = size(128, 2, 1024)
    num_heads: int = size(3, 1, 64)
    num_latents: int = size(64, 1, 4096)
    #: Latents that a point attends to.
    num_nearest: int = size(4, 1, 64)
    #: Rounds of messages between latents for each step.
    num_layers: int = size(6, 0, 64)
    #: Gradient steps that fit the latents to the input.
    fit_steps: int = size(3, 1, 32)
    #: Standard deviations of the random frequencies that embed relative positions.
    query_frequency: float = size(2.0, 1e-3, 1e3)
    value_frequency: float = size(10.0, 1e-3, 1e3)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % 2:
            raise ValueError(f"EnfConfig.width must be even, got {self.width}")

    @property
    def num_sampled_anchors(self) -> int:
        return self.num_latents


Nearby = tuple[baseline.Neighbours, Tensor]


def find_nearby(points: Tensor, positions: Tensor, num: int) -> Nearby:
    """Return the nearest latents of each point, and the way to it from them, (B, P, k, d)."""
    near = baseline.find_nearest(points, positions, None, num)
    return near, points[:, :, None] - near.gather(positions)


class RelativeEmbedding(nn.Module):
    """Embed relative positions by random Fourier features and a linear map."""

    def __init__(self, dimension: int, width: int, frequency: float) -> None:
        super().__init__()
        self.frequencies = nn.Linear(dimension, width // 2, bias=False)
        nn.init.normal_(self.frequencies.weight, std=frequency)
        self.mix = nn.Linear(dimension + width, width)

    def forward(self, vector: Tensor) -> Tensor:
        """(..., d) -> (..., width)."""
        with torch.autocast(vector.device.type, enabled=False):
            phase = math.pi * self.frequencies(vector)
            waves = torch.cat([vector, phase.sin(), phase.cos()], dim=-1)
        return self.mix(waves)


class CrossAttention(nn.Module):
    """Read the latents near each point.

    weight_l = softmax_l(q(x - p_l) . k(c_l) - |x - p_l|^2 / window^2), value_l = v(c_l) modulated
    by x - p_l; the result is sum_l weight_l value_l for each head.
    """

    def __init__(self, config: EnfConfig) -> None:
        super().__init__()
        width, inner = config.width, config.num_heads * config.width
        self.num_heads = config.num_heads
        self.query = nn.Sequential(
            RelativeEmbedding(config.dimension, width, config.query_frequency),
            nn.Linear(width, inner),
        )
        self.modulation = nn.Sequential(
            RelativeEmbedding(config.dimension, width, config.value_frequency),
            nn.Linear(width, 2 * width),
        )
        self.key = nn.Linear(width, inner)
        self.value = nn.Linear(width, width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, inner))
        spacing = config.num_latents ** (-1 / config.dimension)
        self.log_window = nn.Parameter(torch.tensor(math.log(2 * spacing)))

    def forward(self, context: Tensor, nearby: Nearby) -> Tensor:
        """Contexts (B, L, width) -> (B, P, H * width)."""
        near, vector = nearby
        q, k = self._heads(self.query(vector)), self._heads(near.gather(self.key(context)))
        scale, shift = self.modulation(vector).chunk(2, dim=-1)
        v = self._heads(self.mix(near.gather(self.value(context)) * (1 + scale) + shift))
        distance = vector.square().sum(-1) * (-2 * self.log_window).exp()
        logits = (q * k).sum(-1) * q.shape[-1] ** -0.5 - distance[..., None]
        return (logits.softmax(2)[..., None] * v).sum(2).flatten(2)  # softmax over k

    def _heads(self, x: Tensor) -> Tensor:
        """(B, P, k, H * width) -> (B, P, k, H, width)."""
        return x.unflatten(-1, (self.num_heads, -1))


class LatentConvolution(nn.Module):
    """Convolve contexts with a kernel of relative positions, then a feed-forward network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.kernel = nn.Linear(width, width, bias=False)
        self.feed_forward = baseline.feed_forward(width, 4)

    def forward(self, context: Tensor, embedded: Tensor) -> Tensor:
        """Contexts (B, L, width), embedded positions (B, L, L, width)."""
        received = torch.einsum("blmw,bmw->blw", self.kernel(embedded), context)
        return context + self.feed_forward(received / context.shape[1])


class Enf(FieldModel):
    """Fit contexts to the input, advance them, and read the field off them."""

    config: EnfConfig

    def __init__(self, config: EnfConfig) -> None:
        super().__init__()
        self.config = config
        width, inner = config.width, config.num_heads * config.width
        self.start = nn.Parameter(torch.ones(width) / width)
        self.design = nn.Linear(config.num_parameters, width) if config.num_parameters else None
        self.attention = CrossAttention(config)
        self.fitted = nn.Linear(inner, config.num_features)
        self.rates = nn.Parameter(torch.ones(width))
        self.relative = RelativeEmbedding(config.dimension, width, config.query_frequency)
        self.rounds = nn.ModuleList(LatentConvolution(width) for _ in range(config.num_layers))
        # A later state is read as the fitted one is; a solution is another field than the input.
        self.output = None if config.transient else nn.Linear(inner, config.num_outputs)

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        return self.predict(inputs, queries, num_steps)

    def predict(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None
    ) -> Tensor:
        """Predict like `forward`; fit once, however many chunks of queries there are."""
        self.config.check_steps(num_steps)
        inputs = inputs.without_padding()
        positions = baseline.place(inputs, self.config.num_latents)
        context = self._fit(inputs, positions)
        embedded = self.relative(positions[:, :, None] - positions[:, None])
        states = []
        for _ in range(num_steps):
            for each in self.rounds:
                context = each(context, embedded)
            states.append(context)
        num = queries.points.shape[1]
        parts = queries.points.split(chunk or max(1, num), dim=1)
        fields = []
        for part in parts:
            nearby = find_nearby(part, positions, self.config.num_nearest)
            fields.append(torch.stack([self._read(state, nearby) for state in states], dim=1))
        return torch.cat(fields, dim=2)

    def _read(self, context: Tensor, nearby: Nearby) -> Tensor:
        read = self.attention(context, nearby)
        if self.output is None:
            return baseline.newest(
                self.fitted(read), self.config.num_outputs, self.config.input_steps
            )
        return self.output(read)

    def _fit(self, inputs: Inputs, positions: Tensor) -> Tensor:
        """Return contexts (B, L, width) that describe the input features."""
        learning = torch.is_grad_enabled()
        # Fitting needs gradients, also where a prediction does not.
        with torch.inference_mode(False), torch.enable_grad():
            points, features, positions = (
                each.clone() if each.is_inference() else each
                for each in (inputs.points, inputs.features, positions)
            )
            context = self.start.expand(len(points), self.config.num_latents, -1)
            if self.design is not None and inputs.parameters is not None:
                context = context + self.design(inputs.parameters.clone())[:, None]
            mask = inputs.mask
            real = torch.ones_like(points[..., 0]) if mask is None else mask.to(points.dtype)
            weights = real / real.sum(1, keepdim=True).clamp(min=1)  # (B, N), of its cloud
            nearby = find_nearby(points, positions, self.config.num_nearest)
            for _ in range(self.config.fit_steps):
                wrong = self.fitted(self.attention(context, nearby)) - features
                loss = (wrong.square().mean(-1) * weights).sum() * self.config.num_latents
                (slope,) = torch.autograd.grad(loss, context, create_graph=learning)
                context = context - self.rates * slope
                context = context if learning else context.detach().requires_grad_()
        return context if learning else context.detach()


register(EnfConfig, Enf)
