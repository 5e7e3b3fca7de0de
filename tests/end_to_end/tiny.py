"""The demo's recipe, cut down to seconds: a narrow model, windows of two steps of two seconds."""

from __future__ import annotations

from courant.experiment import Experiment
from courant.recipes import get_recipe


def tiny_recipe(epochs: int) -> Experiment:
    return get_recipe("cylinder-flow-demo").derive(
        name="tiny",
        model={"num_anchors": 8, "width": 32, "num_heads": 2, "num_levels": 1},
        data={
            "start_s": 2.0,
            "stride_s": 1.0,
            "step_s": 2.0,
            "window_steps": 2,
            "points_per_sample": 64,
            "queries_per_sample": 64,
        },
        training={
            "epochs": epochs,
            "batch_size": 2,
            "samples_per_epoch": 8,
            "warmup_steps": 0,
            "validation_windows": 2,
        },
    )
