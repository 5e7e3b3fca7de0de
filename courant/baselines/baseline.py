"""What baselines share: checked sizes, known states, nearest points, and how they meet a cloud.

A transient model reads I states one step apart, the oldest first, as the first I C channels of its
features. In an autoregressive rollout each step's prediction becomes the newest of them, and the
oldest one goes.

Models of mesh points take queries along as ghosts. A ghost is processed like a point of the cloud,
with the same weights. It reads what the cloud's points write (slices, messages) and writes nothing,
so queries do not see each other, and a query at a point of the cloud is predicted as that point is.
It knows its own position, given fields and distance field; the state, or the boundary condition, is
interpolated from the cloud.

Grids span the bounding box of the cloud's points with `resolution` nodes along every axis, and each
node gets the features of the nearest points, weighted by the inverse square of their distance. A
node inside a body thus gets what is at the body's surface; that it lies inside shows in the
distance field alone. Back: the field at a query is interpolated linearly between the nodes around
it; a query outside of the box gets the value at its border.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import torch
from scipy.spatial import cKDTree
from torch import Tensor, nn
from torch.nn.functional import grid_sample, pad
from torch.utils.checkpoint import checkpoint

from courant.field_model import FieldModel, Inputs, Queries
from courant.model.coordinates import farthest_point_sampling, gather_points
from courant.model_config import ModelConfig, size

T = TypeVar("T")
_MOST_DISTANCES = 2**24  # Distances in memory at a time, 64 MiB
_CLOSE = 1e-12  # Squared distance below which two points are one, in normalised coordinates
MAX_NODES = 2**24
_LEAST_EXTENT = 1e-6  # Half the extent of a box that is flat along an axis, such as z of a 2D case


@dataclass(frozen=True)
class BaselineConfig(ModelConfig):
    """The sizes of a baseline: frozen, checked, and the same after a JSON round trip."""

    #: I: states that a transient model knows, the first channels of its features, oldest first.
    input_steps: int = size(1, 1, 1024)

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if self.input_steps > 1 and not self.transient:
            raise ValueError(
                f"{name}.input_steps = {self.input_steps}: a steady model has no steps"
            )
        states = self.num_state_channels
        if self.transient and self.num_features < states:
            raise ValueError(
                f"{name}.num_features = {self.num_features}: a transient model reads the state,"
                f" at least num_outputs x input_steps = {states} channels"
            )

    @property
    def num_state_channels(self) -> int:
        """I C: channels of all known states together."""
        return self.input_steps * self.num_outputs

    def check_divides(self, width: str, parts: str) -> None:
        """Raise ValueError unless the field `width` is a multiple of the field `parts`."""
        whole, part = getattr(self, width), getattr(self, parts)
        if whole % part:
            raise ValueError(
                f"{type(self).__name__}.{width} = {whole} does not divide over {parts} = {part}"
            )

    def check_steps(self, num_steps: int) -> None:
        """Raise ValueError for a rollout of a steady model."""
        if num_steps != 1 and not self.transient:
            raise ValueError(f"a steady model predicts one step, got num_steps = {num_steps}")


@dataclass(frozen=True)
class MeshConfig(BaselineConfig):
    """The sizes of a model whose points and queries are the same kind of thing.

    Such a model reads the mesh. A query knows its last channels itself, the given fields and the
    distance field, and gets the first ones, the state or the boundary conditions, from the cloud.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        states = self.num_state_channels
        if self.num_query_features and self.num_carried not in (0, states):
            raise ValueError(
                f"{type(self).__name__}.num_features = {self.num_features} and num_query_features ="
                f" {self.num_query_features}: points and queries of this model share their given"
                " fields and distance field, so num_features is num_query_features, with"
                f" num_outputs x input_steps = {states} more where a state or a boundary condition"
                ' is known; a steady experiment sets data.encoder to "mesh"'
            )

    @property
    def num_carried(self) -> int:
        """Channels that a query gets from the cloud."""
        return self.num_features - self.num_query_features


def newest(features: Tensor, state_channels: int, num_states: int) -> Tensor:
    """Return the newest state (..., C) of features (..., I C + others)."""
    return features[..., (num_states - 1) * state_channels : num_states * state_channels]


