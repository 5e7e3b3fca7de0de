"""Models of several members, whose predictions are averaged: `num_members` of any model's config.

Where designs are few, much of each training's error is its own, and a mean loses that part (B.
Lakshminarayanan, A. Pritzel and C. Blundell, Simple and Scalable Predictive Uncertainty Estimation
using Deep Ensembles, NeurIPS 2017). The paper's models have one member. Members differ in their
first weights alone, and learn from the same batches, each by its own loss: a loss of the mean would
let them lean on one another.

Members with anchors make one model with the anchors of all: its latent Z (B, K L, d) has theirs one
after the other. Each member's field is u_0 + sum_k delta_k (Eq. exact-decomp), so the mean is the
mean of their offsets, and delta_k / K of each of their anchors; weights are divided alike.

Shapes: B clouds, T steps, H heads, M queries, C channels, K members of L anchors each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from courant import field_model as seam
from courant.field_model import FieldModel, Inputs, Queries, Reading
from courant.model_config import ModelConfig


@runtime_checkable
class Anchored(seam.Decodes, seam.Evolves, seam.Reads, seam.Exports, Protocol):
    """The capabilities of a member with anchors: those of Courant."""

    def decompose(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Any:
        """Return a decomposition whose windows move, with weights that divide every point."""


@dataclass(frozen=True)
class MeanPart:
    """Contributions of all members' anchors at a slice of the query points."""

    parts: Sequence[Any]

    @property
    def queries(self) -> slice:
        return cast(slice, self.parts[0].queries)

    @property
    def weights(self) -> Tensor:
        """(B, T, H, M, K L), one in sum over the anchors."""
        return torch.cat([part.weights for part in self.parts], dim=-1) / len(self.parts)

    @property
    def contributions(self) -> Tensor:
        """(B, T, K L, M, C)"""
        return torch.cat([part.contributions for part in self.parts], dim=2) / len(self.parts)


@dataclass(frozen=True)
class MeanDecomposition:
    """The members' decompositions as one, equal to the ensemble's prediction."""

    of: Sequence[Any]

    @property
    def offset(self) -> Tensor:
        """The mean of the members' offsets, (C,)."""
        return torch.stack([each.offset for each in self.of]).mean(0)

    @property
    def anchors(self) -> Tensor | None:
        """(B, K L, d), member after member; None where anchors have no positions."""
        return _joined([each.anchors for each in self.of])

    @property
    def window_anchors(self) -> tuple[Tensor, ...]:
        """Places level by level, (B, K L, d) or (B, T, K L, d)."""
        levels = zip(*(each.window_anchors for each in self.of), strict=True)
        return tuple(torch.cat(places, dim=-2) for places in levels)

    def chunks(self, size: int = 16_384) -> Iterator[MeanPart]:
        """Yield parts of at most `size` query points, in order."""
        for parts in zip(*(each.chunks(size) for each in self.of), strict=True):
            yield MeanPart(parts)

    def whole(self) -> MeanPart:
        """Return all query points at once."""
        return MeanPart([each.whole() for each in self.of])


