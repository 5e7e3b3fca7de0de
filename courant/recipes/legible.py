"""Derive runs whose anchors' fields lie where the anchors are.

Learned anchors start far apart among the cells, the same for every seed, and narrow Gaussian
windows in encoder and decoder keep what they read and write near them (docs/analysis.md has the
scores). The paper has both features apart, and wider windows. Recipes keep AdamW, with which the
scores were measured.
"""

from __future__ import annotations

from courant.experiment import Experiment

WINDOW_SCALE = 0.35


def placed_anchors(experiment: Experiment) -> Experiment:
    """Learn the anchors' places, and start them among the cells."""
    return experiment.derive(model={"anchor_kind": "learned"}, data={"anchor_start": "cloud"})


def legible(experiment: Experiment) -> Experiment:
    """Keep what such anchors read and write near them."""
    return placed_anchors(experiment).derive(
        model={"gaussian_window": "both", "window_scale": WINDOW_SCALE}
    )
