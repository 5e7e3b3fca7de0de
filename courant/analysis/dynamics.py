"""Frequencies and modes of series, states and latent systems, as functions of arrays.

Spectra are Welch's as in the paper (Appendix vortex-shedding-section): Hann window, half overlap,
each segment without its mean, N_seg = min(N / 2, 64) samples. Its bins are f_s / N_seg wide: at one
sample in 10 s and 90 samples, 0.0022 Hz. `simgen`'s `peak_frequency` (a zero-padded periodogram,
refined by a parabola) is finer.

A scalogram follows the frequency of a series in time, by a complex Morlet wavelet:

    W(t, f) = inverse FFT of 2 exp(-(s w - w0)^2 / 2) FFT(x)(w) over w > 0,    s = w0 / (2 pi f)

w0 = 6 in radians: the wavelet is about one period wide at either side of its middle. (The paper
has 6 cycles; its code base's usual omega_0 is in radians, and with 6 cycles a record of 40
snapshots of 10 s would be shorter than the wavelet at the shedding frequency.) With this scale |W|
is the amplitude of a tone, whatever its frequency, so that the largest |W| is at the tone. The 64
frequencies are logarithmic in [max(f_s / T, f_ref / 8), min(0.45 f_s, 4 f_ref)], as the paper
prints. (Its text has one octave below to two above; the bounds reach three octaves below.)
The series is taken without its mean, and padded with zeros to a power of two of at least twice its
length, so that its end does not leak into its beginning.

POD (energy) and DMD (frequency and growth) take snapshots (T, M, C), equally spaced in time, apart
into linear modes. Inner products are weighted by the cells' volumes over the total volume.

A latent system dZ/dtau = f(Z) has a spectrum at each state, and so has its solver's step:

    J = df/dZ, (n, n) with n = L d       eigenvalues lambda
    one Euler step of size h             eigenvalues mu = 1 + h lambda of I + h J
    another scheme of fixed steps        mu = 1 + h lambda + ... to the order of the scheme
    an adaptive solver                   mu = exp(h lambda), as the exact flow

An eigenvalue mu of the step map turns by arg(mu) in a step of h and grows by |mu|: its frequency is
arg(mu) / (2 pi h dt) with dt the seconds in one unit of tau, its growth rate ln|mu| / (h dt). These
are what a rollout does; lambda alone is only for small h. Small systems get all eigenvalues from
the exact Jacobian; large ones the largest of I + h J by Arnoldi iteration on Jacobian-vector
products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.signal import welch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs
from scipy.spatial import cKDTree
from torch import Tensor
from torch.func import jvp, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import one_hot

from simgen.cases.cylinder.shedding import PROBES, peak_frequency

LONGEST_SEGMENT = 64
MIN_SAMPLES = 8
"""Shorter series have no spectrum worth the name"""
PADDING = 16
"""Times that a series is lengthened by zeros: peaks are read between the bins of its own length"""
OMEGA = 6.0
NUM_BINS = 64
BAND = 0.2
"""Drift up to which the frequency counts as locked in"""
PART = 4_000_000
"""Values of the states that are copied at a time"""
CYLINDER = ("radius", "center_x", "center_y")
"""Design parameters that place the wake"""
NEAR_DIAMETERS = 0.5
"""A probe farther than this from every point lies outside the channel"""
NUM_COMPONENTS = 3
STRONGEST_SHOWN, WEAKEST_SHOWN = 7, 3
"""Anchors that the paper's figure shows"""
LEADING = 2
"""POD modes that are compared: a travelling wave is a pair of them"""
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
class Spectrum:
    """Power spectral densities of some series, one-sided."""

    frequencies: np.ndarray
    """(F,) Hz, from 0 on"""
    density: np.ndarray
    """(F, ...) in the series' unit squared per Hz"""

    @property
    def premultiplied(self) -> np.ndarray:
        """f PSD(f), whose area over log f is the variance: (F, ...)."""
        shape = (-1,) + (1,) * (self.density.ndim - 1)
        return self.frequencies.reshape(shape) * self.density

    @property
    def bin_hz(self) -> float:
        """Return the width of a bin: peaks are known to half of it."""
        return float(self.frequencies[1] - self.frequencies[0])

    @property
    def peaks(self) -> np.ndarray:
        """Return the frequency of largest density above zero, of each series: (...) Hz."""
        return self.frequencies[1 + np.argmax(self.density[1:], axis=0)]

    def at(self, frequency: float) -> np.ndarray:
        """Return the density in the bin nearest to a frequency: (...)."""
        return self.density[int(np.argmin(np.abs(self.frequencies - frequency)))]


