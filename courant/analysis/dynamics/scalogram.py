"""Follow the frequency of a series in time by a complex Morlet wavelet.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

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
