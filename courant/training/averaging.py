"""An exponential moving average of the weights: what is validated and kept instead of the last step's, where asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """w_bar <- d w_bar + (1 - d) w after every optimiser step, d = min(decay, (1 + n) / (10 + n)) at step n.

    The smaller d of the first steps keeps the untrained weights from lingering.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def share(self, step: int) -> float:
        """1 - d at optimiser step `step` (from 0): what its weights count in the average."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def take_in(self, model: nn.Module, share: Tensor | float) -> None:
        """Move the average towards the model's weights by a share; one on a GPU lies there as well."""
        for name, value in model.state_dict().items():
            average = self.weights[name]
            average.lerp_(value, share) if value.is_floating_point() else average.copy_(value)

    def load(self, weights: dict[str, Tensor]) -> None:
        for name, value in weights.items():
            self.weights[name].copy_(value)

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """The model with the average for its weights, and with its own again afterwards."""
        own = {name: value.detach().clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.weights)
        yield
        model.load_state_dict(own)
