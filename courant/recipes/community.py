"""Define the training runs of the public benchmarks: the paper's, and small ones for a laptop.

Their sources are the paper's overview of these benchmarks (tab:community-benchmarks-overview) and
its tables of Courant's sizes (tab:courant-shared-hparams) and training (tab:courant-training) on
them. It leaves open which windows of a trajectory are trained on; here they are
all, and an epoch draws as many as there are training cases. Runs without gradient clipping have a
bound that no norm reaches.

The small runs are for `courant benchmark` on generated cases. Their epochs are short, so that a
budget of processor time is met closely, and their optimiser is Muon (docs/training.md).
"""

from __future__ import annotations

from courant.data_config import SteadyData, TransientData
from courant.experiment import Experiment, TrainingConfig
from courant.model import CourantConfig

NO_CLIPPING = 1e9


def elasticity() -> Experiment:
    """Courant on the stress around a void; features are the coordinates."""
    training = TrainingConfig(
        epochs=1000,
        batch_size=1,
        learning_rate=5e-5,
        weight_decay=1e-5,
        schedule="cosine",
        loss="relative-l2",
        clip_norm=NO_CLIPPING,
        validate_every=10,
        checkpoint_every=10,
    )
    return _steady("elasticity", "stress", training)


def elasticity_small() -> Experiment:
    """A small model on some 300 generated cases: minutes on two CPU cores."""
    return elasticity().derive(name="elasticity-small", model=_SMALL, training=_BRIEF)


def pipe() -> Experiment:
    """Courant on the axial velocity in a bent pipe; features are the coordinates."""
    return _steady_like_elasticity("pipe", "velocity", learning_rate=1e-4, batch_size=4)


def airfoil() -> Experiment:
    """Courant on the Mach number around an airfoil; features are the coordinates."""
    return _steady_like_elasticity(
        "airfoil", "mach", learning_rate=5e-4, batch_size=8, weight_decay=1e-4, clip_norm=0.1
    )


def darcy_flow() -> Experiment:
    """Courant on flow through rock of two permeabilities, with the loss of derivatives."""
    return _steady_like_elasticity(
        "darcy-flow", "pressure", learning_rate=5e-4, batch_size=4, derivative_weight=0.1
    ).derive(model={"num_features": 1, "num_query_features": 1})


def darcy_flow_published() -> Experiment:
    """`darcy-flow` on the published cases."""
    return _published(darcy_flow())


def darcy_flow_small() -> Experiment:
    """A small model on some 400 generated cases: minutes on two CPU cores.

    It leaves out the loss of derivatives, which `darcy_flow` has from the paper; whether that would
    help in a training of minutes has not been measured.
    """
    return darcy_flow().derive(
        name="darcy-flow-small", model=_SMALL, training={**_BRIEF, "derivative_weight": 0.0}
    )


def diffusion_sorption() -> Experiment:
    """Courant on a contaminant in soil: ten states known, the next ten predicted."""
    return Experiment(
        task="transient",
        name="diffusion-sorption",
        family="diffusion-sorption",
        model=_courant(num_features=10, dimension=1, transient=True, num_anchors=64),
        data=_ten_of_ten(("concentration",), 5.0),
        training=TrainingConfig(
            epochs=500,
            batch_size=20,
            samples_per_epoch=9000,
            learning_rate=5e-4,
            weight_decay=1e-4,
            schedule="step",
            step_epochs=100,
            step_factor=0.5,
            loss="relative-l2",
            clip_norm=NO_CLIPPING,
            validate_every=5,
            checkpoint_every=5,
        ),
    )


def diffusion_sorption_published() -> Experiment:
    """`diffusion-sorption` on the published cases."""
    return _published(diffusion_sorption())


def diffusion_sorption_small() -> Experiment:
    """A small model on some 400 generated cases: minutes on two CPU cores."""
    return diffusion_sorption().derive(
        name="diffusion-sorption-small", model={**_SMALL, "num_anchors": 32}, training=_BRIEF
    )


def compressible_flow_3d() -> Experiment:
    """Courant on compressible flow in a cube: ten states known, the next ten predicted."""
    name = "compressible-flow-3d"
    experiment = diffusion_sorption().derive(
        name=name,
        model={"num_features": 50, "num_outputs": 5, "dimension": 3},
        data=_ten_of_ten(("density", "velocity", "pressure"), 0.05).model_dump(),
        training={"batch_size": 2, "samples_per_epoch": 1000, "schedule": "cosine"},
    )
    return experiment.model_copy(update={"family": name})


_SMALL = {"width": 64, "num_heads": 4, "num_anchors": 128, "num_levels": 2}
_BRIEF = {
    "optimiser": "muon",
    "epochs": 30,
    "batch_size": 4,
    "samples_per_epoch": 64,
    "learning_rate": 1e-3,
    "weight_decay": 1e-5,
    "warmup_steps": 50,
    "schedule": "cosine",
    "clip_norm": 1.0,
    "validate_every": 1,
    "checkpoint_every": 5,
}


def _courant(
    *, num_features: int, dimension: int, num_anchors: int, transient: bool = False
) -> CourantConfig:
    """Return the one architecture of the table of sizes (tab:courant-shared-hparams)."""
    return CourantConfig(
        num_features=num_features,
        num_outputs=1,
        dimension=dimension,
        transient=transient,
        width=128,
        num_heads=3,
        num_anchors=num_anchors,
        num_levels=6,
        bandwidth=0.3,
    )


def _steady(name: str, field: str, training: TrainingConfig) -> Experiment:
    return Experiment(
        task="steady",
        name=name,
        family=name,
        model=_courant(num_features=2, dimension=2, num_anchors=256),
        data=SteadyData(fields=(field,), encoder="mesh"),
        training=training,
    )


def _steady_like_elasticity(name: str, field: str, **training: float) -> Experiment:
    return _steady(name, field, elasticity().training.model_copy(update=training))


def _ten_of_ten(fields: tuple[str, ...], interval_s: float) -> TransientData:
    return TransientData(
        fields=fields, input_steps=10, window_steps=10, step_s=interval_s, stride_s=interval_s
    )


def _published(experiment: Experiment) -> Experiment:
    name = f"{experiment.name}-published"
    return experiment.derive(name=name).model_copy(update={"family": name})
