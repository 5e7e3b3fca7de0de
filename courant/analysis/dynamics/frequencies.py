"""Estimate frequencies of time series: Welch's method as in the paper, and a sharper peak.

Paper: Appendix vortex-shedding-section. Hann window, half overlap, each segment without its mean,
N_seg = min(N / 2, 64) samples. Its bins are f_s / N_seg wide: at one sample in 10 s and 90 samples,
0.0022 Hz. `simgen`'s `peak_frequency` (a zero-padded periodogram, refined by a parabola) is finer
and stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import welch

from simgen.wake import peak_frequency

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
