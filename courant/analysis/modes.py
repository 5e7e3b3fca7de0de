"""Find the modes of states, and the eigenvalues of the processor.

Take snapshots apart into linear modes: POD (energy) and DMD (frequency and growth).

Snapshots are (T, M, C), equally spaced in time. Inner products are weighted by the cells' volumes
and divided by the total volume, as everywhere in this package.

Put the POD and DMD modes of a solution and of its prediction side by side.

Compute the spectrum of a latent system dZ/dtau = f(Z) at a state, and of the solver's step.

    J = df/dZ, (n, n) with n = L d       eigenvalues lambda
    one Euler step of size h             eigenvalues mu = 1 + h lambda of I + h J
    another scheme of fixed steps        mu = 1 + h lambda + ... to the order of the scheme
    an adaptive solver                   mu = exp(h lambda), as the exact flow

An eigenvalue mu of the step map turns by arg(mu) in a step of h and grows by |mu|: its frequency is
arg(mu) / (2 pi h dt) with dt the seconds in one unit of tau, its growth rate ln|mu| / (h dt). These
are what a rollout does; lambda alone says it only for small h. Small systems get all eigenvalues
from the exact Jacobian; large ones the largest of I + h J by Arnoldi iteration on Jacobian-vector
products.

Compute the eigenvalues of a model's processor at states of a case's rollout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs
from torch import Tensor
from torch.func import jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import one_hot

from courant.analysis.frequencies import read_rhythm
from courant.field_model import Evolves
from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.read import StoredCase


@dataclass(frozen=True)
class Pod:
    """u(x, t) = mean(x) + sum_r a_r(t) phi_r(x), the modes orthonormal, the strongest first."""

    mean: np.ndarray
    """(M, C)"""
    modes: np.ndarray
    """phi_r: (R, M, C)"""
    coefficients: np.ndarray
    """a_r: (T, R)"""
    energies: np.ndarray
    """mean over time of a_r^2, (R,)"""
    total: float
    """The variance of the snapshots: the energies of all modes, kept or not"""

    def fields(self, values: np.ndarray, volumes: np.ndarray) -> np.ndarray:
        """Return a_r phi_r, (R, M, C), of a field (M, C): its projection on each mode."""
        shares = (volumes / volumes.sum())[:, None]
        deviation = shares * (values - self.mean)
        coefficients = np.tensordot(self.modes, deviation, axes=((1, 2), (0, 1)))
        return coefficients[:, None, None] * self.modes


@dataclass(frozen=True)
class Dmd:
    """u(x, t) = sum_r b_r exp(s_r t) psi_r(x), the largest amplitudes first."""

    eigenvalues: np.ndarray
    """mu_r over one interval: (R,) complex"""
    frequencies: np.ndarray
    """arg(mu_r) / (2 pi dt): (R,) Hz, negative for the conjugate of a pair"""
    growth_rates: np.ndarray
    """ln|mu_r| / dt: (R,) 1/s"""
    modes: np.ndarray
    """psi_r: (R, M, C) complex, of norm one"""
    amplitudes: np.ndarray
    """|b_r|: (R,)"""

    def leading_frequency(self) -> float:
        """Return the frequency of the oscillating mode of largest amplitude, Hz; NaN for none."""
        swings = self.frequencies > 0
        return float(self.frequencies[swings][0]) if swings.any() else float("nan")


def pod(snapshots: np.ndarray, volumes: np.ndarray, rank: int | None = None) -> Pod:
    """Decompose snapshots (T, M, C) about their mean into at most `rank` modes."""
    mean = snapshots.mean(axis=0)
    scaled, roots = _weighted(snapshots - mean, volumes)
    left, values, right = np.linalg.svd(scaled, full_matrices=False)
    kept = min(_rank(values, scaled.shape), len(values) if rank is None else rank)
    modes = (right[:kept] / roots).reshape(kept, *mean.shape)
    coefficients = left[:, :kept] * values[:kept]
    energies = values**2 / len(snapshots)
    return Pod(mean, modes, coefficients, energies[:kept], float(energies.sum()))


def dmd(snapshots: np.ndarray, volumes: np.ndarray, interval_s: float, rank: int) -> Dmd:
    """Fit u(t + dt) = A u(t) to snapshots (T, M, C), `interval_s` apart, and return A's modes.

    This is exact DMD (Tu et al. 2014) on the first `rank` directions of the snapshots. Steady
    parts are modes of eigenvalue one, so no mean is taken off. ValueError for fewer than three
    snapshots.
    """
    if len(snapshots) < 3:
        raise ValueError(f"DMD needs at least 3 snapshots, got {len(snapshots)}")
    scaled, roots = _weighted(snapshots, volumes)
    before, after = scaled[:-1].T, scaled[1:].T
    left, values, right = np.linalg.svd(before, full_matrices=False)
    kept = min(rank, _rank(values, before.shape))
    left, values, right = left[:, :kept], values[:kept], right[:kept]
    shifted = after @ right.T / values
    eigenvalues, vectors = np.linalg.eig(left.T @ shifted)
    modes = shifted @ vectors
    modes = modes / np.maximum(np.linalg.norm(modes, axis=0), 1e-300)
    amplitudes = np.abs(np.linalg.lstsq(modes, before[:, 0].astype(complex), rcond=None)[0])
    order = np.argsort(-amplitudes, kind="stable")
    logarithms = np.log(np.where(eigenvalues == 0, 1e-300, eigenvalues).astype(complex))[order]
    return Dmd(
        eigenvalues=eigenvalues[order],
        frequencies=logarithms.imag / (2 * np.pi * interval_s),
        growth_rates=logarithms.real / interval_s,
        modes=(modes[:, order].T / roots).reshape(kept, *snapshots.shape[1:]),
        amplitudes=amplitudes[order],
    )


def _weighted(snapshots: np.ndarray, volumes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return snapshots (T, M C) times the roots of the volume shares, and these roots (M C,)."""
    roots = np.repeat(np.sqrt(volumes / volumes.sum()), snapshots.shape[-1])
    return snapshots.reshape(len(snapshots), -1) * roots, roots


