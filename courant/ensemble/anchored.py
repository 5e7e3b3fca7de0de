"""Average members that have anchors, as one model with the anchors of all of them.

Its latent Z (B, K L, d) holds the latents of K members one after the other. Each member encodes,
advances and decodes its own part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor
from torch.export import ExportedProgram

from courant.ensemble.averaged import Ensemble
from courant.ensemble.contributions import MeanDecomposition, MemberDecomposition, joined
from courant.field_model import (
    Decodes,
    Evolves,
    Exports,
    FieldModel,
    Inputs,
    Queries,
    Reading,
    Reads,
)
from courant.model_config import ModelConfig


@runtime_checkable
class Anchored(Decodes, Evolves, Reads, Exports, Protocol):
    """The capabilities of a member: those of Courant."""

    def decompose(
        self, inputs: Inputs, queries: Queries, num_steps: int = 1
    ) -> MemberDecomposition:
        """Split the field of `forward` into an offset and one contribution for each anchor."""


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
        return joined([member.place_anchors(points, mask) for member in self._anchored])

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
    def inner_step(self) -> float:
        return self._anchored[0].inner_step

    @property
    def inner_solver(self) -> str:
        return self._anchored[0].inner_solver

    def decode(
        self,
        Z: Tensor,
        queries: Queries,
        *,
        anchors: Tensor | None = None,
        chunk: int | None = None,
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
            # A member of whom no anchor is asked for still tells where its anchors are.
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


def ensemble_of(config: ModelConfig, members: Sequence[FieldModel]) -> Ensemble:
    """Build the ensemble with the capabilities that its members have."""
    has_anchors = all(isinstance(member, Anchored) for member in members)
    return (AnchoredEnsemble if has_anchors else Ensemble)(config, members)
