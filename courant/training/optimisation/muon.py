"""Take the steps of torch's Muon for all matrices of one shape at once.

A model has dozens of small hidden matrices, and torch's Muon works through them one by one: on a
CPU, much of its time is the start of products that are too small to fill a core. Stacks of them
need half to three quarters of it (docs/training.md), and far less on a CPU that has to imitate
bfloat16.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Muon


class StackedMuon(Muon):
    """Muon with the updates of equal shapes computed in one stack.

    Its groups, its state and, but for rounding, its steps are those of torch's own with Nesterov's
    momentum and `adjust_lr_fn="match_rms_adamw"`, which gives a matrix of m x n the rate
    0.2 sqrt(max(m, n)) times that of its group. The rate may be a tensor on the weights' device;
    a step never waits for that device.
    """

    found_inf: Tensor | None = None
    """A tensor () on the device that is one where this step is left out, as GradScaler sets it"""

    def __init__(
        self, matrices: Iterable[Tensor], *, lr: float | Tensor, weight_decay: float
    ) -> None:
        # Torch's other options are not offered: `step` has these two.
        super().__init__(
            matrices,
            lr=lr,  # type: ignore[arg-type]  # torch checks a tensor's size itself
            weight_decay=weight_decay,
            nesterov=True,
            adjust_lr_fn="match_rms_adamw",
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step with the gradients that are there."""
        for group in self.param_groups:
            stacks: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    stacks[wide(weight).shape].append(weight)
            for weights in stacks.values():
                self._step(weights, group)

    def _step(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Update weights whose wide forms have one shape."""
        averages = [self._average(weight) for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        rate = group["lr"]
        taken: Tensor | float = 1.0
        if self.found_inf is not None:
            # In place of a gradient that is not finite, the average itself: it stays as it is.
            left_out, taken = self.found_inf.bool(), 1 - self.found_inf
            gradients = [
                torch.where(left_out, *pair) for pair in zip(averages, gradients, strict=True)
            ]
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

    def _average(self, weight: Tensor) -> Tensor:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        return state["momentum_buffer"]


def wide(matrix: Tensor) -> Tensor:
    """The matrix, or its transpose if it is taller than wide."""
    return matrix.mT if matrix.shape[-2] > matrix.shape[-1] else matrix


def precision_on(device: torch.device) -> torch.dtype:
    """Return the type of the products: bfloat16, but float32 on a CPU without AVX-512.

    Such a CPU only imitates bfloat16, which takes some 20 times as long as float32.
    """
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
