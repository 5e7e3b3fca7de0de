"""Measure the frequencies of series, at probes and in latents.

Estimate frequencies of time series: Welch's method as in the paper, and a sharper peak.

Paper: Appendix vortex-shedding-section. Hann window, half overlap, each segment without its mean,
N_seg = min(N / 2, 64) samples. Its bins are f_s / N_seg wide: at one sample in 10 s and 90 samples,
0.0022 Hz. `simgen`'s `peak_frequency` (a zero-padded periodogram, refined by a parabola) is finer
and stands beside it.

Follow the frequency of a series in time by a complex Morlet wavelet.

    W(t, f) = inverse FFT of 2 exp(-(s w - w0)^2 / 2) FFT(x)(w) over w > 0,    s = w0 / (2 pi f)

w0 = 6 in radians: the wavelet is about one period wide at either side of its middle. (The paper
says 6 cycles; its code base's usual omega_0 is in radians, and with 6 cycles a record of 40
snapshots of 10 s would be shorter than the wavelet at the shedding frequency.) With this scale |W|
is the amplitude of a tone, whatever its frequency, so that the largest |W| is at the tone.

The 64 frequencies are logarithmic in [max(f_s / T, f_ref / 8), min(0.45 f_s, 4 f_ref)]: these are
the paper's bounds. Its text says one octave below to two above the reference; the bounds reach
three octaves below. The bounds are taken, since a rollout that slides down leaves one octave soon.

The series is taken without its mean, and padded with zeros to a power of two of at least twice its
length, so that its end does not leak into its beginning.

Read the rhythm of a flow: at probes in a cylinder's wake, elsewhere from its leading mode.

Project the latents of a rollout on their principal components.

The components are those of the d features of single anchors' latents, over all anchors and the
steps within the training horizon; the whole rollout is projected on them. Latents are advanced in
place, so an anchor keeps its number over time.

Read the rhythm of a stored case: what swings in its solution, and how fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import welch
from scipy.spatial import cKDTree

from courant.prediction.surrogate import Surrogate
from courant.problems.transient import read_states, time_tolerance
from simgen.store.read import StoredCase
from simgen.wake import PROBES, peak_frequency

LONGEST_SEGMENT = 64
MIN_SAMPLES = 8
"""Shorter series have no spectrum worth the name"""

PADDING = 16
"""Times that a series is lengthened by zeros: peaks are read between the bins of its own length"""

__all__ = ["Spectrum", "change_frequency", "lock_in_errors", "peak_frequency", "spectrum"]


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


def change_frequency(series: np.ndarray, interval_s: float) -> float:
    """Return the frequency in Hz at which series (N, M) change fastest, of all M together.

    That is the peak of (2 pi f)^2 PSD(f), the spectrum of the rate of change, summed over the
    series; Hann window, mean removed, padded with zeros. A slow drift has most of the power of a
    latent, and little of its change. The paper multiplies by f once, which leaves more of the drift
    (fig. cf_latent_psd). NaN for series that stand still.
    """
    deviation = series - series.mean(axis=0)
    if not deviation.any():
        return float("nan")
    tapered = np.hanning(len(series))[:, None] * deviation
    length = PADDING * len(series)
    frequencies = np.fft.rfftfreq(length, interval_s)
    power = np.square(np.abs(np.fft.rfft(tapered, length, axis=0))).sum(axis=1)
    return float(frequencies[_peak_below(power, int(np.argmax(power * frequencies**2)))])


def _peak_below(power: np.ndarray, found: int) -> int:
    """Return the peak of a power on whose upper flank a bin lies; the bin, where none is near.

    The factor of f^2 moves a peak upwards, and the wide peaks of a short record by several percent.
    """
    for number in range(found, max(1, found - PADDING), -1):
        if power[number - 1] < power[number]:
            return number
    return found


def lock_in_errors(found: np.ndarray, reference: float) -> np.ndarray:
    """Return |f - f_ref| / f_ref of each frequency."""
    return np.abs(found - reference) / reference


OMEGA = 6.0
NUM_BINS = 64
BAND = 0.2
"""Drift up to which the frequency counts as locked in"""


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
        """Tell where the ends of the record have no say, sqrt(2) s from both: (F, T) bool."""
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
    """Return the lowest and the highest frequency in Hz; ValueError where none is between them."""
    rate = 1 / interval_s
    low, high = max(rate / num, reference / 8), min(0.45 * rate, 4 * reference)
    if not 0 < low < high:
        raise ValueError(
            f"{num} samples, one in {interval_s:g} s, resolve no frequency around {reference:g} Hz"
        )
    return low, high


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


def drift(peaks: np.ndarray, reference: float) -> np.ndarray:
    """Return (f_peak(t) - f_ref) / f_ref: (T,)."""
    return (peaks - reference) / reference


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


PART = 4_000_000
"""Values of the states that are copied at a time"""

CYLINDER = ("radius", "center_x", "center_y")
"""Design parameters that say where the wake is"""
NEAR_DIAMETERS = 0.5
"""A probe farther than this from every point lies outside the channel"""


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
    mode = _leading_mode(states, mean, scale)

    def coefficient(of: np.ndarray) -> np.ndarray:
        found = np.zeros((len(of), 1))
        for part in _parts(of):
            found[:, 0] += np.tensordot((of[:, part] - mean[part]) * scale[part], mode[part], 2)
        return found

    return Rhythm("leading POD mode", coefficient, 1.0)


def _leading_mode(states: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the direction (N, C), of norm one, in which scaled states (T, N, C) vary most.

    From the snapshots' Gram matrix, so that only a part of the points is copied at a time.
    """
    gram = np.zeros((len(states), len(states)))
    for part in _parts(states):
        deviation = ((states[:, part] - mean[part]) * scale[part]).reshape(len(states), -1)
        gram += deviation @ deviation.T
    leading = np.linalg.eigh(gram)[1][:, -1]
    mode = np.concatenate(
        [
            np.tensordot(leading, (states[:, part] - mean[part]) * scale[part], 1)
            for part in _parts(states)
        ]
    )
    norm = np.linalg.norm(mode)
    return mode / norm if norm else mode


