"""Validation: the same samples at every epoch, with every point of the mesh, as the predictor sees a case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from courant.data.normalisation import Normaliser
from courant.data.samples import Batch, full_batch
from courant.data.steady import SteadySample
from courant.data.trajectories import TrajectorySet
from courant.experiment import DataConfig
from courant.training.loss import Loss, masked_mean

BATCH = 16


@dataclass(frozen=True)
class Validation:
    """Fixed samples of the validation split."""

    batches: Callable[[], Iterator[Batch]]
    normaliser: Normaliser

    @torch.no_grad()
    def measure(self, predict: Callable[[Batch], Tensor], loss: Loss) -> tuple[float, float]:
        """Loss in standardised space, and NMAE in physical units: mean absolute error over mean absolute value.

        Fields of different units have an NMAE each, and their mean is returned, as in `courant.evaluation.metrics`.
        """
        num_samples, loss_sum = 0, 0.0
        fields = [channel.field for channel in self.normaliser.channels]
        errors, sizes = dict.fromkeys(fields, 0.0), dict.fromkeys(fields, 0.0)
        for batch in self.batches():
            device = batch.targets.device
            std, mean = (torch.tensor(values, device=device) for values in (self.normaliser.std, self.normaliser.mean))
            prediction, count = predict(batch).float(), len(batch.targets)
            num_samples += count
            loss_sum += count * float(loss(prediction, batch))
            error, size = (prediction - batch.targets).abs() * std, (batch.targets * std + mean).abs()
            for field in errors:
                columns = [number for number, name in enumerate(fields) if name == field]
                errors[field] += count * float(masked_mean(error[..., columns], batch.query_mask))
                sizes[field] += count * float(masked_mean(size[..., columns], batch.query_mask))
        return loss_sum / num_samples, sum(errors[field] / sizes[field] for field in errors) / len(errors)


def validate_windows(
    trajectories: TrajectorySet, windows: Tensor, config: DataConfig, normaliser: Normaliser
) -> Validation:
    """On windows (W, 2) of trajectories."""
    return Validation(lambda: (full_batch(trajectories, chosen, config) for chosen in windows.split(BATCH)), normaliser)


def validate_samples(samples: Sequence[SteadySample], normaliser: Normaliser) -> Validation:
    """On steady cases, one at a time: their clouds are large."""
    return Validation(lambda: (sample.batch for sample in samples), normaliser)
