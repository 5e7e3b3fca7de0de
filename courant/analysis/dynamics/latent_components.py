"""Project the latents of a rollout on their principal components.

The components are those of the d features of single anchors' latents, over all anchors and the
steps within the training horizon; the whole rollout is projected on them. Latents are advanced in
place, so an anchor keeps its number over time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from courant.analysis.dynamics.frequencies import Spectrum

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