def _parts(states: np.ndarray) -> Iterator[slice]:
    """Yield parts of the points of (T, N, C), of some millions of values each."""
    size = max(1, PART // (len(states) * states.shape[-1]))
    for start in range(0, states.shape[1], size):
        yield slice(start, start + size)


NUM_COMPONENTS = 3
STRONGEST, WEAKEST = 7, 3
"""Anchors that the paper's figure shows"""


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
    strongest = order[:STRONGEST]
    return strongest, order[max(len(strongest), len(order) - WEAKEST) :]


STEADY = 0.05
"""A rhythm weaker than this share of the training's standard deviation counts as none"""


@dataclass(frozen=True)
class CaseRhythm:
    """The F snapshots of a solution from some time on, and the frequency at which they swing."""

    times: np.ndarray
    """(F,) s"""
    states: np.ndarray
    """(F, N, C)"""
    volumes: np.ndarray
    """(N,), ones where the dataset has none"""
    rhythm: Rhythm
    series: np.ndarray
    """What the rhythm is read from, (F, P)"""
    frequency: float
    """Hz, from all these snapshots"""

    def frames(self, wanted: np.ndarray) -> np.ndarray:
        """Return the numbers of the snapshots nearest to times (T,) in s."""
        return np.asarray(np.abs(self.times[None] - wanted[:, None]).argmin(axis=1))


def read_rhythm(surrogate: Surrogate, case: StoredCase, start: float) -> CaseRhythm | None:
    """Return the rhythm of a case from `start` s on; None for a flow that stands still."""
    assert case.time is not None
    late = np.flatnonzero(case.time >= start - time_tolerance(case.time))
    if len(late) < 2:
        return None
    states = read_states(case, surrogate.normaliser.channels, slice(int(late[0]), None))
    std = np.asarray(surrogate.normaliser.std, np.float32)
    volumes = case.volumes if case.dataset.schema.volumes else np.ones(case.num_points)
    rhythm = reference_rhythm(
        states, surrogate.channels, std, case.points, volumes, case.parameters
    )
    series = rhythm.read(states)
    if rhythm.strength(series) <= STEADY:
        return None
    times = np.asarray(case.time[late])
    frequency = mean_frequency(series, float(np.diff(times).mean()))
    return CaseRhythm(times, states, volumes, rhythm, series, frequency)


def mean_frequency(series: np.ndarray, interval_s: float) -> float:
    """Return the mean over series (T, P) of their dominant frequencies, Hz."""
    centred = series - series.mean(axis=0)
    return float(np.mean([peak_frequency(each, interval_s) for each in centred.T]))