def spectrum(series: np.ndarray, interval_s: float) -> Spectrum:
    """Estimate the spectra of series (N, ...) with one sample in `interval_s`.

    ValueError for fewer than 8 samples.
    """
    num = len(series)
    if num < MIN_SAMPLES:
        raise ValueError(f"a spectrum needs at least {MIN_SAMPLES} samples, got {num}")
    frequencies, density = welch(
        series,
        fs=1 / interval_s,
        window="hann",
        nperseg=min(num // 2, LONGEST_SEGMENT),
        detrend="constant",
        axis=0,
    )
    return Spectrum(frequencies, density)


def mean_frequency(series: np.ndarray, interval_s: float) -> float:
    """Return the mean over series (T, P) of their dominant frequencies, Hz."""
    centred = series - series.mean(axis=0)
    return float(np.mean([peak_frequency(each, interval_s) for each in centred.T]))


def change_frequency(series: np.ndarray, interval_s: float) -> float:
    """Return the frequency in Hz at which series (N, M) change fastest, of all M together.

    That is the peak of (2 pi f)^2 PSD(f), the spectrum of the rate of change, summed over the
    series; Hann window, mean removed, padded with zeros. A slow drift has most of the power of a
    latent, and little of its change. The paper multiplies by f once, which leaves more of the drift
    (fig. cf_latent_psd). NaN for constant series.
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

    frequencies: np.ndarray
    """(F,) Hz, rising"""
    times: np.ndarray
    """(T,) s from the first sample"""
    magnitude: np.ndarray
    """(F, T) in the series' unit"""

    @property
    def decibels(self) -> np.ndarray:
        """Return 20 log10 of the magnitude over its largest, at least -60: (F, T)."""
        largest = float(self.magnitude.max()) or 1.0
        return 20 * np.log10(np.maximum(self.magnitude / largest, 1e-3))

    @property
    def trusted(self) -> np.ndarray:
        """Where the ends of the record have no influence, sqrt(2) s from both: (F, T) bool."""
        reach = end_reach(self.frequencies)
        from_ends = np.minimum(self.times, self.times[-1] - self.times)
        return from_ends[None] >= reach[:, None]

    @property
    def peaks(self) -> np.ndarray:
        """Return the frequency of largest magnitude at each time, (T,) Hz.

        Between bins a parabola through the logarithms of three magnitudes finds it.
        """
        places = np.argmax(self.magnitude, axis=0)
        inner = np.clip(places, 1, len(self.frequencies) - 2)
        columns = np.arange(len(self.times))
        below, at, above = (
            np.log(self.magnitude[inner + shift, columns] + 1e-300) for shift in (-1, 0, 1)
        )
        curvature = below - 2 * at + above
        shift = np.divide(
            0.5 * (below - above), curvature, out=np.zeros_like(at), where=curvature < 0
        )
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
    wavelets = np.where(
        angular > 0, 2 * np.exp(-0.5 * np.square(scales[:, None] * angular - OMEGA)), 0.0
    )
    magnitude = np.abs(np.fft.ifft(wavelets * transformed, axis=1))[:, :num]
    return Scalogram(frequencies, interval_s * np.arange(num), magnitude)


def drift(frequencies: np.ndarray, reference: float) -> np.ndarray:
    """Return (f - f_ref) / f_ref of each frequency, such as those of peaks over time."""
    return (frequencies - reference) / reference


def lost_at(
    times: np.ndarray, drifts: np.ndarray, reference: float, band: float = BAND
) -> float | None:
    """Return when the frequency leaves the band for at least one period of the reference, s.

    None where it never does. A shorter excursion counts only where it lasts until the end.
    """
    outside = np.abs(drifts) > band
    edges = np.flatnonzero(np.diff(np.concatenate([[False], outside, [False]]).astype(int)))
    for begin, end in edges.reshape(-1, 2).tolist():
        at_end = end == len(times)
        if at_end or times[end] - times[begin] >= 1 / reference:
            return float(times[begin])
    return None


def wake_probes(parameters: Mapping[str, float], points: np.ndarray) -> np.ndarray:
    """Return the numbers of the points nearest to the probes (1D, +-1D) and (3D, 0).

    Probes outside the domain are left out; empty where the parameters are not a cylinder's.
    """
    if not set(CYLINDER) <= set(parameters):
        return np.zeros(0, dtype=int)
    diameter = 2 * parameters["radius"]
    centre = np.array([parameters["center_x"], parameters["center_y"]])
    places = centre + diameter * np.array(PROBES)
    distance, nearest = cKDTree(points[:, :2]).query(places)
    return np.asarray(nearest)[distance < NEAR_DIAMETERS * diameter]


@dataclass(frozen=True)
class Rhythm:
    """What shows the rhythm of a flow, read in the same way from a solution and a prediction."""

    name: str
    read: Callable[[np.ndarray], np.ndarray]
    """(T, N, C) -> (T, P)"""
    usual: float
    """The standard deviation, over the training, of what it reads"""
    places: np.ndarray | None = None
    """(P, d) m of the probes; None where it reads no places"""

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

    These are the transverse velocity at the wake's probes where there is a cylinder, and else the
    coefficient of the solution's leading POD mode, of fields over their standard deviations.
    """
    cells = wake_probes(parameters, points)
    if len(cells) and "velocity.y" in channels:
        column = list(channels).index("velocity.y")
        return Rhythm(
            "wake probes",
            lambda of: of[:, cells, column].astype(float),
            float(std[column]),
            points[cells],
        )
    scale = np.sqrt(volumes / volumes.sum())[:, None] / np.asarray(std)
    mean = states.mean(axis=0, dtype=np.float64)

    def scaled(of: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield parts of the points with their scaled deviations, some millions of values each."""
        size = max(1, PART // (len(of) * of.shape[-1]))
        for start in range(0, of.shape[1], size):
            part = slice(start, start + size)
            yield part, (of[:, part] - mean[part]) * scale[part]

    # The direction (N, C) in which scaled states vary most, from the snapshots' Gram matrix.
    gram = np.zeros((len(states), len(states)))
    for _, deviation in scaled(states):
        flat = deviation.reshape(len(states), -1)
        gram += flat @ flat.T
    leading = np.linalg.eigh(gram)[1][:, -1]
    mode = np.concatenate([np.tensordot(leading, each, 1) for _, each in scaled(states)])
    mode = mode / (np.linalg.norm(mode) or 1.0)

    def coefficient(of: np.ndarray) -> np.ndarray:
        found = np.zeros((len(of), 1))
        for part, deviation in scaled(of):
            found[:, 0] += np.tensordot(deviation, mode[part], 2)
        return found

    return Rhythm("leading POD mode", coefficient, 1.0)


@dataclass(frozen=True)
class Components:
    """Time series of each anchor on the leading components."""

    series: np.ndarray
    """(T, L, K)"""
    directions: np.ndarray
    """(K, d), orthonormal"""
    explained: np.ndarray
    """Share of the variance within the horizon that each explains, (K,)"""


def principal_components(
    latents: np.ndarray, horizon: int, number: int = NUM_COMPONENTS
) -> Components:
    """Fit components to the first `horizon` steps of latents (T, L, d), and project all steps."""
    width = latents.shape[-1]
    fitted = latents[:horizon].reshape(-1, width).astype(np.float64)
    mean = fitted.mean(axis=0)
    _, values, right = np.linalg.svd(fitted - mean, full_matrices=False)
    kept = min(number, len(values))
    power = np.square(values)
    explained = power[:kept] / power.sum() if power.sum() else np.zeros(kept)
    return Components((latents - mean) @ right[:kept].T, right[:kept], explained)


def shown_anchors(found: Spectrum, reference: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the anchors of most and of least power at a frequency, of spectra (F, L)."""
    order = np.argsort(-found.at(reference), kind="stable")
    strongest = order[:STRONGEST_SHOWN]
    return strongest, order[max(len(strongest), len(order) - WEAKEST_SHOWN) :]


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


def compare_modes(
    pods: tuple[Pod, Pod], dmds: tuple[Dmd, Dmd], volumes: np.ndarray
) -> dict[str, Any]:
    """Compare the modes of a solution and of its prediction at cells with volumes (M,).

    Of both, the solution first: `variances`, mean square deviations from the time mean;
    `leading_shares` of the two leading POD modes in them; `frequencies` in Hz and `growth_rates` in
    1/s of the leading oscillating DMD modes. Between them: `pod_correlation` of the planes that the
    POD modes span, the root mean square cosine of the angles between them, 0 (at right angles) to 1
    (the same); `dmd_correlation`, |inner product| of the DMD modes, whatever their phases. None
    where nothing oscillates.
    """
    roots = np.sqrt(volumes / volumes.sum())[:, None]

    def rows(modes: np.ndarray) -> np.ndarray:  # (R, M, C) -> (R, M C) of norm one
        flat = (modes * roots).reshape(len(modes), -1)
        norms = np.linalg.norm(flat, axis=1, keepdims=True)
        return flat / np.where(norms > 0, norms, 1.0)

    true_plane, plane = (rows(each.modes[:LEADING]) for each in pods)
    cosines = np.linalg.svd(true_plane @ plane.T, compute_uv=False)
    leading = [each.leading for each in dmds]
    both = list(zip(dmds, leading, strict=True))
    shapes = [rows(each.modes[[number]])[0] for each, number in both if number is not None]
    return {
        "variances": [each.total for each in pods],
        "leading_shares": [
            float(each.energies[:LEADING].sum()) / each.total if each.total else 0.0
            for each in pods
        ],
        "pod_correlation": float(np.sqrt(np.square(cosines).mean())) if len(cosines) else 0.0,
        "frequencies": [None if n is None else float(each.frequencies[n]) for each, n in both],
        "growth_rates": [None if n is None else float(each.growth_rates[n]) for each, n in both],
        "dmd_correlation": float(np.abs(np.vdot(*shapes))) if len(shapes) == 2 else None,
    }


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
        frequency, values = float(self.frequencies[number]), (self.derivative, self.step)
        derivative, step = ([float(each[number].real), float(each[number].imag)] for each in values)
        return {
            "derivative": derivative,
            "step": step,
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

    `solver` is the scheme that integrates it with `step_size`.
    """
    exact = state.numel() <= exact_up_to
    if exact:
        values = np.linalg.eigvals(exact_jacobian(derivative, state))
    else:
        values = (_largest_of_step(derivative, state, step_size, number) - 1) / step_size
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