class Ensemble(FieldModel):
    """The mean of several models of one kind; shapes are those of `FieldModel`."""

    def __init__(self, config: ModelConfig, members: Sequence[FieldModel]) -> None:
        super().__init__()
        self.config = config
        self.members = nn.ModuleList(members)

    def forward(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> Tensor:
        """Average what the members predict, (B, T, M, C)."""
        return self._mean(lambda member: member(inputs, queries, num_steps))

    def predict(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1, chunk: int | None = None
    ) -> Tensor:
        """Predict like `forward`; each member encodes as often as it does alone."""
        return self._mean(lambda member: member.predict(inputs, queries, num_steps, chunk))

    def _mean(self, predict: Callable[[FieldModel], Tensor]) -> Tensor:
        """Average one after the other, so that two fields are in memory at most."""
        first, *others = (cast(FieldModel, member) for member in self.members)
        total = predict(first)
        for member in others:
            total = total + predict(member)
        return total / len(self.members)


class AnchoredEnsemble(Ensemble):
    """The mean of members with anchors. Sampled anchors are the same ones for all members."""

    @torch.no_grad()
    def decompose(self, inputs: Inputs, queries: Queries, num_steps: int = 1) -> MeanDecomposition:
        """Split the field of `forward` into an offset and a contribution of each of K L anchors."""
        return MeanDecomposition(
            [member.decompose(inputs, queries, num_steps) for member in self._anchored]
        )

    def place_anchors(self, points: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """Return the anchors of clouds: (B, L, d) where members share them, else (B, K L, d)."""
        if self.config.num_sampled_anchors:
            return self._anchored[0].place_anchors(points, mask)
        return _joined([member.place_anchors(points, mask) for member in self._anchored])

    def encode(self, inputs: Inputs) -> Tensor:
        """Return Z(0), (B, K L, d)."""
        return torch.cat([member.encode(inputs) for member in self._anchored], dim=1)

    def rollout(self, Z: Tensor, num_steps: int) -> Tensor:
        """Return Z after 1..T steps of one unit of tau: (B, T, K L, d)."""
        return torch.cat([each.rollout(z, num_steps) for each, z in self._with_latents(Z)], dim=-2)

    def derivative(self, Z: Tensor) -> Tensor:
        """Return f(Z), (B, K L, d)."""
        return torch.cat([each.derivative(z) for each, z in self._with_latents(Z)], dim=-2)

    @property
    def integrator(self) -> tuple[str, float]:
        return self._anchored[0].integrator

    def decode(
        self, Z: Tensor, queries: Queries, anchors: Tensor | None = None, chunk: int | None = None
    ) -> Tensor:
        """Decode Z (B, K L, d) at query points: (B, M, C)."""
        places: Sequence[Tensor | None] = [anchors] * len(self.members)
        if anchors is not None and not self.config.num_sampled_anchors:
            places = anchors.chunk(len(self.members), dim=1)
        fields = [
            member.decode(z, queries, anchors=its_own, chunk=chunk)
            for (member, z), its_own in zip(self._with_latents(Z), places, strict=True)
        ]
        return torch.stack(fields).mean(0)

    @torch.no_grad()
    def reading(self, inputs: Inputs, chosen: Sequence[int]) -> Reading:
        """Return which points some of the K L anchors read at each level."""
        own = self._anchored[0].encode(inputs).shape[1]
        found = [
            # A member without a chosen anchor still returns where its anchors are.
            member.reading(inputs, [each % own for each in chosen if each // own == number] or [0])
            for number, member in enumerate(self._anchored)
        ]
        rows = [iter(each.weights.unbind(dim=2)) for each in found]
        weights = torch.stack([next(rows[each // own]) for each in chosen], dim=2)
        levels = zip(*(each.anchors for each in found), strict=True)
        return Reading(weights, tuple(torch.cat(places, dim=-2) for places in levels))

    def export(self) -> dict[str, ExportedProgram]:
        """Export each member's parts, as `encoder-1` of the first and so on."""
        return {
            f"{part}-{number}": program
            for number, member in enumerate(self._anchored, start=1)
            for part, program in member.export().items()
        }

    @property
    def _anchored(self) -> list[Anchored]:
        return cast(list[Anchored], list(self.members))

    def _with_latents(self, Z: Tensor) -> Iterator[tuple[Anchored, Tensor]]:
        """Each member with its part of Z (..., K L, d)."""
        return zip(self._anchored, Z.chunk(len(self.members), dim=-2), strict=True)


def _joined(anchors: Sequence[Tensor | None]) -> Tensor | None:
    """Join anchors (B, L, d) of members to (B, K L, d); None where they have no positions."""
    places = [each for each in anchors if each is not None]
    return torch.cat(places, dim=1) if places else None


class MembersApart(nn.Module):
    """What a training step calls of an ensemble: one module, so that workers wrap it whole."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(
        self, inputs: Inputs, queries: Queries, num_steps: int, *more: Tensor | None
    ) -> list[Tensor]:
        """Return what each member makes of these arguments."""
        return [member(inputs, queries, num_steps, *more) for member in self.members]


def ensemble_of(config: ModelConfig, members: Sequence[FieldModel]) -> Ensemble:
    """Build the ensemble with the capabilities that its members have."""
    has_anchors = all(isinstance(member, Anchored) for member in members)
    return (AnchoredEnsemble if has_anchors else Ensemble)(config, members)