def _rank(values: np.ndarray, shape: tuple[int, ...]) -> int:
    """Return how many singular values are more than rounding."""
    if not len(values):
        return 0
    limit = values[0] * max(shape) * float(np.finfo(values.dtype).eps)
    return max(1, int((values > limit).sum()))


LEADING = 2
"""POD modes that are compared: a travelling wave is a pair of them"""


@dataclass(frozen=True)
class ModeComparison:
    """Of both, the solution first."""

    variances: tuple[float, float]
    """Mean square deviation from the time mean, in standard deviations of the training squared"""
    leading_shares: tuple[float, float]
    """Of the two leading POD modes, in the variance"""
    pod_correlation: float
    """Of the planes that these modes span: the root mean square cosine of the angles between them,
    0 (at right angles) to 1 (the same)
    """
    frequencies: tuple[float, float]
    """Of the leading oscillating DMD mode, Hz; NaN where nothing swings"""
    growth_rates: tuple[float, float]
    """Of the same mode, 1/s"""
    dmd_correlation: float
    """|inner product| of the two leading DMD modes, whatever their phases: 0 to 1, NaN for none"""

    @classmethod
    def of(
        cls, pods: tuple[Pod, Pod], dmds: tuple[Dmd, Dmd], volumes: np.ndarray
    ) -> ModeComparison:
        """Compare modes at cells with these volumes (M,)."""
        leading = [_largest_swing(each) for each in dmds]
        known = None not in leading
        modes = [
            None if number is None else each.modes[number]
            for each, number in zip(dmds, leading, strict=True)
        ]
        nan = float("nan")
        frequencies, growth = (
            tuple(
                nan if number is None else float(getattr(each, name)[number])
                for each, number in zip(dmds, leading, strict=True)
            )
            for name in ("frequencies", "growth_rates")
        )
        return cls(
            (pods[0].total, pods[1].total),
            (_share(pods[0]), _share(pods[1])),
            _plane_correlation(pods[0].modes[:LEADING], pods[1].modes[:LEADING], volumes),
            (frequencies[0], frequencies[1]),
            (growth[0], growth[1]),
            _correlation(np.asarray(modes[0]), np.asarray(modes[1]), volumes) if known else nan,
        )

    def to_json(self) -> dict[str, object]:
        return {name: _known(value) for name, value in vars(self).items()}


def _largest_swing(found: Dmd) -> int | None:
    """Return the number of the oscillating mode of largest amplitude, which comes first."""
    swings = np.flatnonzero(found.frequencies > 0)
    return int(swings[0]) if len(swings) else None


def _share(found: Pod) -> float:
    return float(found.energies[:LEADING].sum()) / found.total if found.total else 0.0


