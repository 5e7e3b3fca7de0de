"""Validate on the same samples at every epoch, with every mesh point, as the predictor does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from courant.data.batch import Batch
from courant.data.normalisation import Normaliser
from courant.problems.problem import Samples
from courant.training.loss import Loss, masked_sum


@dataclass(frozen=True)
class Validation:
    """Fixed samples of the validation split."""

    batches: Samples
    normaliser: Normaliser

    @torch.no_grad()
    def measure(self, predict: Callable[[Batch], Tensor], loss: Loss) -> tuple[float, float]:
        """Measure loss and NMAE of the fixed samples.

        The loss is in standardised space, averaged over samples; NMAE in physical units as
        `courant.evaluation.metrics` defines it: sums over all points of all samples, and the mean
        of fields with different units. Fields that are zero in all samples are left out; where all
        are, it is the sum of the errors themselves.
        """
        num_samples, loss_sum = 0, 0.0
        fields = [channel.field for channel in self.normaliser.channels]
        errors, sizes = dict.fromkeys(fields, 0.0), dict.fromkeys(fields, 0.0)
        for batch in self.batches():
            device = batch.targets.device
            std, mean = (
                torch.tensor(values, device=device)
                for values in (self.normaliser.std, self.normaliser.mean)
            )
            prediction, count = predict(batch).float(), len(batch.targets)
            num_samples += count
            loss_sum += count * float(loss(prediction, batch))
            if batch.scale is not None:
                std, mean = (value * batch.scale[:, None, None] for value in (std, mean))
            error = (prediction - batch.targets).abs() * std
            size = (batch.targets * std + mean).abs()
            for field in errors:
                columns = [number for number, name in enumerate(fields) if name == field]
                errors[field] += float(masked_sum(error[..., columns], batch.query_mask))
                sizes[field] += float(masked_sum(size[..., columns], batch.query_mask))
        # Nothing is relative to a field that is zero wherever it is validated.
        shares = [errors[field] / sizes[field] for field in errors if sizes[field] > 0]
        nmae = sum(shares) / len(shares) if shares else sum(errors.values())
        return loss_sum / num_samples, nmae
