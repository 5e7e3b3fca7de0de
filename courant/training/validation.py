"""Validation: the same windows at every epoch, with every point of the mesh, as the predictor sees a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from courant.data.normalisation import Normaliser
from courant.data.samples import Batch, full_batch
from courant.data.trajectories import TrajectorySet
from courant.experiment import DataConfig
from courant.training.loss import masked_mean, prediction_loss

BATCH = 16


@dataclass(frozen=True)
class Validation:
    """Fixed windows of the validation split."""

    trajectories: TrajectorySet
    windows: Tensor
    data: DataConfig
    normaliser: Normaliser

    @torch.no_grad()
    def measure(self, predict: Callable[[Batch], Tensor]) -> tuple[float, float]:
        """Loss in standardised space, and NMAE in physical units: mean absolute error over mean absolute value."""
        device = self.trajectories.points.device
        std, mean = (torch.tensor(values, device=device) for values in (self.normaliser.std, self.normaliser.mean))
        sums = torch.zeros(3, dtype=torch.float64)
        for windows in self.windows.split(BATCH):
            batch = full_batch(self.trajectories, windows, self.data)
            prediction = predict(batch).float()
            loss = prediction_loss(prediction, batch.targets, batch.query_mask)
            error = masked_mean((prediction - batch.targets).abs() * std, batch.query_mask)
            size = masked_mean((batch.targets * std + mean).abs(), batch.query_mask)
            sums += len(windows) * torch.stack([loss, error, size]).double().cpu()
        loss_sum, error_sum, size_sum = sums.tolist()
        return loss_sum / len(self.windows), error_sum / size_sum
