"""The optimiser of an experiment, and its learning rate.

AdamW (tab:baseline-arch), or Muon for the matrices and AdamW for the rest. Muon replaces the update
of a matrix by the nearest orthogonal one (K. Jordan and others, *Muon: An optimizer for hidden
layers in neural networks*, 2024), scaled to the size of AdamW's updates (J. Liu and others, *Muon
is Scalable for LLM Training*, arXiv 2502.16982): the rates of an experiment are those of both.

The learning rate follows from the step alone. `two-phase` is that of the cylinder (tab:cf-hparams):
constant over the first half of training, then linear to 0.1x. `cosine` and `step` are those of the
public benchmarks (tab:courant-training).
"""

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from courant.experiment import TrainingConfig

FINAL_FACTOR = 0.1
NARROWEST = 8
"""Inputs and outputs that a hidden layer has at least: others read coordinates or give a field"""


def learning_rate(training: TrainingConfig, step: int, steps_per_epoch: int) -> float:
    """Return the rate of optimiser step `step` (from 0) of a training run."""
    progress = step / (training.epochs * steps_per_epoch)
    if training.schedule == "step":
        factor = training.step_factor ** (step // (training.step_epochs * steps_per_epoch))
    elif training.schedule == "cosine":
        factor = 0.5 * (1.0 + math.cos(math.pi * progress))
    else:
        factor = 1.0 - (1.0 - FINAL_FACTOR) * max(0.0, 2.0 * progress - 1.0)
    warmup = min(1.0, (step + 1) / training.warmup_steps) if training.warmup_steps else 1.0
    return training.learning_rate * warmup * factor


class StackedMuon(Muon):
    """Muon with the updates of equal shapes computed in one stack.

    Its steps are, but for rounding, those of torch's own with Nesterov's momentum and the rates of
    `adjust_lr_fn="match_rms_adamw"`, 0.2 sqrt(max(m, n)) times the group's for an m x n matrix.
    The rate may be a tensor on the weights' device, for which a step never waits.
    """

    found_inf: Tensor | None = None
    """A tensor () on the device that is one where this step is left out, as GradScaler sets it"""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step with the gradients that are there."""
        for group in self.param_groups:
            stacks: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    if not self.state[weight]:
                        self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
                    stacks[wide(weight).shape].append(weight)
            for weights in stacks.values():
                self._step(weights, group)

    def _step(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Update weights whose wide forms have one shape."""
        averages = [self.state[weight]["momentum_buffer"] for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        rate = group["lr"]
        taken: Tensor | float = 1.0
        if self.found_inf is not None:
            # In place of a gradient that is not finite, the average itself: it stays as it is.
            left_out, taken = self.found_inf.bool(), 1 - self.found_inf
            pairs = zip(averages, gradients, strict=True)
            gradients = [torch.where(left_out, *pair) for pair in pairs]
        torch._foreach_lerp_(averages, gradients, 1.0 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, averages, group["momentum"])
        updates = orthogonal(
            torch.stack([wide(each) for each in ahead]),
            group["ns_coefficients"],
            group["ns_steps"],
            group["eps"],
        ).to(weights[0].dtype)
        updates = updates * (-0.2 * math.sqrt(max(weights[0].shape)) * rate * taken)
        torch._foreach_mul_(weights, 1.0 - rate * taken * group["weight_decay"])
        torch._foreach_add_([wide(weight) for weight in weights], list(updates.unbind()))


def wide(matrix: Tensor) -> Tensor:
    """Return the matrix, transposed if it is taller than wide."""
    return matrix.mT if matrix.shape[-2] > matrix.shape[-1] else matrix


def precision_on(device: torch.device) -> torch.dtype:
    """Return bfloat16, but float32 on a CPU without AVX-512, which imitates it 20 times slower."""
    imitated = device.type == "cpu" and "AVX512" not in torch.backends.cpu.get_cpu_capability()
    return torch.float32 if imitated else torch.bfloat16


def orthogonal(
    matrices: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Return matrices (n, rows, columns) with all singular values near 1, in `precision_on`.

    Rows are at most as many as columns. Each step of Newton and Schulz's iteration takes a matrix X
    to a X + b S X + c S S X with S = X X^T. With Muon's coefficients the values end between 0.7 and
    1.2, which is as good for training as 1 (K. Jordan and others, 2024).
    """
    a, b, c = coefficients
    X = matrices.to(precision_on(matrices.device))
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), X, beta=a)
    return X


class MuonWithAdamW(Optimizer):
    """Muon for the weights of hidden linear layers, AdamW for all other parameters.

    Both work on this optimiser's groups and state, which are thus saved and loaded as one's own.
    """

    found_inf: Tensor | None = None
    """A tensor () on the device that is one where a step is left out; AdamW heeds it if `fused`"""

    def __init__(
        self, model: nn.Module, *, lr: float | Tensor, weight_decay: float, **options: Any
    ) -> None:
        matrices, others = hidden_matrices(model)
        rates: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
        # One of the two may have nothing to train, for which torch allows no optimiser.
        self._parts: list[Optimizer] = [StackedMuon(matrices, **rates)] if matrices else []
        if others:
            self._parts.append(AdamW(others, **rates, **options))
        super().__init__([group for part in self._parts for group in part.param_groups], options)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step of both, with the gradients that are there."""
        for part, group in zip(self._parts, self.param_groups, strict=True):
            # Loading replaces groups and state, so the parts are given them at each step.
            part.param_groups, part.state = [group], self.state
            part.found_inf = self.found_inf  # type: ignore[attr-defined]
            part.step()


def hidden_matrices(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the weights of the model's hidden linear layers, and its other parameters."""
    layers = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
    hidden = {id(each.weight) for each in layers if min(each.weight.shape) >= NARROWEST}
    parts: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for parameter in model.parameters():
        parts[id(parameter) not in hidden].append(parameter)
    return parts


def make_optimiser(
    model: nn.Module, training: TrainingConfig, *, fused: bool | None = None, graphs: bool = False
) -> Optimizer:
    """Build the experiment's optimiser; fused, as on a GPU, with the rate on the device.

    `graphs` says that its steps are replayed from CUDA graphs.
    """
    device = next(model.parameters()).device
    fused = device.type == "cuda" if fused is None else fused
    rate = training.learning_rate
    options: dict[str, Any] = {
        "lr": torch.tensor(rate, device=device) if fused else rate,
        "weight_decay": training.weight_decay,
        "fused": fused,
        "capturable": fused and graphs,
    }
    if training.optimiser == "muon":
        return MuonWithAdamW(model, **options)
    return AdamW(model.parameters(), **options)
