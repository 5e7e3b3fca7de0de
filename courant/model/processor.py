"""Advance the latent in time by a NeuralODE."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from courant.model.attention import FeedForward, SelfAttentionBlock
from courant.model.config import FIXED_STEP_SOLVERS, CourantConfig

#: Hidden width of the MLP right-hand side over `width`. It gives the MLP the attention's number of
#: parameters to within 1 %, so that the ablation compares structures and not sizes.
_MLP_MULTIPLE = 4


class Processor(nn.Module):
    """dZ/dtau = f(Z), outputs one unit of tau apart.    (Eq. ode)

    f is what a pre-norm block adds to its input: with h = 1 an Euler step is then an ordinary
    residual block, applied T times with the same weights. Were the block's own "Z +" part of f, Z
    would grow like (1 + h)^T.
    """

    def __init__(self, config: CourantConfig) -> None:
        super().__init__()
        self.config = config
        self.right_hand_side: SelfAttentionBlock | FeedForward
        if config.processor == "attention":
            self.right_hand_side = SelfAttentionBlock(config)
        else:
            self.right_hand_side = FeedForward(config.width, _MLP_MULTIPLE * config.width)

    def derivative(self, Z: Tensor) -> Tensor:
        """f(Z), (B, L, d) -> (B, L, d)."""
        return self._function()(Z)

    def _function(self) -> Callable[[Tensor], Tensor]:
        block = self.right_hand_side
        if isinstance(block, FeedForward):
            return block
        weights = block.fused_weights()
        return lambda Z: block.increment(Z, weights)

    def forward(self, Z: Tensor, num_steps: int) -> Tensor:
        """Z(0) (B, L, d) -> Z(1), ..., Z(T): (B, T, L, d)."""
        if num_steps < 1:
            raise ValueError(f"num_steps must be at least 1, got {num_steps}")
        f, config = self._function(), self.config
        if config.solver == "euler":
            states = []
            for _ in range(num_steps):
                for _ in range(config.num_substeps):
                    Z = Z + config.step_size * f(Z)
                states.append(Z)
            return torch.stack(states, dim=1)
        try:
            from torchdiffeq import odeint  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError(
                f'the solver "{config.solver}" needs the package torchdiffeq (pip install'
                ' torchdiffeq); "euler" does not'
            ) from error
        fixed = config.solver in FIXED_STEP_SOLVERS
        solved = odeint(
            lambda _, Z: f(Z),
            Z,
            torch.arange(num_steps + 1, device=Z.device, dtype=Z.dtype),
            method=config.solver,
            rtol=config.solver_tolerance,
            atol=config.solver_tolerance,
            options={"step_size": config.step_size} if fixed else {},
        )
        return solved[1:].transpose(0, 1)
