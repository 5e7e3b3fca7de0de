"""Derive runs: smaller ones for a laptop, and ones whose anchors' fields lie where the anchors are.

- `small` and `demo` shrink a published steady run to sizes that two CPU cores train in minutes. The
  optimiser is Muon, not the paper's AdamW: in the same time it reaches a lower error
  (docs/training.md).
- `legible`: learned anchors start far apart among the cells, the same for every seed, and narrow
  Gaussian windows in encoder and decoder keep what they read and write near them
  (docs/analysis.md has the scores). The paper has both features apart, and wider windows. Recipes
  keep AdamW, with which the scores were measured.
"""

from __future__ import annotations

from courant.experiment import Experiment


def small(published: Experiment) -> Experiment:
    return published.derive(
        name=f"{published.name}-small",
        model={"num_anchors": 64},
        data={"points_per_sample": 1024, "queries_per_sample": 1024},
        training={
            "optimiser": "muon",
            "epochs": 60,
            "batch_size": 4,
            "samples_per_epoch": 480,
            "learning_rate": 1e-3,
            "warmup_steps": 100,
            "validate_every": 5,
            "checkpoint_every": 5,
        },
    )


def demo(published: Experiment) -> Experiment:
    return small(published).derive(
        name=f"{published.name}-demo",
        model={"num_anchors": 32},
        data={"points_per_sample": 512, "queries_per_sample": 512},
        training={"epochs": 30, "samples_per_epoch": 160, "warmup_steps": 40, "validate_every": 3},
    )


WINDOW_SCALE = 0.35


def placed_anchors(experiment: Experiment) -> Experiment:
    """Learn the anchors' places, and start them among the cells."""
    return experiment.derive(model={"anchor_kind": "learned"}, data={"anchor_start": "cloud"})


def legible(experiment: Experiment) -> Experiment:
    """Keep what such anchors read and write near them."""
    return placed_anchors(experiment).derive(
        model={"gaussian_window": "both", "window_scale": WINDOW_SCALE}
    )