def _of_norm_one(modes: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """Return modes (R, M, C) times the roots of the volume shares, as rows of norm one."""
    flat = (modes * np.sqrt(volumes / volumes.sum())[:, None]).reshape(len(modes), -1)
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    return flat / np.where(norms > 0, norms, 1.0)


def _plane_correlation(first: np.ndarray, second: np.ndarray, volumes: np.ndarray) -> float:
    inner = _of_norm_one(first, volumes) @ _of_norm_one(second, volumes).T
    cosines = np.linalg.svd(inner, compute_uv=False)
    return float(np.sqrt(np.square(cosines).mean())) if len(cosines) else 0.0


def _correlation(first: np.ndarray, second: np.ndarray, volumes: np.ndarray) -> float:
    one, other = (_of_norm_one(each[None], volumes)[0] for each in (first, second))
    return float(np.abs(np.vdot(one, other)))


def _known(value: object) -> object:
    if isinstance(value, tuple):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


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
        values = (_largest_of_step(derivative, state, step_size, number) - 1) / step_size
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


def _largest_of_step(
    derivative: Derivative, state: Tensor, step_size: float, number: int
) -> np.ndarray:
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


Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StateSpectrum:
    """The eigenvalues at one state of a rollout."""

    step: int
    """0 is the state that was encoded"""
    time_s: float
    """From the start of the rollout"""
    spectrum: StepSpectrum

    def to_json(self, reference_hz: float | None) -> dict[str, Any]:
        """Return the pair that lasts longest, and the one nearest to the flow's frequency."""
        nearest = None if reference_hz is None else self.spectrum.nearest(reference_hz)
        return {
            "step": self.step,
            "time_s": self.time_s,
            "exact": self.spectrum.exact,
            "eigenvalues": len(self.spectrum.step),
            "longest": self._pair(self.spectrum.oscillatory, reference_hz),
            "nearest": self._pair(nearest, reference_hz),
        }

    def _pair(self, number: int | None, reference_hz: float | None) -> dict[str, Any] | None:
        if number is None:
            return None
        found, frequency = self.spectrum, float(self.spectrum.frequencies[number])
        return {
            "derivative": _parts(found.derivative[number]),
            "step": _parts(found.step[number]),
            "modulus": float(np.abs(found.step[number])),
            "frequency_hz": frequency,
            "growth_rate_per_s": float(found.growth_rates[number]),
            "over_reference": None if reference_hz is None else frequency / reference_hz,
        }


@dataclass(frozen=True)
class CaseSpectra:
    """The eigenvalues along the rollout of a case."""

    case: str
    reference_hz: float | None
    """Of the solution; None where it stands still"""
    states: tuple[StateSpectrum, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "reference_hz": self.reference_hz,
            "states": [each.to_json(self.reference_hz) for each in self.states],
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return lambda and mu of every state, the largest |mu| first."""
        found: dict[str, np.ndarray] = {
            "step": np.array([each.step for each in self.states]),
            "time": np.array([each.time_s for each in self.states]),
        }
        for each in self.states:
            found[f"derivative_eigenvalues_{each.step}"] = each.spectrum.derivative
            found[f"step_eigenvalues_{each.step}"] = each.spectrum.step
        return found


def case_spectra(
    surrogate: Surrogate,
    case: StoredCase,
    at: Sequence[int] = (),
    *,
    exact_up_to: int = EXACT_UP_TO,
    progress: Progress = lambda done, total: None,
) -> CaseSpectra:
    """Roll a case out, and return the eigenvalues after some steps; none named: after 1 and 10.

    InputError for a steady model, and for one without latents that evolve.
    """
    model, start = surrogate.model, surrogate.problem.start(case)
    if surrogate.step_s is None or start is None or not isinstance(model, Evolves):
        raise InputError(
            f"{surrogate.url}: only a transient model with latents has a processor, this is a"
            f" {surrogate.problem.kind} model of kind {model.config.kind}"
        )
    chosen = sorted(set(at)) or [1, surrogate.problem.num_steps]
    latents = rolled_out(surrogate, model, case, start, max(1, *chosen))
    rhythm = read_rhythm(surrogate, case, start)
    states: list[StateSpectrum] = []
    for step in chosen:
        found = latent_spectrum(model, latents[step], surrogate.step_s, exact_up_to)
        states.append(StateSpectrum(step, step * surrogate.step_s, found))
        progress(len(states), len(chosen))
    return CaseSpectra(case.id, None if rhythm is None else rhythm.frequency, tuple(states))


def rolled_out(
    surrogate: Surrogate, model: Evolves, case: StoredCase, start: float, steps: int
) -> torch.Tensor:
    """Return the latents of a rollout from Z(0) on, (T + 1, L, d), in the model's precision."""
    inputs, _ = surrogate.model_inputs(case, start)
    with torch.no_grad():
        encoded = model.encode(inputs)
        return torch.cat([encoded[:, None], model.rollout(encoded, steps)], dim=1)[0]


def latent_spectrum(
    model: Evolves, state: torch.Tensor, step_s: float, exact_up_to: int
) -> StepSpectrum:
    """Return the eigenvalues at latents (L, d) of a model whose steps take `step_s` seconds."""
    return spectrum_at(
        lambda Z: model.derivative(Z[None])[0],
        state,
        model.inner_step,
        step_s,
        solver=model.inner_solver,
        exact_up_to=exact_up_to,
    )


def _parts(value: complex) -> list[float]:
    return [float(np.real(value)), float(np.imag(value))]
