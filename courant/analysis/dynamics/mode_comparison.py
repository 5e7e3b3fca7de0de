"""Put the POD and DMD modes of a solution and of its prediction side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from courant.analysis.dynamics.modes import Dmd, Pod

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
        leading = [_leading(each) for each in dmds]
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


def _leading(found: Dmd) -> int | None:
    """Return the number of the oscillating mode of largest amplitude, which comes first."""
    swings = np.flatnonzero(found.frequencies > 0)
    return int(swings[0]) if len(swings) else None


def _share(found: Pod) -> float:
    return float(found.energies[:LEADING].sum()) / found.total if found.total else 0.0


def _scaled(modes: np.ndarray, volumes: np.ndarray) -> np.ndarray:
    """Return modes (R, M, C) times the roots of the volume shares, as rows of norm one."""
    flat = (modes * np.sqrt(volumes / volumes.sum())[:, None]).reshape(len(modes), -1)
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    return flat / np.where(norms > 0, norms, 1.0)


def _plane_correlation(first: np.ndarray, second: np.ndarray, volumes: np.ndarray) -> float:
    inner = _scaled(first, volumes) @ _scaled(second, volumes).T
    cosines = np.linalg.svd(inner, compute_uv=False)
    return float(np.sqrt(np.square(cosines).mean())) if len(cosines) else 0.0


def _correlation(first: np.ndarray, second: np.ndarray, volumes: np.ndarray) -> float:
    one, other = (_scaled(each[None], volumes)[0] for each in (first, second))
    return float(np.abs(np.vdot(one, other)))


def _known(value: object) -> object:
    if isinstance(value, tuple):
        return [_known(each) for each in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
