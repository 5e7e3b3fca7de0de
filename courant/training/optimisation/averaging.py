"""Keep an exponential moving average of the weights, to be validated and stored.

It takes the place of the last step's weights.

Not `torch.optim.swa_utils.AveragedModel`: it counts its own updates and hands that count to the
averaging function. Here the share depends on the run's step, in which a skipped batch counts, and
on a GPU it is a tensor that a captured CUDA graph reads. Its state would also contain `module.` and
a counter, which checkpoints of older runs do not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """Average w_bar <- d w_bar + (1 - d) w after every optimiser step.

    At step n, d = min(decay, (1 + n) / (10 + n)): the smaller d of the first steps keeps the
    untrained weights from lingering.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def share(self, step: int) -> float:
        """Return 1 - d at optimiser step `step` (from 0): the weights' share in the average."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def take_in(self, model: nn.Module, share: Tensor | float) -> None:
        """Move the average towards the model's weights by a share.

        A share on a GPU is a tensor there.
        """
        for name, value in model.state_dict().items():
            average = self.weights[name]
            average.lerp_(value, share) if value.is_floating_point() else average.copy_(value)

    def load(self, weights: dict[str, Tensor]) -> None:
        for name, value in weights.items():
            self.weights[name].copy_(value)

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """Use the average as the model's weights, and restore its own afterwards."""
        own = {name: value.detach().clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.weights)
        yield
        model.load_state_dict(own)
