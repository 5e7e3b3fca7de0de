"""Define the training runs of the centrifugal pump: the published ones and smaller ones.

Their sources are the paper's tables of learning tasks (tab:dataset-details) and of the pump's
hyperparameters (tab:pump-hparams). It leaves the encoder's features open; here they are boundary
conditions (`courant.problems.steady`).
"""

from __future__ import annotations

from courant.data_config import SteadyData
from courant.experiment import Experiment, TrainingConfig
from courant.model import presets
from courant.recipes.variants import demo, legible, small

# At one speed of rotation, velocities grow with the radius and pressures with its square (the
# pump's affinity laws). The published models learn the fields as they are.
FLOW_SCALE = {"velocity": {"impeller_radius": 1.0}, "kinematic_pressure": {"impeller_radius": 2.0}}


def centrifugal_pump() -> Experiment:
    """The paper's baseline on 300 designs, for an A100-class GPU.

    Courant (baseline) of the table of the pump's hyperparameters (tab:pump-hparams).
    The published count leaves four distance channels, those of one kind of boundary: the nearest
    solid wall, standing or turning, which is what a turbulence model calls the wall distance. The
    impeller turns, so its speed omega x r is a boundary condition as the inlet's velocity is.
    """
    return Experiment(
        task="steady",
        name="centrifugal-pump",
        family="centrifugal-pump",
        model=presets.centrifugal_pump(),
        data=SteadyData(
            fields=("velocity", "kinematic_pressure"),
            distance_kinds=("wall+impeller",),
            prescribed={"velocity": ("inlet", "impeller")},
        ),
        training=TrainingConfig(
            epochs=300, batch_size=1, learning_rate=3e-4, validate_every=5, checkpoint_every=5
        ),
    )


def centrifugal_pump_gwa() -> Experiment:
    """The paper's variant with Gaussian windows in encoder and decoder.

    Courant (with GWA) of the table of the pump's hyperparameters (tab:pump-hparams).
    """
    return centrifugal_pump().derive(name="centrifugal-pump-gwa", model={"gaussian_window": "both"})


def centrifugal_pump_full_mesh() -> Experiment:
    """The paper's variant whose encoder reads the whole mesh.

    Courant (no boundary pc) of the table of the pump's hyperparameters (tab:pump-hparams).
    Every cell comes with its distance field.
    """
    return centrifugal_pump().derive(
        name="centrifugal-pump-full-mesh",
        model={"num_features": presets.centrifugal_pump_full_mesh().num_features},
        data={"encoder": "mesh"},
    )


def centrifugal_pump_small() -> Experiment:
    """The paper's model on some 64 trial designs: under an hour on two CPU cores.

    Unlike the paper's it learns the fields relative to those that the impeller's radius scales.
    """
    return small(centrifugal_pump()).derive(data={"scaled_by": FLOW_SCALE})


def centrifugal_pump_demo() -> Experiment:
    """A first model from some 24 trial designs: a few minutes on two CPU cores.

    Eight designs are too few to train on. Fields are learned relative to the impeller's radius.
    """
    return demo(centrifugal_pump()).derive(data={"scaled_by": FLOW_SCALE})


def centrifugal_pump_legible_small() -> Experiment:
    """The small run with learned anchors and narrow windows, so that each speaks for a place."""
    return legible(centrifugal_pump_small()).derive(
        name="centrifugal-pump-legible-small",
        data={"scaled_by": {}},
        training={"optimiser": "adamw"},
    )