def advance(features: Tensor, state: Tensor, num_states: int, dim: int = -1) -> Tensor:
    """Return the features with `state` as the newest of their states, which lie along `dim`."""
    size, known = state.shape[dim], num_states * state.shape[dim]
    others = features.narrow(dim, known, features.shape[dim] - known)
    return torch.cat([features.narrow(dim, size, known - size), state, others], dim)


def feed_forward(width: int, multiple: int) -> nn.Sequential:
    """LayerNorm, Linear, GELU, Linear, with a hidden width of `multiple * width`."""
    return nn.Sequential(
        nn.LayerNorm(width),
        nn.Linear(width, multiple * width),
        nn.GELU(),
        nn.Linear(multiple * width, width),
    )


def initialise(model: nn.Module) -> None:
    """Draw all linear maps of a transformer anew, of standard deviation 0.02, with biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def recomputed(call: Callable[..., T], *given: Any) -> T:
    """Call, and on a GPU keep nothing for the backward pass, which calls again.

    The activations at all points of all steps of a rollout would fill it.
    """
    if given[0].device.type == "cpu" or not torch.is_grad_enabled():
        return call(*given)
    return cast(T, checkpoint(call, *given, use_reentrant=False, preserve_rng_state=False))


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, S, H * head) -> (B, H, S, head)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def place(inputs: Inputs, num: int) -> Tensor:
    """Return the anchors of the inputs (B, num, d), or points of the clouds that are far apart."""
    if inputs.anchors is not None:
        return inputs.anchors
    return gather_points(inputs.points, farthest_point_sampling(inputs.points, num, inputs.mask))


class Neighbours(NamedTuple):
    """The k points of a cloud that are nearest to each of P places, nearest first."""

    numbers: Tensor  # (B, P, k) int64
    squared: Tensor  # (B, P, k), squared distances; inf where the cloud has no such point

    @property
    def there(self) -> Tensor:
        """(B, P, k) bool, False where the cloud has no such point."""
        return self.squared.isfinite()

    def widened(self, width: int) -> Neighbours:
        """Return lists of `width` neighbours, with absent ones at their ends."""
        more = (0, width - self.numbers.shape[2])
        return Neighbours(pad(self.numbers, more), pad(self.squared, more, value=torch.inf))

    def gather(self, values: Tensor) -> Tensor:
        """(B, N, c) at the cloud's points -> (B, P, k, c)."""
        flat = self.numbers.flatten(1)[..., None].expand(-1, -1, values.shape[-1])
        return values.gather(1, flat).unflatten(1, self.numbers.shape[1:])

    def interpolate(self, values: Tensor) -> Tensor:
        """Weigh (B, N, c) by the inverse square of the distance, (B, P, c).

        At a point of the cloud this is that point's value.
        """
        weights = self.there / (self.squared + _CLOSE)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=_CLOSE)
        return (weights[..., None] * self.gather(values)).sum(2)


@torch.no_grad()
def connected(lists: Tensor, points: Tensor, mask: Tensor | None) -> Neighbours:
    """Return the neighbours (B, N, k) that a mesh lists for each point of its cloud (B, N, d).

    A number below zero, or that of a point which is not real, is no neighbour.
    """
    found = Neighbours(lists.clamp(min=0).long(), torch.zeros(lists.shape, device=points.device))
    there = lists >= 0
    if mask is not None:
        there = there & found.gather(mask[..., None])[..., 0]
    squared = (found.gather(points) - points[:, :, None]).square().sum(-1)
    return Neighbours(found.numbers, squared.masked_fill(~there, torch.inf))


@torch.no_grad()
def find_nearest(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, *, others: bool = False
) -> Neighbours:
    """Find the `num` real points (B, N, d) nearest to each place (B, P, d).

    With `others` a point at the place itself does not count.
    """
    num = min(num, points.shape[1])
    if places.device.type != "cpu":
        return _by_distances(places, points, mask, num, others)
    masks = [None] * len(points) if mask is None else mask
    found = [_in_tree(*item, num, others) for item in zip(places, points, masks, strict=True)]
    return Neighbours(*(torch.stack(parts) for parts in zip(*found, strict=True)))


