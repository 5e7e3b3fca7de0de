"""Define the training runs of the cylinder: the published one and smaller ones for a laptop.

Their sources are the paper's tables of learning tasks (tab:dataset-details), of the baseline's
architecture (tab:baseline-arch) and of the cylinder's hyperparameters (tab:cf-hparams). The
docstrings say what it leaves open and what is chosen here.
"""

from __future__ import annotations

from courant.data_config import TransientData
from courant.experiment import Experiment, TrainingConfig
from courant.model import presets
from courant.recipes.variants import legible


def cylinder_flow() -> Experiment:
    """The paper's baseline on 200 trajectories of 1000 s, for an A100.

    Courant (baseline) of the table of the cylinder's hyperparameters (tab:cf-hparams).
    Open in the paper and chosen here: windows begin at every snapshot from 100 s on (the ramp and
    the first wash-out are over), and an epoch draws 12,600 of them: 90 of each of 140 training
    trajectories, whose 900 s after that time have 90 prediction steps.
    """
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


def cylinder_flow_small() -> Experiment:
    """The paper's model on 96 trial designs: under an hour on two CPU cores.

    Encoder and loss see 512 random points of each mesh per sample, a new draw every time. The
    channel is symmetric in y = 0, so each design's mirror image trains as well: it doubles the
    geometries. Small batches learn most from a given number of samples: after 5,760 of them batches
    of 8 have a validation NMAE of 0.226, batches of 16 of 0.236 (with AdamW). Muon learns more in
    the same time (docs/training.md).
    """
    return Experiment(
        name="cylinder-flow-small",
        family="cylinder-flow",
        model=presets.cylinder_flow(),
        data=TransientData(
            fields=("velocity",),
            step_s=10.0,
            start_s=100.0,
            stride_s=1.0,
            points_per_sample=512,
            queries_per_sample=512,
            mirror_y=True,
        ),
        training=TrainingConfig(
            optimiser="muon",
            epochs=100,
            batch_size=8,
            samples_per_epoch=720,
            learning_rate=1e-3,
            warmup_steps=100,
            validate_every=5,
            checkpoint_every=2,
        ),
    )


def cylinder_flow_demo() -> Experiment:
    """A first model from 24 short, coarse designs: some three minutes on two CPU cores.

    A model soon memorises some 17 training cases: mirror images and small shifts of each sample's
    coordinates keep it from recognising the cases by their coordinates. A narrower model, half the
    anchors and points, a high rate and a cosine schedule over the affordable epochs learn most in
    this time; the error on unseen designs is lowest at the end (docs/training.md has the
    comparison).
    """
    return cylinder_flow_small().derive(
        name="cylinder-flow-demo",
        model={"num_anchors": 32, "width": 96},
        data={"stride_s": 2.0, "shift": 0.1, "points_per_sample": 256, "queries_per_sample": 256},
        training={
            "epochs": 30,
            "samples_per_epoch": 320,
            "learning_rate": 2e-3,
            "schedule": "cosine",
            "warmup_steps": 40,
            "validate_every": 2,
            "validation_windows": 16,
        },
    )


def cylinder_flow_legible_small() -> Experiment:
    """A smaller model with learned anchors and narrow windows: 20 core-minutes on 96 designs.

    Each of its anchors speaks for its own surroundings (docs/analysis.md); its error on the test
    designs is 0.080 (docs/training.md).
    """
    return legible(cylinder_flow_demo()).derive(
        name="cylinder-flow-legible-small",
        data={"stride_s": 1.0, "shift": 0.0},
        training={
            "optimiser": "adamw",
            "epochs": 90,
            "samples_per_epoch": 640,
            "warmup_steps": 100,
            "validate_every": 5,
            "checkpoint_every": 5,
            "validation_windows": 64,
        },
    )


def cylinder_flow_all_fields() -> Experiment:
    """The paper's model with pressure beside velocity: what drag and lift need."""
    return _with_pressure(cylinder_flow(), "cylinder-flow-all-fields")


def cylinder_flow_all_fields_small() -> Experiment:
    """All fields, from 96 trial designs: under an hour on two CPU cores."""
    return _with_pressure(cylinder_flow_small(), "cylinder-flow-all-fields-small")


def cylinder_flow_all_fields_demo() -> Experiment:
    """All fields, from 24 short, coarse designs: a first model in some minutes on two CPU cores."""
    return _with_pressure(cylinder_flow_demo(), "cylinder-flow-all-fields-demo")


def _with_pressure(experiment: Experiment, name: str) -> Experiment:
    model = experiment.model
    return experiment.derive(
        name=name,
        model={"num_outputs": model.num_outputs + 1, "num_features": model.num_features + 1},
        data={"fields": ("velocity", "kinematic_pressure")},
    )
