"""Compute the prediction losses in standardised space: L2 and relative L2.

L2 is that of the paper's table of the baseline's architecture (tab:baseline-arch, which has
«auxiliary regularization: none»), relative L2 that of the public benchmarks. By the table of their
training (tab:courant-training), Darcy flow has the relative L2 of derivatives beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from courant.data.batch import Batch
from courant.data.normalisation import Normaliser
from courant.experiment import TrainingConfig
from courant.field_model import Inputs, MeasuresSpread, Queries
from simgen.errors import InputError

LossKind = Literal["l2", "relative-l2"]


@dataclass(frozen=True)
class Loss:
    """The loss of an experiment as a function of prediction and batch."""

    kind: LossKind
    offset: tuple[float, ...]
    """mean / std of each channel: the physical value of a standardised zero, in standard deviations
    """
    derivative_weight: float = 0.0
    grid: tuple[int, ...] = ()
    """The shape of the grid that the queries are, where derivatives count"""

    @classmethod
    def of(cls, training: TrainingConfig, normaliser: Normaliser, grid: tuple[int, ...]) -> Loss:
        offset = tuple(m / s for m, s in zip(normaliser.mean, normaliser.std, strict=True))
        return cls(training.loss, offset, training.derivative_weight, grid)

    def __call__(self, prediction: Tensor, batch: Batch) -> Tensor:
        loss = self._of_values(prediction, batch)
        if not self.derivative_weight:
            return loss
        return loss + self.derivative_weight * derivative_loss(prediction, batch.targets, self.grid)

    def _of_values(self, prediction: Tensor, batch: Batch) -> Tensor:
        if self.kind == "l2":
            return prediction_loss(prediction, batch.targets, batch.query_mask)
        return relative_l2_loss(prediction, batch.targets, batch.query_mask, self.offset)

    def weight(self, batch: Batch) -> Tensor:
        """Return the weight of a part's loss in the loss of the whole batch.

        The loss is a mean over points, or over samples.
        """
        targets, mask = batch.targets, batch.query_mask
        if self.kind == "l2" and mask is not None:
            return mask.sum().to(torch.float64)
        count = len(targets) * targets.shape[2] if self.kind == "l2" else len(targets)
        return torch.full((), count, dtype=torch.float64, device=targets.device)


def prediction_loss(prediction: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """Mean squared error in standardised space over all steps, points and channels.

    prediction, target (B, T, M, C); mask (B, M), True at real points. Scalar, float32.
    """
    return masked_mean((prediction.float() - target).square(), mask)


def relative_l2_loss(
    prediction: Tensor, target: Tensor, mask: Tensor | None, offset: Sequence[float]
) -> Tensor:
    """Average |u_hat - u|_2 / |u|_2 over samples, u in standard deviations about zero.

    For one channel that is the relative error in physical units; several channels have equal weight
    whatever their units. The paper sums over the batch: the same up to a factor, to which AdamW
    does not respond, and independent of the workers that share the batch.
    """
    real = (
        torch.ones_like(target[..., :1])
        if mask is None
        else mask[:, None, :, None].to(target.dtype)
    )
    # Filled on the device: a copy from the host would wait for it.
    truth = target + torch.stack([target.new_full((), value) for value in offset])
    error = ((prediction.float() - target).square() * real).sum((1, 2, 3))
    size = (truth.square() * real).sum((1, 2, 3))
    return _ratio(error, size)


def derivative_loss(prediction: Tensor, target: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Average |D u_hat - D u|_2 / |D u|_2 over samples, summed over the grid's axes.

    D u are central differences along the lines of the grid, at its inner points; their spacing
    cancels. prediction, target (B, T, M, C) on a grid of M points, the last axis fastest. Scalar.
    """
    apart = (prediction.float() - target).unflatten(2, grid)
    truth = target.unflatten(2, grid)
    total = target.new_zeros(())
    for axis in range(2, 2 + len(grid)):
        error, size = (_difference(values, axis).flatten(1) for values in (apart, truth))
        total = total + _ratio(error.square().sum(1), size.square().sum(1))
    return total


def _difference(values: Tensor, axis: int) -> Tensor:
    """Return the differences of next neighbours but one along an axis."""
    inner = values.shape[axis] - 2
    return values.narrow(axis, 2, inner) - values.narrow(axis, 0, inner)


def _ratio(error: Tensor, size: Tensor) -> Tensor:
    """Average the square roots of (B,) squared errors over (B,) squared sizes."""
    # The square root has no derivative at zero, where a prediction would be perfect.
    return ((error + 1e-12).sqrt() / size.clamp(min=1e-12).sqrt()).mean()


def masked_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """Average (B, T, M, C) values over the real points of a (B, M) mask."""
    if mask is None:
        return values.mean()
    weights = mask[:, None, :, None].to(values.dtype)
    return (values * weights).sum() / (weights.sum() * values.shape[1] * values.shape[3])


def masked_sum(values: Tensor, mask: Tensor | None) -> Tensor:
    """Sum (B, T, M, C) values over the real points of a (B, M) mask."""
    return (
        values.sum() if mask is None else (values * mask[:, None, :, None].to(values.dtype)).sum()
    )


class WithSpread(nn.Module):
    """A model whose forward returns the spread of its contributions beside its prediction.

    One module for both, so that workers and compilers wrap them together.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        if not isinstance(model, MeasuresSpread):
            raise InputError(
                "training.locality_weight needs a model whose anchors have contributions, such as"
                " courant; set it to 0"
            )
        self.model = model

    def forward(
        self, inputs: Inputs, queries: Queries, num_steps: int, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the prediction (B, T, M, C) and the spread (B, L)."""
        assert isinstance(self.model, MeasuresSpread)
        return self.model.predict_with_spread(inputs, queries, num_steps, mask)
