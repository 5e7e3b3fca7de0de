"""Frequencies and modes of series, states and latent systems, and of rollouts of stored cases.

Spectra are Welch's as in the paper (Appendix vortex-shedding-section): Hann window, half overlap,
each segment without its mean, N_seg = min(N / 2, 64) samples, bins f_s / N_seg wide. `simgen`'s
`peak_frequency` (a zero-padded periodogram, refined by a parabola) is finer.

A scalogram follows the frequency of a series in time, by a complex Morlet wavelet:

    W(t, f) = inverse FFT of 2 exp(-(s w - w0)^2 / 2) FFT(x)(w) over w > 0,    s = w0 / (2 pi f)

w0 = 6 in radians, the usual unit (the paper has 6 cycles, longer than a rollout of 40 steps). With
this scale |W| is the amplitude of a tone, whatever its frequency. The 64 frequencies are
logarithmic in [max(f_s / T, f_ref / 8), min(0.45 f_s, 4 f_ref)], as the paper prints. The series is
taken without its mean, and padded with zeros to a power of two of at least twice its length, so
that its end does not leak into its beginning.

POD (energy) and DMD (frequency and growth) take snapshots (T, M, C), equally spaced in time, apart
into linear modes. Inner products are weighted by the cells' volumes over the total volume.

A latent system dZ/dtau = f(Z) has a spectrum at each state, and so has its solver's step:

    J = df/dZ, (n, n) with n = L d       eigenvalues lambda
    one Euler step of size h             eigenvalues mu = 1 + h lambda of I + h J
    another scheme of fixed steps        mu = 1 + h lambda + ... to the order of the scheme
    an adaptive solver                   mu = exp(h lambda), as the exact flow

An eigenvalue mu of the step map turns by arg(mu) in a step of h and grows by |mu|: its frequency is
arg(mu) / (2 pi h dt) with dt the seconds in one unit of tau, its growth rate ln|mu| / (h dt). These
are what a rollout does; lambda alone is only for small h.

A rollout begins where training windows do and is as long as the case, or as asked, so that most of
it lies beyond the training horizon. Its frequencies are those in the flow, in the latents and of
the processor, beside the solution's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.signal import welch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs
from torch import Tensor
from torch.func import jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import one_hot

from courant.analysis import Progress
from courant.evaluation.metrics import finite_or_none
from courant.field_model import Evolves
from courant.prediction.surrogate import Surrogate
from courant.problems.problem import read_states
from courant.problems.transient import time_tolerance
from simgen.cases.cylinder.shedding import PROBES, peak_frequency
from simgen.point_cloud import point_tree
from simgen.store.read import Dataset, StoredCase

LONGEST_SEGMENT = 64
MIN_SAMPLES = 8  # shorter series have no spectrum worth the name
PADDING = 16  # times that a series is lengthened by zeros, to read peaks between its own bins
OMEGA = 6.0
NUM_BINS = 64
BAND = 0.2  # drift up to which the frequency counts as locked in
CYLINDER = ("radius", "center_x", "center_y")  # design parameters that place the wake
NEAR_DIAMETERS = 0.5  # a probe farther than this from every point lies outside the channel
NUM_COMPONENTS = 3
LEADING = 2  # POD modes that are compared: a travelling wave is a pair of them
EXACT_UP_TO = 8192  # numbers in a state with a whole Jacobian: 0.5 GiB and minutes
ROWS = 256  # of the Jacobian that are computed at once
NUM_LEADING = 32  # eigenvalues that are computed of larger systems
VECTORS = 3  # of the iteration for each eigenvalue: with scipy's two, products grow by a third
MAX_RESTARTS = 100  # of the iteration; eigenvalues that have not converged by then are left out
ORDERS = {"euler": 1, "midpoint": 2, "heun2": 2, "heun3": 3, "rk4": 4}
"""Of the solvers with a fixed step; one step of such a solver is a Taylor series to this order"""
STEPS = 40  # of the paper's long rollouts
MAX_STEPS = 100
DMD_RANK = 12
FEW_NUMBERS = 1024  # in a state, up to which a report computes all eigenvalues: more take minutes
STEADY = 0.05  # a rhythm weaker than this share of the training's standard deviation is none

Derivative = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Spectrum:
    """Power spectral densities of some series, one-sided."""

    frequencies: np.ndarray  # (F,) Hz, from 0 on
    density: np.ndarray  # (F, ...) in the series' unit squared per Hz

    def at(self, frequency: float) -> np.ndarray:
        """Return the density in the bin nearest to a frequency: (...)."""
        return self.density[int(np.argmin(np.abs(self.frequencies - frequency)))]


def spectrum(series: np.ndarray, interval_s: float) -> Spectrum:
    """Estimate the spectra of series (N, ...); ValueError for fewer than 8 samples."""
    num = len(series)
    if num < MIN_SAMPLES:
        raise ValueError(f"a spectrum needs at least {MIN_SAMPLES} samples, got {num}")
    length = min(num // 2, LONGEST_SEGMENT)
    options: Any = {"window": "hann", "nperseg": length, "detrend": "constant", "axis": 0}
    return Spectrum(*welch(series, fs=1 / interval_s, **options))


def mean_frequency(series: np.ndarray, interval_s: float) -> float:
    """Return the mean over series (T, P) of their dominant frequencies, Hz."""
    centred = series - series.mean(axis=0)
    return float(np.mean([peak_frequency(each, interval_s) for each in centred.T]))


def change_frequency(series: np.ndarray, interval_s: float) -> float:
    """Return the frequency in Hz at which series (N, M) change fastest, of all M together.

    That is the peak of (2 pi f)^2 PSD(f), summed over the series, by Hann window and padding. A
    slow drift has most of the power of a latent, and little of its change. NaN for constant series.
    """
    deviation = series - series.mean(axis=0)
    if not deviation.any():
        return float("nan")
    tapered = np.hanning(len(series))[:, None] * deviation
    length = PADDING * len(series)
    frequencies = np.fft.rfftfreq(length, interval_s)
    power = np.square(np.abs(np.fft.rfft(tapered, length, axis=0))).sum(axis=1)
    found = int(np.argmax(power * frequencies**2))
    # The factor of f^2 moves the wide peaks of a short record upwards by several percent: the peak
    # of the power below, if one is near.
    below = range(found, max(1, found - PADDING), -1)
    return float(frequencies[next((n for n in below if power[n - 1] < power[n]), found)])


@dataclass(frozen=True)
class Scalogram:
    """|W(t, f)| of a series."""

    frequencies: np.ndarray  # (F,) Hz, rising
    times: np.ndarray  # (T,) s from the first sample
    magnitude: np.ndarray  # (F, T) in the series' unit

    @property
    def decibels(self) -> np.ndarray:
        """20 log10 of the magnitude over its largest, at least -60: (F, T)."""
        largest = float(self.magnitude.max()) or 1.0
        return 20 * np.log10(np.maximum(self.magnitude / largest, 1e-3))

    @property
    def trusted(self) -> np.ndarray:
        """Where the ends of the record have no influence, sqrt(2) s from both: (F, T) bool."""
        from_ends = np.minimum(self.times, self.times[-1] - self.times)
        return from_ends[None] >= end_reach(self.frequencies)[:, None]

    @property
    def peaks(self) -> np.ndarray:
        """The frequency of largest magnitude at each time, (T,) Hz, by a log-parabola."""
        places = np.argmax(self.magnitude, axis=0)
        inner = np.clip(places, 1, len(self.frequencies) - 2)
        columns = np.arange(len(self.times))
        below, at, above = (
            np.log(self.magnitude[inner + shift, columns] + 1e-300) for shift in (-1, 0, 1)
        )
        curvature, none = below - 2 * at + above, np.zeros_like(at)
        shift = np.divide(0.5 * (below - above), curvature, out=none, where=curvature < 0)
        refined = inner + np.where(places == inner, np.clip(shift, -0.5, 0.5), places - inner)
        ratio = self.frequencies[1] / self.frequencies[0]
        return self.frequencies[0] * ratio**refined


def end_reach(frequencies: np.ndarray | float) -> np.ndarray:
    """Return how far from an end of the record it influences |W| at frequencies in Hz, s."""
    return math.sqrt(2) * OMEGA / (2 * np.pi * np.asarray(frequencies))


def frequency_range(num: int, interval_s: float, reference: float) -> tuple[float, float]:
    """Return the lowest and the highest frequency that samples around a reference resolve, Hz."""
    rate = 1 / interval_s
    return max(rate / num, reference / 8), min(0.45 * rate, 4 * reference)


def scalogram(series: np.ndarray, interval_s: float, reference: float) -> Scalogram:
    """Transform a series (T,) at frequencies around a reference in Hz."""
    num = len(series)
    frequencies = np.geomspace(*frequency_range(num, interval_s, reference), NUM_BINS)
    padded = 1 << (2 * num - 1).bit_length()
    transformed = np.fft.fft(series - series.mean(), padded)
    angular = 2 * np.pi * np.fft.fftfreq(padded, interval_s)
    scales = OMEGA / (2 * np.pi * frequencies)
    bells = 2 * np.exp(-0.5 * np.square(scales[:, None] * angular - OMEGA))
    wavelets = np.where(angular > 0, bells, 0.0)
    magnitude = np.abs(np.fft.ifft(wavelets * transformed, axis=1))[:, :num]
    return Scalogram(frequencies, interval_s * np.arange(num), magnitude)


def lost_at(times: np.ndarray, drifts: np.ndarray, reference: float) -> float | None:
    """Return when the frequency leaves the band for a period of the reference, or until the end.

    In s; None where it never does.
    """
    outside = np.abs(drifts) > BAND
    edges = np.flatnonzero(np.diff(np.concatenate([[False], outside, [False]]).astype(int)))
    for begin, end in edges.reshape(-1, 2).tolist():
        if end == len(times) or times[end] - times[begin] >= 1 / reference:
            return float(times[begin])
    return None


def wake_probes(parameters: Mapping[str, float], points: np.ndarray) -> np.ndarray:
    """Return the points nearest to a cylinder's probes (1D, +-1D) and (3D, 0) in the domain."""
    if not set(CYLINDER) <= set(parameters):
        return np.zeros(0, dtype=int)
    diameter = 2 * parameters["radius"]
    centre = np.array([parameters["center_x"], parameters["center_y"]])
    distance, nearest = point_tree(points[:, :2]).query(centre + diameter * np.array(PROBES))
    return np.asarray(nearest)[distance < NEAR_DIAMETERS * diameter]


