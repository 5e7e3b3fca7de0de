"""Compute the spectrum of a latent system dZ/dtau = f(Z) at a state, and of the solver's step.

    J = df/dZ, (n, n) with n = L d       eigenvalues lambda
    one Euler step of size h             eigenvalues mu = 1 + h lambda of I + h J
    another scheme of fixed steps        mu = 1 + h lambda + ... to the order of the scheme
    an adaptive solver                   mu = exp(h lambda), as the exact flow

An eigenvalue mu of the step map turns by arg(mu) in a step of h and grows by |mu|: its frequency is
arg(mu) / (2 pi h dt) with dt the seconds in one unit of tau, its growth rate ln|mu| / (h dt). These
are what a rollout does; lambda alone says it only for small h. Small systems get all eigenvalues
from the exact Jacobian; large ones the largest of I + h J by Arnoldi iteration on Jacobian-vector
products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs
from torch import Tensor
from torch.func import jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import one_hot

EXACT_UP_TO = 8192
"""Numbers in a state up to which the whole Jacobian is computed; 8,192 take 0.5 GiB and minutes"""
ROWS = 256
"""Of the Jacobian that are computed at once"""
NUM_LEADING = 32
"""Eigenvalues that are computed of larger systems"""

VECTORS = 3
"""Vectors of the iteration for each eigenvalue: with scipy's two, products grow by a third"""

ORDERS = {"euler": 1, "midpoint": 2, "heun2": 2, "heun3": 3, "rk4": 4}
"""Of the solvers with a fixed step; one step of such a solver is a Taylor series to this order"""
MAX_RESTARTS = 100
"""Restarts of the iteration; eigenvalues that have not converged by then are left out"""

Derivative = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class StepSpectrum:
    """Eigenvalues at one state, the largest |mu| first."""

    derivative: np.ndarray
    """lambda of J: (n,) or the leading ones, complex"""
    step: np.ndarray
    """mu of the solver's step, in the same order"""
    step_size: float
    """h, in units of tau"""
    unit_s: float
    """Seconds in one unit of tau"""
    exact: bool
    """Whether these are all eigenvalues"""

    @property
    def frequencies(self) -> np.ndarray:
        """Return arg(mu) / (2 pi h dt), Hz; negative for the conjugate of a pair."""
        return np.angle(self.step) / (2 * np.pi * self.step_size * self.unit_s)

    @property
    def growth_rates(self) -> np.ndarray:
        """Return ln|mu| / (h dt), 1/s."""
        return np.log(np.maximum(np.abs(self.step), 1e-300)) / (self.step_size * self.unit_s)

    @property
    def oscillatory(self) -> int | None:
        """Return the number of the oscillating mode that lasts longest; None where none swings."""
        turning = np.flatnonzero(np.imag(self.step) > 1e-9 * np.abs(self.step))
        return int(turning[0]) if len(turning) else None

    def nearest(self, frequency: float) -> int | None:
        """Return the number of the oscillating mode nearest to a frequency in Hz; None for none."""
        turning = np.flatnonzero(np.imag(self.step) > 1e-9 * np.abs(self.step))
        if not len(turning):
            return None
        return int(turning[np.argmin(np.abs(self.frequencies[turning] - frequency))])


def spectrum_at(
    derivative: Derivative,
    state: Tensor,
    step_size: float,
    unit_s: float,
    *,
    solver: str = "euler",
    exact_up_to: int = EXACT_UP_TO,
    number: int = NUM_LEADING,
) -> StepSpectrum:
    """Return the eigenvalues at a state (L, d), of a `derivative` (L, d) -> (L, d).

    `solver` is the scheme that integrates it with `step_size`.
    """
    exact = state.numel() <= exact_up_to
    if exact:
        values = np.linalg.eigvals(exact_jacobian(derivative, state))
    else:
        values = (_leading(derivative, state, step_size, number) - 1) / step_size
    steps = _multipliers(step_size * values, solver)
    # The largest first; of a conjugate pair, whose magnitudes differ by rounding, the one that
    # turns forwards.
    order = np.lexsort((-steps.imag, -np.round(np.abs(steps), 9)))
    return StepSpectrum(values[order], steps[order], step_size, unit_s, exact)


def _multipliers(products: np.ndarray, solver: str) -> np.ndarray:
    """Return mu of the eigenvalues h lambda (n,): the scheme's stability polynomial, or exp."""
    if solver not in ORDERS:
        return np.asarray(np.exp(products))
    powers = range(ORDERS[solver] + 1)
    return np.asarray(sum(products**power / math.factorial(power) for power in powers))


def exact_jacobian(derivative: Derivative, state: Tensor) -> np.ndarray:
    """Return J, (n, n), n = L d, by reverse differentiation in parts."""
    size = state.numel()

    def flat(values: Tensor) -> Tensor:
        return derivative(values.view_as(state)).reshape(-1)

    # Rows are written in place: jacrev would hold its parts and the whole, five times as much.
    found = np.empty((size, size))
    # The other attention kernels have no batched derivatives.
    with sdpa_kernel(SDPBackend.MATH):
        pull = vjp(flat, state.detach().reshape(-1))[1]
        for start in range(0, size, ROWS):
            rows = torch.arange(start, min(start + ROWS, size), device=state.device)
            basis = one_hot(rows, size).to(state.dtype)
            found[start : start + ROWS] = vmap(pull)(basis)[0].detach().cpu().numpy()
    return found


def _leading(derivative: Derivative, state: Tensor, step_size: float, number: int) -> np.ndarray:
    """Return the largest eigenvalues of I + h J, by Arnoldi iteration."""
    size, at = state.numel(), state.detach()

    def advance(vector: np.ndarray) -> np.ndarray:
        tangent = torch.as_tensor(vector.reshape(tuple(at.shape)), dtype=at.dtype, device=at.device)
        with sdpa_kernel(SDPBackend.MATH):
            pushed = jvp(derivative, (at,), (tangent,))[1]
        return vector.ravel() + step_size * pushed.detach().cpu().numpy().ravel()

    operator = LinearOperator((size, size), matvec=advance, dtype=np.float64)
    generator = np.random.default_rng(0)
    wanted = min(number, size - 2)
    try:
        return np.asarray(
            eigs(
                operator,
                k=wanted,
                which="LM",
                ncv=min(size, VECTORS * wanted),
                v0=generator.normal(size=size),
                return_eigenvectors=False,
                tol=1e-5,
                maxiter=MAX_RESTARTS,
            )
        )
    except ArpackNoConvergence as error:
        return np.asarray(error.eigenvalues)
