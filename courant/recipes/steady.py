"""Define the training runs of the branched pipe and the centrifugal pump: published and smaller.

Their sources are the paper's tables of learning tasks (tab:dataset-details) and of hyperparameters
(tab:hvac-hparams, tab:pump-hparams). They leave the encoder's features open; here they are boundary
conditions (`courant.problems.steady`).

The small runs train in minutes on two CPU cores. Their optimiser is Muon, not the paper's AdamW: in
the same time it reaches a lower error (docs/accuracy.md). Recipes with legible anchors keep AdamW,
with which their scores were measured.
"""

from collections.abc import Callable
from typing import Any

from courant.experiment import Experiment, SteadyData, TrainingConfig
from courant.model import presets
from courant.recipes.variants import LEGIBLE, PLACED, Recipe

SMALL: dict[str, Any] = {
    "model": {"num_anchors": 64},
    "data": {"points_per_sample": 1024, "queries_per_sample": 1024},
    "training": {
        "optimiser": "muon",
        "epochs": 60,
        "batch_size": 4,
        "samples_per_epoch": 480,
        "learning_rate": 1e-3,
        "warmup_steps": 100,
        "validate_every": 5,
        "checkpoint_every": 5,
    },
}
DEMO: dict[str, Any] = {
    "model": {"num_anchors": 32, "decoder_depth": 2},
    "data": {"points_per_sample": 512, "queries_per_sample": 512},
    "training": {"epochs": 30, "samples_per_epoch": 160, "warmup_steps": 40, "validate_every": 3},
}
"""On top of SMALL, with learned anchors: with few designs these and the decoder pay most"""


def branched_pipe() -> Experiment:
    """Return Courant (baseline) of tab:hvac-hparams.

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


def centrifugal_pump() -> Experiment:
    """Return Courant (baseline) of tab:pump-hparams.

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


def _recipes(
    published: Callable[[], Experiment],
    num_features: int,
    scaled_by: dict[str, dict[str, float]],
    unscaled: dict[str, Any],
) -> dict[str, Recipe]:
    """Return the recipes that both families have, with the encoder's channels on a full mesh."""
    name = published().name
    mesh: dict[str, Any] = {"model": {"num_features": num_features}, "data": {"encoder": "mesh"}}
    return {
        name: Recipe("The paper's baseline on 300 designs, for an A100-class GPU", published),
        f"{name}-gwa": Recipe(
            "The paper's variant with Gaussian windows in encoder and decoder",
            name,
            [{"model": {"gaussian_window": "both"}}],
        ),
        f"{name}-full-mesh": Recipe("The paper's variant that reads the whole mesh", name, [mesh]),
        **_smaller(name, "The paper's model", "A first model", scaled_by),
        f"{name}-legible-small": Recipe(
            "The small run with learned anchors and narrow windows, whose fields are local",
            f"{name}-small",
            [LEGIBLE, {"data": unscaled, "training": {"optimiser": "adamw"}}],
        ),
    }


def _smaller(
    name: str, small: str, demo: str, scaled_by: dict[str, dict[str, float]]
) -> dict[str, Recipe]:
    return {
        f"{name}-small": Recipe(
            f"{small} on some 64 trial designs: under an hour on two CPU cores",
            name,
            [SMALL, {"data": {"scaled_by": scaled_by}}],
        ),
        f"{name}-demo": Recipe(
            f"{demo} from some 24 trial designs: a few minutes on two CPU cores",
            f"{name}-small",
            [DEMO, PLACED],
        ),
    }


# The published models learn velocities as they are; from few designs that costs a fifth of the
# accuracy (docs/benchmark.md).
_VELOCITY = {"velocity": {"inlet_velocity": 1.0}}
_FLOW = _VELOCITY | {"kinematic_pressure": {"inlet_velocity": 2.0}}
# At one speed of rotation, velocities grow with the radius and pressures with its square (the
# pump's affinity laws).
_PUMPED = {"velocity": {"impeller_radius": 1.0}, "kinematic_pressure": {"impeller_radius": 2.0}}
_ALL: dict[str, Any] = {
    "model": {"num_outputs": 4, "num_features": 4},
    "data": {"fields": ("velocity", "kinematic_pressure")},
}

RECIPES = {
    **_recipes(branched_pipe, 14, _VELOCITY, {}),
    "branched-pipe-all-fields": Recipe(
        "The paper's model with all of velocity and with pressure: what every quantity needs",
        "branched-pipe",
        [_ALL],
    ),
    **_smaller("branched-pipe-all-fields", "All fields", "A first model of all fields", _FLOW),
    **_recipes(centrifugal_pump, 8, _PUMPED, {"scaled_by": {}}),
}