@dataclass(frozen=True)
class Rhythm:
    """What shows the rhythm of a flow, read in the same way from a solution and a prediction."""

    name: str
    read: Callable[[np.ndarray], np.ndarray]  # (T, N, C) -> (T, P)
    usual: float  # the standard deviation, over the training, of what it reads
    places: np.ndarray | None = None  # (P, d) m of the probes; None where it reads no places

    def strength(self, series: np.ndarray) -> float:
        """Return the root mean square of series (T, P) about their means, over what is usual."""
        return float(np.sqrt(series.var(axis=0).mean())) / self.usual


def reference_rhythm(
    states: np.ndarray,
    channels: Sequence[str],
    std: np.ndarray,
    points: np.ndarray,
    volumes: np.ndarray,
    parameters: Mapping[str, float],
) -> Rhythm:
    """Return what shows the rhythm of a solution, states (T, N, C) of channels with `std` (C,).

    The transverse velocity at a cylinder's probes, or the leading POD mode of fields over `std`.
    """
    cells = wake_probes(parameters, points)
    if len(cells) and "velocity.y" in channels:
        column = list(channels).index("velocity.y")

        def at_probes(of: np.ndarray) -> np.ndarray:
            return of[:, cells, column].astype(float)

        return Rhythm("wake probes", at_probes, float(std[column]), points[cells])
    # In double precision: a pressure in Pa may swing little about a large value.
    scale = np.asarray(std, np.float64)
    mode = pod(states / scale, volumes, 1)
    return Rhythm("leading POD mode", lambda of: mode.project(of / scale, volumes), 1.0)


