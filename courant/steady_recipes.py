"""The recipes of the steady families: the published runs (tab:dataset-details, tab:hvac-hparams, tab:pump-hparams) and smaller ones.

What the paper leaves open, and what stands here: the encoder's features are boundary conditions (`courant.data.known`).
"""

from __future__ import annotations

from courant.experiment import SteadyDataConfig, SteadyExperiment, TrainingConfig
from courant.model import presets


def branched_pipe() -> SteadyExperiment:
    """Courant (baseline) of Table tab:hvac-hparams on 300 designs, for an A100-class GPU.

    The encoder reads the boundary cloud with the inlet's velocity profile; u_x and u_z span the plane of the Y.
    """
    return SteadyExperiment(
        name="branched-pipe",
        family="branched-pipe",
        model=presets.branched_pipe(),
        data=SteadyDataConfig(fields=("velocity.x", "velocity.z"), prescribed={"velocity": ("inlet",)}),
        training=TrainingConfig(epochs=1500, batch_size=1, learning_rate=3e-4, validate_every=10, checkpoint_every=10),
    )


def branched_pipe_gwa() -> SteadyExperiment:
    """Courant (with GWA) of Table tab:hvac-hparams: Gaussian windows in encoder and decoder."""
    return branched_pipe().derive(name="branched-pipe-gwa", model={"gaussian_window": "both"})


def branched_pipe_full_mesh() -> SteadyExperiment:
    """Courant (no boundary pc) of Table tab:hvac-hparams: the encoder reads every cell with its distance field."""
    return branched_pipe().derive(
        name="branched-pipe-full-mesh",
        model={"num_features": presets.branched_pipe_full_mesh().num_features},
        data={"encoder": "mesh"},
    )


def branched_pipe_small() -> SteadyExperiment:
    """The paper's model on some 64 trial designs: under an hour on two CPU cores."""
    return _small(branched_pipe())


def branched_pipe_demo() -> SteadyExperiment:
    """A first model from some 24 trial designs: a few minutes on two CPU cores. Eight to train on are too few."""
    return _demo(branched_pipe())


def centrifugal_pump() -> SteadyExperiment:
    """Courant (baseline) of Table tab:pump-hparams on 300 designs, for an A100-class GPU.

    The published count leaves four distance channels, those of one kind of boundary: the nearest solid wall, standing or turning,
    which is what a turbulence model calls the wall distance. The impeller turns, so its speed omega x r is a boundary condition as
    the inlet's velocity is.
    """
    return SteadyExperiment(
        name="centrifugal-pump",
        family="centrifugal-pump",
        model=presets.centrifugal_pump(),
        data=SteadyDataConfig(
            fields=("velocity", "kinematic_pressure"),
            distance_kinds=("wall+impeller",),
            prescribed={"velocity": ("inlet", "impeller")},
        ),
        training=TrainingConfig(epochs=300, batch_size=1, learning_rate=3e-4, validate_every=5, checkpoint_every=5),
    )


def centrifugal_pump_gwa() -> SteadyExperiment:
    """Courant (with GWA) of Table tab:pump-hparams: Gaussian windows in encoder and decoder."""
    return centrifugal_pump().derive(name="centrifugal-pump-gwa", model={"gaussian_window": "both"})


def centrifugal_pump_full_mesh() -> SteadyExperiment:
    """Courant (no boundary pc) of Table tab:pump-hparams: the encoder reads every cell with its distance field."""
    return centrifugal_pump().derive(
        name="centrifugal-pump-full-mesh",
        model={"num_features": presets.centrifugal_pump_full_mesh().num_features},
        data={"encoder": "mesh"},
    )


def centrifugal_pump_small() -> SteadyExperiment:
    """The paper's model on some 64 trial designs: under an hour on two CPU cores."""
    return _small(centrifugal_pump())


def centrifugal_pump_demo() -> SteadyExperiment:
    """A first model from some 24 trial designs: a few minutes on two CPU cores. Eight to train on are too few."""
    return _demo(centrifugal_pump())


def _small(published: SteadyExperiment) -> SteadyExperiment:
    return published.derive(
        name=f"{published.name}-small",
        model={"num_anchors": 64},
        data={"points_per_sample": 1024, "queries_per_sample": 1024},
        training={
            "epochs": 60,
            "batch_size": 4,
            "samples_per_epoch": 480,
            "learning_rate": 1e-3,
            "warmup_steps": 100,
            "validate_every": 5,
            "checkpoint_every": 5,
        },
    )


def _demo(published: SteadyExperiment) -> SteadyExperiment:
    return _small(published).derive(
        name=f"{published.name}-demo",
        model={"num_anchors": 32},
        data={"points_per_sample": 512, "queries_per_sample": 512},
        training={"epochs": 30, "samples_per_epoch": 160, "warmup_steps": 40, "validate_every": 3},
    )
