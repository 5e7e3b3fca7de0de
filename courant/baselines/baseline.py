"""What baselines share: checked sizes, the window of known states, layers, nearest points.

A transient model reads I states one step apart, the oldest first, as the first I C channels of its
features. In an autoregressive rollout each step's prediction becomes the newest of them, and the
oldest one goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from scipy.spatial import cKDTree
from torch import Tensor, nn
from torch.nn.functional import pad

from courant.field_model import Inputs
from courant.model.coordinates import farthest_point_sampling, gather_points
from courant.model_config import ModelConfig

_COMMON: dict[str, tuple[int, int]] = {
    "num_features": (0, 4096),
    "num_outputs": (1, 1024),
    "num_query_features": (0, 4096),
    "num_parameters": (0, 4096),
    "dimension": (1, 3),
    "input_steps": (1, 1024),
}
_MOST_DISTANCES = 2**24
"""Distances in memory at a time, 64 MiB"""
_CLOSE = 1e-12
"""Squared distance below which two points are one, in normalised coordinates"""


@dataclass(frozen=True)
class BaselineConfig(ModelConfig):
    """The sizes of a baseline: frozen, checked, and the same after a JSON round trip."""

    #: Least and greatest value of each number that a kind adds; whole bounds ask for whole numbers.
    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {}
    #: Values that each further field of a kind may have.
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    #: I: states that a transient model knows, the first channels of its features, oldest first.
    input_steps: int = 1

    def __post_init__(self) -> None:
        name = type(self).__name__
        for field, (least, most) in {**_COMMON, **self.bounds}.items():
            value = getattr(self, field)
            kind = int if isinstance(least, int) else int | float
            if not isinstance(value, kind) or isinstance(value, bool) or not least <= value <= most:
                what = "a whole number" if kind is int else "a number"
                raise ValueError(
                    f"{name}.{field} must be {what} from {least:,} to {most:,}, got"
                    f" {repr(value)[:60]}"
                )
        for field, allowed in self.choices.items():
            if (value := getattr(self, field)) not in allowed:
                raise ValueError(
                    f"{name}.{field} must be one of {', '.join(allowed)}, got {value!r}"
                )
        if not isinstance(self.transient, bool):
            raise ValueError(
                f"{name}.transient must be true or false, got {repr(self.transient)[:60]}"
            )
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

    numbers: Tensor
    """(B, P, k) int64"""
    squared: Tensor
    """(B, P, k), squared distances; inf where the cloud has no such point"""

    @property
    def there(self) -> Tensor:
        """(B, P, k) bool, False where the cloud has no such point."""
        return self.squared.isfinite()

    def at(self, nearest: Neighbours, elsewhere: Neighbours) -> Neighbours:
        """Return the neighbours (B, Q, k) of other places.

        They are those of the point (B, Q, 1) that is met there, and `elsewhere` where none is.
        """
        met = nearest.squared == 0
        here = Neighbours(*(nearest.gather(each)[:, :, 0] for each in self))
        here, other = _widened([here, elsewhere])
        return Neighbours(
            torch.where(met, here.numbers, other.numbers),
            torch.where(met, here.squared, other.squared),
        )

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


def join(first: Neighbours, second: Neighbours) -> Neighbours:
    """Return the neighbours of some places followed by those of others, of one cloud."""
    parts = zip(*_widened([first, second]), strict=True)
    return Neighbours(*(torch.cat(part, dim=1) for part in parts))


def _widened(lists: Sequence[Neighbours]) -> list[Neighbours]:
    """Add absent neighbours, so that all lists are as long."""
    width = max(each.numbers.shape[2] for each in lists)

    def to_width(values: Tensor, nothing: float) -> Tensor:
        return pad(values, (0, width - values.shape[2]), value=nothing)

    return [
        Neighbours(to_width(each.numbers, 0), to_width(each.squared, torch.inf)) for each in lists
    ]


@torch.no_grad()
def find_nearest(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, *, others: bool = False
) -> Neighbours:
    """Find the `num` real points (B, N, d) nearest to each place (B, P, d).

    With `others` a point at the place itself does not count.
    """
    find = _by_trees if places.device.type == "cpu" else _by_distances
    return find(places, points, mask, min(num, points.shape[1]), others)


def _by_distances(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, others: bool
) -> Neighbours:
    """Compare each place with each point, in parts that fit into a GPU's memory."""
    chunk = max(1, _MOST_DISTANCES // (points.shape[0] * points.shape[1]))
    parts = []
    for part in places.split(chunk, dim=1):
        # The product form of distances is faster, and does not give zero where points coincide.
        distance = torch.cdist(part, points, compute_mode="donot_use_mm_for_euclid_dist")
        squared = distance.square()
        if mask is not None:
            squared = squared.masked_fill(~mask[:, None], torch.inf)
        if others:
            squared = squared.masked_fill(squared == 0, torch.inf)
        parts.append(squared.topk(num, dim=-1, largest=False))
    squared = torch.cat([part.values for part in parts], 1)
    return Neighbours(torch.cat([part.indices for part in parts], 1), squared)


def _by_trees(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, others: bool
) -> Neighbours:
    """Search a tree of each cloud, so that time does not grow with places times points."""
    masks = [None] * len(points) if mask is None else mask
    found = [_in_tree(*item, num, others) for item in zip(places, points, masks, strict=True)]
    numbers, squared = (torch.stack(parts) for parts in zip(*found, strict=True))
    return Neighbours(numbers, squared)


def _in_tree(
    places: Tensor, points: Tensor, mask: Tensor | None, num: int, others: bool
) -> tuple[Tensor, Tensor]:
    """Return numbers and squared distances, (P, num) each, of one cloud."""
    real = torch.arange(len(points)) if mask is None else mask.nonzero()[:, 0]
    if not len(real):
        none = places.new_full((len(places), num), torch.inf)
        return torch.zeros_like(none, dtype=torch.long), none
    tree = cKDTree(points[real].detach().double().numpy())
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
