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

__all__ = ["Spectrum", "lock_in_errors", "peak_frequency", "spectrum"]


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


def lock_in_errors(found: np.ndarray, reference: float) -> np.ndarray:
    """Return |f - f_ref| / f_ref of each frequency."""
    return np.abs(found - reference) / reference