@dataclass(frozen=True)
class Components:
    """Time series of each anchor on the leading components."""

    series: np.ndarray  # (T, L, K)
    explained: np.ndarray  # (K,), share of the variance within the horizon


def principal_components(latents: np.ndarray, horizon: int) -> Components:
    """Fit 3 components to the first `horizon` steps of latents (T, L, d), and project all steps."""
    fitted = latents[:horizon].reshape(-1, latents.shape[-1]).astype(np.float64)
    mean = fitted.mean(axis=0)
    _, values, right = np.linalg.svd(fitted - mean, full_matrices=False)
    power = np.square(values)
    explained = power[:NUM_COMPONENTS] / (power.sum() or 1.0)
    return Components((latents - mean) @ right[:NUM_COMPONENTS].T, explained)


@dataclass(frozen=True)
class Pod:
    """u(x, t) = mean(x) + sum_r a_r(t) phi_r(x), the modes orthonormal, the strongest first."""

    mean: np.ndarray  # (M, C)
    modes: np.ndarray  # phi_r: (R, M, C)
    energies: np.ndarray  # mean over time of a_r^2, (R,)
    total: float  # the variance of the snapshots: the energies of all modes, kept or not

    def project(self, values: np.ndarray, volumes: np.ndarray) -> np.ndarray:
        """Return the coefficients a_r (..., R) of fields (..., M, C)."""
        deviation = (volumes / volumes.sum())[:, None] * (values - self.mean)
        return np.tensordot(deviation, self.modes, axes=((-2, -1), (1, 2)))

    def fields(self, values: np.ndarray, volumes: np.ndarray) -> np.ndarray:
        """Return a_r phi_r, (R, M, C), of a field (M, C): its projection on each mode."""
        return self.project(values, volumes)[:, None, None] * self.modes


