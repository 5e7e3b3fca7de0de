"""Define the training runs of the branched pipe: the published ones and smaller ones.

Their sources are the paper's tables of learning tasks (tab:dataset-details) and of the pipe's
hyperparameters (tab:hvac-hparams). It leaves the encoder's features open; here they are boundary
conditions (`courant.problems.steady`).
"""

from __future__ import annotations

from courant.data_config import SteadyData
from courant.experiment import Experiment, TrainingConfig
from courant.model import presets
from courant.recipes.variants import demo, legible, small

# The published models learn velocities as they are; from few designs that costs a fifth of the
# accuracy (docs/benchmark.md).
VELOCITY_SCALE = {"velocity": {"inlet_velocity": 1.0}}
FLOW_SCALE = VELOCITY_SCALE | {"kinematic_pressure": {"inlet_velocity": 2.0}}


def branched_pipe() -> Experiment:
    """The paper's baseline on 300 designs, for an A100-class GPU.

    Courant (baseline) of the table of the pipe's hyperparameters (tab:hvac-hparams).
    The encoder reads the boundary cloud with the inlet's velocity profile; u_x and u_z span the
    plane of the Y.
    """
    return Experiment(
        task="steady",
        name="branched-pipe",
        family="branched-pipe",
        model=presets.branched_pipe(),
        data=SteadyData(fields=("velocity.x", "velocity.z"), prescribed={"velocity": ("inlet",)}),
        training=TrainingConfig(
            epochs=1500, batch_size=1, learning_rate=3e-4, validate_every=10, checkpoint_every=10
        ),
    )


def branched_pipe_gwa() -> Experiment:
    """The paper's variant with Gaussian windows in encoder and decoder.

    Courant (with GWA) of the table of the pipe's hyperparameters (tab:hvac-hparams).
    """
    return branched_pipe().derive(name="branched-pipe-gwa", model={"gaussian_window": "both"})


def branched_pipe_full_mesh() -> Experiment:
    """The paper's variant whose encoder reads the whole mesh.

    Courant (no boundary pc) of the table of the pipe's hyperparameters (tab:hvac-hparams).
    Every cell comes with its distance field.
    """
    return branched_pipe().derive(
        name="branched-pipe-full-mesh",
        model={"num_features": presets.branched_pipe_full_mesh().num_features},
        data={"encoder": "mesh"},
    )


def branched_pipe_all_fields() -> Experiment:
    """The paper's model with all of velocity and with pressure: what every quantity needs."""
    return branched_pipe().derive(
        name="branched-pipe-all-fields",
        model={"num_outputs": 4, "num_features": 4},
        data={"fields": ("velocity", "kinematic_pressure")},
    )


def branched_pipe_all_fields_small() -> Experiment:
    """All fields, from some 64 trial designs: under an hour on two CPU cores."""
    return small(branched_pipe_all_fields()).derive(data={"scaled_by": FLOW_SCALE})


def branched_pipe_all_fields_demo() -> Experiment:
    """All fields, from some 24 trial designs: a first model in a few minutes on two CPU cores."""
    return demo(branched_pipe_all_fields()).derive(data={"scaled_by": FLOW_SCALE})


def branched_pipe_small() -> Experiment:
    """The paper's model on some 64 trial designs: under an hour on two CPU cores.

    Unlike the paper's it learns velocity relative to that of the inlet.
    """
    return small(branched_pipe()).derive(data={"scaled_by": VELOCITY_SCALE})


def branched_pipe_demo() -> Experiment:
    """A first model from some 24 trial designs: a few minutes on two CPU cores.

    Eight designs are too few to train on. Velocity is learned relative to that of the inlet.
    """
    return demo(branched_pipe()).derive(data={"scaled_by": VELOCITY_SCALE})


def branched_pipe_legible_small() -> Experiment:
    """The small run with learned anchors and narrow windows, so that each speaks for a place."""
    return legible(branched_pipe_small()).derive(
        name="branched-pipe-legible-small", training={"optimiser": "adamw"}
    )
