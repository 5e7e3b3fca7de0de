"""Take snapshots apart into linear modes: POD (energy) and DMD (frequency and growth).

Snapshots are (T, M, C), equally spaced in time. Inner products are weighted by the cells' volumes
and divided by the total volume, as everywhere in this package.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
    scaled, roots = _scaled(snapshots - mean, volumes)
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
    scaled, roots = _scaled(snapshots, volumes)
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


def _scaled(snapshots: np.ndarray, volumes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return snapshots (T, M C) times the roots of the volume shares, and these roots (M C,)."""
    roots = np.repeat(np.sqrt(volumes / volumes.sum()), snapshots.shape[-1])
    return snapshots.reshape(len(snapshots), -1) * roots, roots


def _rank(values: np.ndarray, shape: tuple[int, ...]) -> int:
    """Return how many singular values are more than rounding."""
    if not len(values):
        return 0
    limit = values[0] * max(shape) * float(np.finfo(values.dtype).eps)
    return max(1, int((values > limit).sum()))