@dataclass(frozen=True)
class Dmd:
    """u(x, t) = sum_r b_r exp(s_r t) psi_r(x), the largest amplitudes first."""

    eigenvalues: np.ndarray  # mu_r over one interval: (R,) complex
    frequencies: np.ndarray  # arg(mu_r) / (2 pi dt): (R,) Hz, negative for one of each pair
    growth_rates: np.ndarray  # ln|mu_r| / dt: (R,) 1/s
    modes: np.ndarray  # psi_r: (R, M, C) complex, of norm one

    @property
    def leading(self) -> int | None:
        """The number of the oscillating mode of largest amplitude; None where none oscillates."""
        oscillating = np.flatnonzero(self.frequencies > 0)
        return int(oscillating[0]) if len(oscillating) else None

    def leading_frequency(self) -> float:
        """Return the frequency of the leading mode, Hz; NaN for none."""
        return float("nan") if self.leading is None else float(self.frequencies[self.leading])


def pod(snapshots: np.ndarray, volumes: np.ndarray, rank: int | None = None) -> Pod:
    """Decompose snapshots (T, M, C) about their mean into at most `rank` modes."""
    mean = snapshots.mean(axis=0)
    scaled, roots = _weighted(snapshots - mean, volumes)
    _, values, right = np.linalg.svd(scaled, full_matrices=False)
    kept = _rank(values, scaled.shape, rank)
    modes = (right[:kept] / roots).reshape(kept, *mean.shape)
    energies = values**2 / len(snapshots)
    return Pod(mean, modes, energies[:kept], float(energies.sum()))


def dmd(snapshots: np.ndarray, volumes: np.ndarray, interval_s: float, rank: int) -> Dmd:
    """Fit u(t + dt) = A u(t) to snapshots (T, M, C), `interval_s` apart, and return A's modes.

    This is exact DMD (Tu et al. 2014) on the first `rank` directions. Steady parts are modes of
    eigenvalue one, so no mean is taken off. ValueError for fewer than three snapshots.
    """
    if len(snapshots) < 3:
        raise ValueError(f"DMD needs at least 3 snapshots, got {len(snapshots)}")
    scaled, roots = _weighted(snapshots, volumes)
    before, after = scaled[:-1].T, scaled[1:].T
    left, values, right = np.linalg.svd(before, full_matrices=False)
    kept = _rank(values, before.shape, rank)
    shifted = after @ right[:kept].T / values[:kept]
    eigenvalues, vectors = np.linalg.eig(left[:, :kept].T @ shifted)
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
    )


