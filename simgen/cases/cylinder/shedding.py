"""Measure vortex shedding of a transient cylinder case from wake probes.

The probes are those of the paper's Appendix vortex-shedding-section.
Solved cases are checked by them, and rollouts of models compared with them.
"""

from dataclasses import dataclass

import numpy as np

from simgen.point_cloud import PointCloud, point_tree

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


#: A wake whose transverse fluctuation, relative to the mean speed there, is lower counts as steady.
STEADY_FLUCTUATION = 0.02


@dataclass(frozen=True)
class Shedding:
    """The frequency in Hz (None for a steady wake) and the strength of the fluctuation.

    The strength is the root mean square of u_y relative to the mean speed at the probes; NaN where
    no probe lies in the cloud.
    """

    frequency: float | None
    fluctuation: float


def shedding(
    cloud: PointCloud, *, radius: float, center: tuple[float, float], start: float
) -> Shedding:
    """Find the wake's dominant frequency over the snapshots from time `start` (s) on.

    It is averaged over the probes inside the channel: a Hann-windowed periodogram, zero-padded
    eightfold, its peak refined by a parabola. The paper uses Welch's method on 90 snapshots 10 s
    apart in segments of 45, whose bins are 0.0022 Hz wide; its printed 0.0222 Hz is the tenth of
    them.
    """
    if cloud.time is None:
        raise ValueError("shedding needs a transient case")
    late = cloud.time >= start
    tree = point_tree(cloud.points[:, :2])
    # Cells are at most 1 m wide: a probe farther from every centre lies outside the channel (large
    # cylinders near a wall).
    distance, cells = tree.query(
        [(center[0] + 2 * radius * dx, center[1] + 2 * radius * dy) for dx, dy in PROBES]
    )
    velocity = cloud.fields["velocity"][late][:, cells[distance < 1.0]].astype(float)
    if not velocity.size:
        return Shedding(None, float("nan"))
    transverse = velocity[..., 1] - velocity[..., 1].mean(axis=0)
    fluctuation = float(np.sqrt((transverse**2).mean()) / np.linalg.norm(velocity, axis=-1).mean())
    if fluctuation < STEADY_FLUCTUATION:
        return Shedding(None, fluctuation)
    interval = float(np.diff(cloud.time[late]).mean())
    return Shedding(
        float(np.mean([peak_frequency(series, interval) for series in transverse.T])), fluctuation
    )