def _by_distances(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, others: bool
) -> Neighbours:
    """Compare each place with each point, in parts that fit into a GPU's memory."""
    chunk = max(1, _MOST_DISTANCES // (points.shape[0] * points.shape[1]))
    parts = []
    for part in places.split(chunk, dim=1):
        # CUDA's cdist takes a block of threads for each pair, a hundred times as long; its product
        # form does not give zero where points coincide.
        squared = sum(
            (part[:, :, None, axis] - points[:, None, :, axis]).square()
            for axis in range(points.shape[2])
        )
        if mask is not None:
            squared = squared.masked_fill(~mask[:, None], torch.inf)
        if others:
            squared = squared.masked_fill(squared == 0, torch.inf)
        parts.append(squared.topk(num, dim=-1, largest=False))
    squared = torch.cat([part.values for part in parts], 1)
    return Neighbours(torch.cat([part.indices for part in parts], 1), squared)


def _in_tree(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, others: bool
) -> tuple[Tensor, Tensor]:
    """Return numbers and squared distances, (P, num) each, by a tree of one cloud."""
    real = torch.arange(len(points)) if mask is None else mask.nonzero()[:, 0]
    if not len(real):
        none = places.new_full((len(places), num), torch.inf)
        return torch.zeros_like(none, dtype=torch.long), none
    # Balanced, it may fail where subnormal numbers are zero: see `simgen.point_cloud.point_tree`.
    tree = cKDTree(points[real].detach().double().numpy(), balanced_tree=False)
    at = places.detach().double().numpy()
    asked = num + others
    while True:
        found = tree.query(at, range(1, asked + 1))
        distance, nearest = map(torch.from_numpy, found)
        squared = distance.square().to(places.dtype)
        if others:
            squared = squared.masked_fill(squared == 0, torch.inf)
        if asked >= len(real) or (squared.isfinite().sum(1) >= num).all():
            break
        asked *= 2  # several points lie at one place
    squared, order = squared.sort(dim=1, stable=True)
    # Where the cloud has no further point, the tree gives a number that is none of its own.
    nearest = nearest.gather(1, order)[:, :num].clamp(max=len(real) - 1)
    return real[nearest], squared[:, :num]


class Sites(NamedTuple):
    """The points of the cloud, followed by the ghosts."""

    points: Tensor  # (B, S, d)
    features: Tensor  # (B, S, num_features)
    writes: Tensor  # (B, S) bool, True at the cloud's real points
    num_cloud: int  # N
    parameters: Tensor | None
    neighbours: Tensor | None = None  # (B, N, k) of the cloud's points, as `Inputs` has them

    def known(self, features: Tensor) -> Tensor:
        """Join position, features and design parameters of every site, (B, S, c)."""
        parts = [self.points, features]
        if self.parameters is not None:
            parts.append(self.parameters[:, None].expand(-1, self.points.shape[1], -1))
        return torch.cat(parts, dim=-1)


@dataclass(frozen=True)
class GhostConfig(MeshConfig):
    """The sizes of a model that takes the queries along as ghosts."""

    @property
    def waits_for_device(self) -> str | None:
        return "a look at whether the queries are the cloud's points"


class GhostModel(FieldModel):
    """A model of mesh points that takes the queries along as ghosts."""

    config: GhostConfig

    def prepare(self, sites: Sites) -> Any:
        """Compute what all steps share, such as neighbours; nothing by default."""

    @abstractmethod
    def field(self, sites: Sites, features: Tensor, prepared: Any) -> Tensor:
        """Predict the field, or the next state, at every site (B, S, C) from its features."""

    def choose(self, sites: Sites, asked: slice) -> tuple[Sites, slice]:
        """Return the sites that the model works on, and which of them are predicted."""
        return sites, asked

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        config = self.config
        config.check_steps(num_steps)
        asked, num_cloud = slice(None), inputs.points.shape[1]
        on_cloud = _coincide(inputs.points, queries.points)
        inputs = inputs.without_padding()
        points, features, mask = inputs.points, inputs.features, inputs.mask
        writes = torch.ones_like(points[..., 0], dtype=torch.bool) if mask is None else mask
        if not on_cloud:
            near = find_nearest(queries.points, points, mask, config.dimension + 1)
            known = [near.interpolate(features[..., : config.num_carried])]
            if queries.features is not None:
                known.append(queries.features)
            points = torch.cat([points, queries.points], dim=1)
            features = torch.cat([features, torch.cat(known, dim=-1)], dim=1)
            silent = torch.zeros_like(queries.points[..., 0], dtype=torch.bool)
            writes, asked = torch.cat([writes, silent], dim=1), slice(num_cloud, None)
        sites = Sites(points, features, writes, num_cloud, inputs.parameters, inputs.neighbours)
        sites, asked = self.choose(sites, asked)
        prepared, features = self.prepare(sites), sites.features
        states: list[Tensor] = []
        for _ in range(num_steps):
            if states:
                features = advance(features, states[-1], config.input_steps)
            states.append(self.field(sites, features, prepared))
        return torch.stack([state[:, asked] for state in states], dim=1)

    def predict(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None
    ) -> Tensor:
        """Predict like `forward`; the cloud's own points in one pass, whatever `chunk` is.

        The cloud is processed as a whole anyway.
        """
        on_cloud = _coincide(inputs.points, queries.points)
        return super().predict(inputs, queries, num_steps, None if on_cloud else chunk)


def _coincide(points: Tensor, queries: Tensor) -> bool:
    """Whether the queries are the cloud's points themselves: then they need no ghosts."""
    return points.shape == queries.shape and torch.equal(points, queries)


@dataclass(frozen=True)
class GridConfig(BaselineConfig):
    """The sizes of a model on a grid."""

    #: Nodes along every axis of the cloud's bounding box.
    resolution: int = size(64, 4, 4096)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resolution**self.dimension > MAX_NODES:
            raise ValueError(
                f"{type(self).__name__}.resolution = {self.resolution} makes a grid of more than"
                f" {MAX_NODES:,} nodes in {self.dimension}D; lower it"
            )


class Box:
    """The bounding box of each cloud's real points."""

    def __init__(self, points: Tensor, mask: Tensor | None) -> None:
        absent = None if mask is None else ~mask[..., None]
        low = points if absent is None else points.masked_fill(absent, torch.inf)
        high = points if absent is None else points.masked_fill(absent, -torch.inf)
        lowest, highest = low.amin(1, keepdim=True), high.amax(1, keepdim=True)
        self.centre = (lowest + highest) / 2  # (B, 1, d)
        self.half = ((highest - lowest) / 2).clamp(min=_LEAST_EXTENT)

    def nodes(self, resolution: int) -> Tensor:
        """Return (B, R^d, d), the nodes in the order of the grid's axes."""
        line = torch.linspace(-1, 1, resolution, device=self.half.device, dtype=self.half.dtype)
        axes = torch.meshgrid([line] * self.half.shape[-1], indexing="ij")
        return self.centre + self.half * torch.stack(axes, -1).flatten(0, -2)

    def sample(self, field: Tensor, places: Tensor) -> Tensor:
        """(B, C, R, ...) at the places (B, M, d) -> (B, M, C)."""
        at = ((places - self.centre) / self.half).flip(-1)  # the last axis comes first
        if field.dim() == 3:  # grid_sample knows two axes at least
            field, at = field[:, :, None], torch.cat([at, torch.zeros_like(at)], -1)
        at = at.view(len(at), *[1] * (at.shape[-1] - 1), *at.shape[1:])
        # In full precision: bfloat16 has 256 places.
        exact = torch.promote_types(field.dtype, at.dtype)
        with torch.autocast(field.device.type, enabled=False):
            sampled = grid_sample(
                field.to(exact), at.to(exact), padding_mode="border", align_corners=True
            )
        return sampled.flatten(2).transpose(1, 2)


class GridModel(FieldModel):
    """A model of fields on a regular grid."""

    config: GridConfig

    @abstractmethod
    def field(self, known: Tensor) -> Tensor:
        """Predict the field, or the next state, (B, C, R, ...) from all channels of the grid."""

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        self.config.check_steps(num_steps)
        inputs = inputs.without_padding()
        box = Box(inputs.points, inputs.mask)
        config, nodes = self.config, box.nodes(self.config.resolution)
        near = find_nearest(nodes, inputs.points, inputs.mask, config.dimension + 1)
        channels = [near.interpolate(inputs.features), nodes]
        if inputs.parameters is not None:
            channels.append(inputs.parameters[:, None].expand(-1, nodes.shape[1], -1))
        known = torch.cat(channels, dim=-1).transpose(1, 2)
        known = known.unflatten(2, [config.resolution] * config.dimension)
        states = [self.field(known)]
        for _ in range(num_steps - 1):
            known = advance(known, states[-1], self.config.input_steps, dim=1)
            states.append(self.field(known))
        return torch.stack([box.sample(state, queries.points) for state in states], dim=1)

    def predict(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None
    ) -> Tensor:
        """Predict like `forward`: the grid costs most, and it is computed once."""
        return self(inputs, queries, num_steps)
