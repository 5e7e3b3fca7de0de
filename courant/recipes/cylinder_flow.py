"""Define the training runs of the cylinder: the published one and smaller ones for a laptop.

Their sources are the paper's tables of learning tasks (tab:dataset-details), of the baseline's
architecture (tab:baseline-arch) and of the cylinder's hyperparameters (tab:cf-hparams).

Open in the paper and chosen here: windows begin at every snapshot from 100 s on (the ramp and the
first wash-out are over), and an epoch draws 12,600 of them: 90 of each of 140 training
trajectories, whose 900 s after that time have 90 prediction steps.
"""

from typing import Any

from courant.experiment import Experiment, TrainingConfig, TransientData
from courant.model import presets
from courant.recipes.variants import LEGIBLE, PLACED, Recipe


def cylinder_flow() -> Experiment:
    """Return Courant (baseline) of tab:cf-hparams."""
    return Experiment(
        name="cylinder-flow",
        family="cylinder-flow",
        model=presets.cylinder_flow(),
        data=TransientData(
            fields=("velocity",), window_steps=10, step_s=10.0, start_s=100.0, stride_s=1.0
        ),
        training=TrainingConfig(
            epochs=500,
            batch_size=100,
            samples_per_epoch=12_600,
            learning_rate=3e-4,
            validate_every=5,
            checkpoint_every=10,
        ),
    )


# Encoder and loss see 512 random points of each mesh per sample, a new draw every time. The channel
# is symmetric in y = 0, so each design's mirror image trains as well: it doubles the geometries.
# Small batches learn most from a given number of samples: after 5,760 of them batches of 8 have a
# validation NMAE of 0.226, batches of 16 of 0.236 (with AdamW). Muon learns more in the same time
# (docs/accuracy.md).
_SMALL: dict[str, Any] = {
    "data": {"points_per_sample": 512, "queries_per_sample": 512, "mirror_y": True},
    "training": {
        "optimiser": "muon",
        "epochs": 100,
        "batch_size": 8,
        "samples_per_epoch": 720,
        "learning_rate": 1e-3,
        "warmup_steps": 100,
        "checkpoint_every": 2,
    },
}
# A model soon memorises 17 training cases: mirror images and small shifts of a sample's coordinates
# keep it from recognising the cases by them. A narrower model, half the anchors and points, a high
# rate and a cosine schedule over the affordable epochs learn most in this time, as do learned
# anchors and a deeper decoder; the error on unseen designs is lowest at the end (docs/accuracy.md).
_DEMO: dict[str, Any] = {
    "model": {"num_anchors": 32, "width": 96},
    "data": {"stride_s": 2.0, "shift": 0.1, "points_per_sample": 256, "queries_per_sample": 256},
    "training": {
        "epochs": 30,
        "samples_per_epoch": 320,
        "learning_rate": 2e-3,
        "schedule": "cosine",
        "warmup_steps": 40,
        "validate_every": 2,
        "validation_windows": 16,
    },
}
# Its error on the test designs is 0.080 (docs/accuracy.md).
_LONGER: dict[str, Any] = {
    "data": {"stride_s": 1.0, "shift": 0.0},
    "training": {
        "optimiser": "adamw",
        "epochs": 90,
        "samples_per_epoch": 640,
        "warmup_steps": 100,
        "validate_every": 5,
        "checkpoint_every": 5,
        "validation_windows": 64,
    },
}
_PRESSURE: dict[str, Any] = {
    "model": {"num_outputs": 3, "num_features": 19},
    "data": {"fields": ("velocity", "kinematic_pressure")},
}

RECIPES = {
    "cylinder-flow": Recipe(
        "The paper's baseline on 200 trajectories of 1000 s, for an A100", cylinder_flow
    ),
    "cylinder-flow-small": Recipe(
        "The paper's model on 96 trial designs: under an hour on two CPU cores",
        "cylinder-flow",
        [_SMALL],
    ),
    "cylinder-flow-demo": Recipe(
        "A first model from 24 short, coarse designs: some three minutes on two CPU cores",
        "cylinder-flow-small",
        [_DEMO, PLACED, {"model": {"decoder_depth": 2}}],
    ),
    "cylinder-flow-legible-small": Recipe(
        "A smaller model with learned anchors and narrow windows: 20 core-minutes on 96 designs",
        "cylinder-flow-small",
        [_DEMO, LEGIBLE, _LONGER],
    ),
    "cylinder-flow-all-fields": Recipe(
        "The paper's model with pressure beside velocity: what drag and lift need",
        "cylinder-flow",
        [_PRESSURE],
    ),
    "cylinder-flow-all-fields-small": Recipe(
        "All fields, from 96 trial designs: under an hour on two CPU cores",
        "cylinder-flow-small",
        [_PRESSURE],
    ),
    "cylinder-flow-all-fields-demo": Recipe(
        "All fields, from 24 short, coarse designs: some minutes on two CPU cores",
        "cylinder-flow-demo",
        [_PRESSURE],
    ),
}
