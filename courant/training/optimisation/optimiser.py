"""Build the optimiser of an experiment: AdamW, or Muon for the matrices and AdamW for the rest.

Muon replaces the update of a matrix by the nearest orthogonal one, so that every direction of it
moves as far as any other (K. Jordan and others, *Muon: An optimizer for hidden layers in neural
networks*, 2024). Its rate is scaled to the size of AdamW's updates (J. Liu and others, *Muon is
Scalable for LLM Training*, arXiv 2502.16982): the rates of an experiment are those of both.
The paper trains with AdamW (tab:baseline-arch).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from courant.experiment import TrainingConfig
from courant.training.optimisation.muon import StackedMuon

NARROWEST = 8
"""Inputs and outputs that a linear layer has at least if Muon trains it: layers that read a few
coordinates or give a field's components are no hidden ones. A layer that reads eight features or
more is taken for one, in Courant (keys and values of its encoder) as in the baselines
"""


class MuonWithAdamW(Optimizer):
    """Muon for the weights of hidden linear layers, AdamW for all other parameters.

    Both work on this optimiser's groups and state, which are thus saved and loaded as one's own.
    `fused` and `capturable` are those of AdamW.
    """

    found_inf: Tensor | None = None
    """A tensor () on the device that is one where a step is left out; AdamW heeds it if `fused`"""

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float | Tensor,
        weight_decay: float,
        fused: bool = False,
        capturable: bool = False,
    ) -> None:
        matrices, others = hidden_matrices(model)
        # One of the two may have nothing to train, for which torch allows no optimiser.
        self._parts: list[Optimizer] = []
        if matrices:
            self._parts.append(StackedMuon(matrices, lr=lr, weight_decay=weight_decay))
        if others:
            self._parts.append(
                AdamW(others, lr=lr, weight_decay=weight_decay, fused=fused, capturable=capturable)
            )
        groups = [group for part in self._parts for group in part.param_groups]
        super().__init__(groups, {"fused": fused})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step of both, with the gradients that are there."""
        for part, group in zip(self._parts, self.param_groups, strict=True):
            # Loading replaces groups and state, so the parts are given them at each step.
            part.param_groups, part.state = [group], self.state
            part.found_inf = self.found_inf  # type: ignore[attr-defined]
            part.step()


def hidden_matrices(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the weights of the model's hidden linear layers, and its other parameters."""
    hidden = {
        id(layer.weight)
        for layer in model.modules()
        if isinstance(layer, nn.Linear) and min(layer.weight.shape) >= NARROWEST
    }
    parts: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for parameter in model.parameters():
        parts[id(parameter) not in hidden].append(parameter)
    return parts


def make_optimiser(model: nn.Module, training: TrainingConfig) -> Optimizer:
    """Build the experiment's optimiser in the form that suits the device of the model's weights."""
    if next(model.parameters()).device.type == "cuda":
        return fused_optimiser(model, training)
    return _optimiser(model, training, training.learning_rate)


def fused_optimiser(model: nn.Module, training: TrainingConfig) -> Optimizer:
    """Build it with AdamW in one kernel and the learning rate on the device."""
    rate = torch.tensor(training.learning_rate, device=next(model.parameters()).device)
    return _optimiser(model, training, rate, fused=True, capturable=training.cuda_graphs)


def _optimiser(
    model: nn.Module,
    training: TrainingConfig,
    rate: float | Tensor,
    *,
    fused: bool = False,
    capturable: bool = False,
) -> Optimizer:
    decay = training.weight_decay
    if training.optimiser == "muon":
        return MuonWithAdamW(model, lr=rate, weight_decay=decay, fused=fused, capturable=capturable)
    return AdamW(
        model.parameters(), lr=rate, weight_decay=decay, fused=fused, capturable=capturable
    )