def _weighted(snapshots: np.ndarray, volumes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return snapshots (T, M C) times the roots of the volume shares, and these roots (M C,)."""
    roots = np.repeat(np.sqrt(volumes / volumes.sum()), snapshots.shape[-1])
    return snapshots.reshape(len(snapshots), -1) * roots, roots


def _rank(values: np.ndarray, shape: tuple[int, ...], most: int | None) -> int:
    """Return how many singular values are more than rounding, at least one and at most `most`."""
    limit = values[0] * max(shape) * float(np.finfo(values.dtype).eps)
    found = max(1, int((values > limit).sum()))
    return found if most is None else min(found, most)


def compare_modes(
    pods: tuple[Pod, Pod], dmds: tuple[Dmd, Dmd], volumes: np.ndarray
) -> dict[str, Any]:
    """Compare the modes of a solution and of its prediction at cells with volumes (M,).

    Of both, the solution first: variance about the time mean, the share of the two leading POD
    modes in it, frequency in Hz and growth rate in 1/s of the leading DMD mode. Between them: the
    root mean square cosine of the angles between the planes of these POD modes, and |inner product|
    of the DMD modes. None where nothing oscillates.
    """
    roots = np.sqrt(volumes / volumes.sum())[:, None]

    def rows(modes: np.ndarray) -> np.ndarray:  # (R, M, C) -> (R, M C) of norm one
        flat = (modes * roots).reshape(len(modes), -1)
        norms = np.linalg.norm(flat, axis=1, keepdims=True)
        return flat / np.where(norms > 0, norms, 1.0)

    true_plane, plane = (rows(each.modes[:LEADING]) for each in pods)
    cosines = np.linalg.svd(true_plane @ plane.T, compute_uv=False)
    both = [(each, each.leading) for each in dmds]
    shapes = [rows(each.modes[[number]])[0] for each, number in both if number is not None]
    led = [float(each.energies[:LEADING].sum()) / (each.total or 1.0) for each in pods]
    return {
        "variances": [each.total for each in pods],
        "leading_shares": led,
        "pod_correlation": float(np.sqrt(np.square(cosines).mean())),
        "frequencies": [None if n is None else float(each.frequencies[n]) for each, n in both],
        "growth_rates": [None if n is None else float(each.growth_rates[n]) for each, n in both],
        "dmd_correlation": float(np.abs(np.vdot(*shapes))) if len(shapes) == 2 else None,
    }


@dataclass(frozen=True)
class StepSpectrum:
    """Eigenvalues at one state, the largest |mu| first."""

    derivative: np.ndarray  # lambda of J: (n,) or the leading ones, complex
    step: np.ndarray  # mu of the solver's step, in the same order
    step_size: float  # h, in units of tau
    unit_s: float  # seconds in one unit of tau
    exact: bool  # whether these are all eigenvalues

    @property
    def frequencies(self) -> np.ndarray:
        """arg(mu) / (2 pi h dt), Hz; negative for the conjugate of a pair."""
        return np.angle(self.step) / (2 * np.pi * self.step_size * self.unit_s)

    @property
    def growth_rates(self) -> np.ndarray:
        """ln|mu| / (h dt), 1/s."""
        return np.log(np.maximum(np.abs(self.step), 1e-300)) / (self.step_size * self.unit_s)

    @property
    def oscillating(self) -> np.ndarray:
        """The numbers of the oscillating modes, one of each pair, the longest-lasting first."""
        return np.flatnonzero(np.imag(self.step) > 1e-9 * np.abs(self.step))

    @property
    def longest(self) -> int | None:
        """The number of the oscillating mode that lasts longest; None where none oscillates."""
        return int(self.oscillating[0]) if len(self.oscillating) else None

    def nearest(self, frequency: float | None) -> int | None:
        """Return the number of the oscillating mode nearest to a frequency in Hz; None for none."""
        turning = self.oscillating
        if frequency is None or not len(turning):
            return None
        return int(turning[np.argmin(np.abs(self.frequencies[turning] - frequency))])

    def pair(self, number: int | None, reference_hz: float | None) -> dict[str, Any] | None:
        """Return the numbers of a mode, complex ones as [real, imaginary]; None for none."""
        if number is None:
            return None
        frequency = float(self.frequencies[number])
        derivative, step = complex(self.derivative[number]), complex(self.step[number])
        return {
            "derivative": [derivative.real, derivative.imag],
            "step": [step.real, step.imag],
            "modulus": float(np.abs(self.step[number])),
            "frequency_hz": frequency,
            "growth_rate_per_s": float(self.growth_rates[number]),
            "over_reference": None if reference_hz is None else frequency / reference_hz,
        }


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

    `solver` is the scheme that integrates it with `step_size`. States of up to `exact_up_to`
    numbers get all eigenvalues, from the Jacobian; larger ones the `number` largest of I + h J, by
    Arnoldi iteration on Jacobian-vector products.
    """
    size, at = state.numel(), state.detach()
    exact = size <= exact_up_to

    def advance(vector: np.ndarray) -> np.ndarray:
        tangent = torch.as_tensor(vector.reshape(tuple(at.shape)), dtype=at.dtype, device=at.device)
        with sdpa_kernel(SDPBackend.MATH):
            pushed = jvp(derivative, (at,), (tangent,))[1]
        return vector.ravel() + step_size * pushed.detach().cpu().numpy().ravel()

    if exact:
        values = np.linalg.eigvals(exact_jacobian(derivative, state))
    else:
        operator = LinearOperator((size, size), matvec=advance, dtype=np.float64)
        start, wanted = np.random.default_rng(0).normal(size=size), min(number, size - 2)
        options: Any = {"which": "LM", "ncv": min(size, VECTORS * wanted), "tol": 1e-5}
        options |= {"v0": start, "maxiter": MAX_RESTARTS, "return_eigenvectors": False}
        try:
            largest = eigs(operator, k=wanted, **options)
        except ArpackNoConvergence as error:
            largest = error.eigenvalues
        values = (np.asarray(largest) - 1) / step_size
    products = step_size * values
    if solver in ORDERS:
        powers = range(ORDERS[solver] + 1)
        steps = np.asarray(sum(products**power / math.factorial(power) for power in powers))
    else:
        steps = np.exp(products)
    # The largest first; of a conjugate pair, whose magnitudes differ by rounding, the one that
    # turns forwards.
    order = np.lexsort((-steps.imag, -np.round(np.abs(steps), 9)))
    return StepSpectrum(values[order], steps[order], step_size, unit_s, exact)


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


@dataclass(frozen=True)
class CaseDynamics:
    """A rollout of T steps beside the stored solution, `interval_s` apart."""

    times: np.ndarray  # (T,) s from the rollout's start
    interval_s: float
    horizon: int  # steps that the model was trained on
    reference_hz: float  # the frequency of the solution, from all its snapshots
    series_name: str
    true_series: np.ndarray  # (T, P), at the rollout's times
    predicted_series: np.ndarray  # (T, P)
    modes: tuple[Dmd, Dmd]  # of solution and prediction at the rollout's times
    pods: tuple[Pod, Pod]  # of the same, of as many modes at most
    volumes: np.ndarray  # (N,) of the cells
    probes: np.ndarray | None  # (P, d) m, where the series are read; None for no single places
    model: Evolves
    latents: torch.Tensor  # (T, L, d)

    @cached_property
    def jacobians(self) -> tuple[tuple[float, StepSpectrum], ...]:
        """Time in s and eigenvalues after the first and the last step; they take a while."""
        states = {step * self.interval_s: self.latents[step - 1] for step in (1, len(self.times))}
        return tuple(
            (time, _latent_spectrum(self.model, state, self.interval_s, FEW_NUMBERS))
            for time, state in states.items()
        )

    @cached_property
    def components(self) -> Components:
        """The latents' principal components, fitted on the training's steps."""
        return principal_components(self.latents.cpu().numpy(), self.horizon)

    @cached_property
    def predicted_hz(self) -> float:
        return mean_frequency(self.predicted_series, self.interval_s)

    @cached_property
    def spectra(self) -> tuple[Spectrum, Spectrum]:
        """Welch spectra of solution and prediction, at the rollout's times."""
        true = spectrum(self.true_series, self.interval_s)
        return true, spectrum(self.predicted_series, self.interval_s)

    @cached_property
    def latent_spectra(self) -> Spectrum:
        """Welch spectra of each anchor's first component: (F, L)."""
        return spectrum(self.components.series[..., 0], self.interval_s)

    @cached_property
    def leading_anchor(self) -> int:
        """The anchor with most power at the reference frequency."""
        return int(np.argmax(self.latent_spectra.at(self.reference_hz)))

    @cached_property
    def anchor_hz(self) -> np.ndarray:
        """Where each anchor's first component changes fastest, (L,) Hz; NaN if it is constant."""
        columns = self.components.series[..., 0].T[..., None]
        return np.array([change_frequency(each, self.interval_s) for each in columns])

    @cached_property
    def latent_hz(self) -> float:
        """The frequency at which the components of all anchors together change fastest, Hz."""
        series = self.components.series
        return change_frequency(series.reshape(len(series), -1), self.interval_s)

    @property
    def lock_in(self) -> np.ndarray:
        """The relative error of the frequency of each anchor's first component, (L,)."""
        return np.abs(self.anchor_hz - self.reference_hz) / self.reference_hz

    @cached_property
    def scalogram(self) -> Scalogram:
        """The scalogram of the leading anchor's first component."""
        series = self.components.series[:, self.leading_anchor, 0]
        return scalogram(series, self.interval_s, self.reference_hz)

    @property
    def drift(self) -> np.ndarray:
        """(f - f_ref) / f_ref of the scalogram's peaks, (T,)."""
        return (self.scalogram.peaks - self.reference_hz) / self.reference_hz

    @property
    def lost_s(self) -> float | None:
        """When the leading anchor leaves the reference frequency, s from the start; None: never."""
        return lost_at(self.times, self.drift, self.reference_hz)

    def scores(self) -> dict[str, float]:
        """Return how well the rollout keeps the solution's rhythm."""
        # Times are those after each step: a rollout without the frequency is lost at the first.
        first, last, lost = float(self.times[0]), float(self.times[-1]), self.lost_s
        return {
            "frequency_error": abs(self.predicted_hz - self.reference_hz) / self.reference_hz,
            "locked_in": float((self.lock_in <= BAND).mean()),
            "rhythm_kept": 1.0 if lost is None else (lost - first) / (last - first),
        }

    def record(self, case: str) -> dict[str, Any]:
        """Return the frequencies in Hz and all else that a study lists; None for what is unknown.

        `drift` is that of the leading anchor at the last time on which the end has no influence.
        """
        times, reference = self.times, self.reference_hz
        reach = end_reach(reference)
        inner = self.drift[(times - times[0] >= reach) & (times[-1] - times >= reach)]
        true_dmd, dmd = (each.leading_frequency() for each in self.modes)
        found = {"predicted_hz": self.predicted_hz, "dmd_hz": dmd, "latent_hz": self.latent_hz}
        numbers = {
            "duration_s": float(times[-1]),
            "reference_hz": reference,
            "true_dmd_hz": true_dmd,
            **found,
            **{f"{key}_error": abs(each - reference) / reference for key, each in found.items()},
            "locked_in": self.scores()["locked_in"],
            "drift": inner[-1] if len(inner) else np.nan,
        }
        return {
            "case": case,
            "steps": len(times),
            "series_name": self.series_name,
            **{key: finite_or_none(each) for key, each in numbers.items()},
            "lost_s": self.lost_s,
            "modes": compare_modes(self.pods, self.modes, self.volumes),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the frequencies were found in; eigenvalues are not computed."""
        true, predicted = self.spectra
        found = {
            "time": self.times,
            "reference_frequency": np.array([self.reference_hz]),
            "true_series": self.true_series,
            "predicted_series": self.predicted_series,
            "components": self.components.series,
            "anchor_frequencies": self.anchor_hz,
            "lock_in_error": self.lock_in,
            "scalogram": self.scalogram.magnitude,
            "scalogram_frequencies": self.scalogram.frequencies,
            "peak_frequency": self.scalogram.peaks,
            "drift": self.drift,
            "spectrum_frequencies": true.frequencies,
            "true_spectrum": true.density,
            "predicted_spectrum": predicted.density,
            **({} if self.probes is None else {"probes": self.probes}),
        }
        for name, pod, dmd in zip(("true_", ""), self.pods, self.modes, strict=True):
            found[f"{name}pod_energies"] = pod.energies
            found[f"{name}pod_modes"] = pod.modes[:LEADING]
            found[f"{name}dmd_frequencies"] = dmd.frequencies
            found[f"{name}dmd_growth_rates"] = dmd.growth_rates
        return found


@dataclass(frozen=True)
class CaseRhythm:
    """The F snapshots of a solution from some time on, and their frequency."""

    times: np.ndarray  # (F,) s
    states: np.ndarray  # (F, N, C)
    volumes: np.ndarray  # (N,), ones where the dataset has none
    rhythm: Rhythm
    series: np.ndarray  # what the rhythm is read from, (F, P)
    frequency: float  # Hz, from all these snapshots


def volumes_of(case: StoredCase) -> np.ndarray:
    """Return the volumes of the case's cells (N,), ones where the dataset has none."""
    return case.volumes if case.dataset.schema.volumes else np.ones(case.num_points, np.float32)


def read_rhythm(surrogate: Surrogate, case: StoredCase, start: float) -> CaseRhythm | None:
    """Return the rhythm of a case from `start` s on; None for a steady flow."""
    assert case.time is not None
    late = np.flatnonzero(case.time >= start - time_tolerance(case.time))
    if len(late) < 2:
        return None
    states = read_states(case, surrogate.normaliser.channels, slice(int(late[0]), None))
    std = np.asarray(surrogate.normaliser.std, np.float32)
    volumes = volumes_of(case)
    rhythm = reference_rhythm(
        states, surrogate.channels, std, case.points, volumes, case.parameters
    )
    series = rhythm.read(states)
    if rhythm.strength(series) <= STEADY:
        return None
    times = np.asarray(case.time[late])
    frequency = mean_frequency(series, float(np.diff(times).mean()))
    return CaseRhythm(times, states, volumes, rhythm, series, frequency)


def follow_case(
    surrogate: Surrogate, case: StoredCase, *, steps: int = MAX_STEPS, start_s: float | None = None
) -> CaseDynamics | None:
    """Roll a case out, at most `steps` and to its end; None where there is no rhythm.

    From `start_s`, or from where training windows begin, which may be before vortices are shed.
    A steady model or flow has none, nor a model without latents, nor a case too short to show it.
    """
    step_s, model = surrogate.step_s, surrogate.model
    start = surrogate.problem.start(case, start_s)
    if step_s is None or start is None or case.time is None:
        return None
    steps = min(steps, int((case.time[-1] - start) / step_s + 1e-6))
    if not isinstance(model, Evolves) or steps < MIN_SAMPLES:
        return None
    found = read_rhythm(surrogate, case, start)
    if found is None:
        return None
    low, high = frequency_range(steps, step_s, found.frequency)
    if not low < found.frequency < high:
        return None
    wanted = start + step_s * np.arange(1, steps + 1)
    frames = np.abs(found.times[None] - wanted[:, None]).argmin(axis=1)
    predicted = surrogate.predict_case(case, start_s=start, steps=steps)
    latents = surrogate.rollout_latents(surrogate.prepare_case(case, start, steps))
    std, rank = np.asarray(surrogate.normaliser.std, np.float32), min(DMD_RANK, steps // 2)
    volumes, true, ours = found.volumes, found.states[frames] / std, predicted / std
    return CaseDynamics(
        times=wanted - start,
        interval_s=step_s,
        horizon=min(steps, surrogate.problem.num_steps),
        reference_hz=found.frequency,
        series_name=found.rhythm.name,
        true_series=found.series[frames],
        predicted_series=found.rhythm.read(predicted),
        modes=(dmd(true, volumes, step_s, rank), dmd(ours, volumes, step_s, rank)),
        pods=(pod(true, volumes, rank), pod(ours, volumes, rank)),
        volumes=volumes,
        probes=found.rhythm.places,
        model=model,
        latents=latents[1:],
    )


def study_frequencies(
    surrogate: Surrogate,
    dataset: Dataset,
    cases: Sequence[str],
    steps: int = STEPS,
    progress: Progress = lambda done, total: None,
    keep: Callable[[str, CaseDynamics], None] = lambda case, found: None,
    start_s: float | None = None,
) -> dict[str, Any]:
    """Roll cases out, at most `steps` and to their ends, and find the frequencies of each.

    The study has the records of the `cases`, those `without_rhythm`, and `medians` over the cases.
    `keep` gets each rollout, which is in memory for one case at a time. InputError for a steady
    model, and for one without latents that evolve.
    """
    surrogate.check_evolves()
    found: list[dict[str, Any]] = []
    without: list[str] = []
    for number, case in enumerate(cases, start=1):
        followed = follow_case(surrogate, dataset[case], steps=steps, start_s=start_s)
        if followed is None:
            without.append(case)
        else:
            found.append(followed.record(case))
            keep(case, followed)
        progress(number, len(cases))
    medians = ["predicted_hz_error", "dmd_hz_error", "latent_hz_error", "locked_in"]
    table = pd.DataFrame(found, columns=[*medians, "drift", "lost_s", "duration_s"]).astype(float)
    table["absolute_drift"] = table["drift"].abs()
    table["kept"] = (table["lost_s"] / table["duration_s"]).fillna(1.0)
    of_cases = table[[*medians, "absolute_drift", "kept"]].median()
    return {
        "medians": {key: finite_or_none(value) for key, value in of_cases.items()},
        "never_lost": int(table["lost_s"].isna().sum()),
        "without_rhythm": without,
        "cases": found,
    }


def case_spectra(
    surrogate: Surrogate, case: StoredCase, at: Sequence[int], exact_up_to: int, progress: Progress
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Compute the eigenvalues after some steps of a rollout; none: a training window's ends.

    Returns a record with each state's longest-lasting pair and the one nearest to the flow's
    frequency, and arrays of all lambda and mu, the largest |mu| first. InputError for a steady
    model, and for one without latents that evolve.
    """
    model, start = surrogate.check_evolves(), surrogate.problem.start(case)
    assert surrogate.step_s is not None and start is not None
    chosen = sorted(set(at)) or [1, surrogate.problem.num_steps]
    prepared = surrogate.prepare_case(case, start, max(1, *chosen))
    latents = surrogate.rollout_latents(prepared)
    rhythm, step_s = read_rhythm(surrogate, case, start), surrogate.step_s
    reference = None if rhythm is None else rhythm.frequency
    states: list[dict[str, Any]] = []
    arrays = {"step": np.array(chosen), "time": np.array([step * step_s for step in chosen])}
    for step in chosen:
        found = _latent_spectrum(model, latents[step], step_s, exact_up_to)
        arrays[f"derivative_eigenvalues_{step}"] = found.derivative
        arrays[f"step_eigenvalues_{step}"] = found.step
        states.append(
            {
                "step": step,
                "time_s": step * step_s,
                "exact": found.exact,
                "eigenvalues": len(found.step),
                "longest": found.pair(found.longest, reference),
                "nearest": found.pair(found.nearest(reference), reference),
            }
        )
        progress(len(states), len(chosen))
    return {"case": case.id, "reference_hz": reference, "states": states}, arrays


def _latent_spectrum(
    model: Evolves, state: torch.Tensor, step_s: float, exact_up_to: int
) -> StepSpectrum:
    """Return the eigenvalues at latents (L, d) of a model whose steps take `step_s` seconds."""

    def derivative(Z: torch.Tensor) -> torch.Tensor:
        return model.derivative(Z[None])[0]

    solver, step_size = model.integrator
    return spectrum_at(derivative, state, step_size, step_s, solver=solver, exact_up_to=exact_up_to)
