"""Define the probes in a wake and how the frequency of a series is read.

Solved cases are checked by them, and rollouts of models compared with them.
"""

from __future__ import annotations

import numpy as np

#: Probe offsets from the cylinder's centre in diameters: (1D, +-1D), (3D, 0).
PROBES = ((1.0, 1.0), (1.0, -1.0), (3.0, 0.0))


def peak_frequency(series: np.ndarray, interval: float) -> float:
    """Return the dominant frequency in Hz of a series (T,) without its mean, `interval` s apart."""
    padded = 8 * len(series)
    power = np.abs(np.fft.rfft(series * np.hanning(len(series)), padded)) ** 2
    peak = int(np.argmax(power[1:-1])) + 1
    below, at, above = np.log(power[peak - 1 : peak + 2] + 1e-300)
    shift = 0.5 * (below - above) / (below - 2 * at + above)
    return (peak + shift) / (padded * interval)
