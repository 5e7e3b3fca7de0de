"""Average the predictions of members that differ in nothing but their first weights.

Trainings of one model end in different functions. Where designs are few, much of each one's error
is its own, and a mean loses that part (B. Lakshminarayanan, A. Pritzel and C. Blundell, Simple and
Scalable Predictive Uncertainty Estimation using Deep Ensembles, NeurIPS 2017). The paper's models
have one member.

Members are trained together on the same batches, each by its own loss: a loss of the mean would let
them lean on one another, and they would differ less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from torch import Tensor, nn

from courant.field_model import FieldModel, Inputs, Queries
from courant.model_config import ModelConfig


class Ensemble(FieldModel):
    """The mean of several models of one kind; shapes are those of `FieldModel`."""

    def __init__(self, config: ModelConfig, members: Sequence[FieldModel]) -> None:
        super().__init__()
        self.config = config
        self.members = nn.ModuleList(members)

    def trained_apart(self) -> Sequence[nn.Module]:
        """Return the members, which have a loss each."""
        return list(self.members)

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
