"""Define the training runs of the public benchmarks: the paper's, and small ones for a laptop.

Their sources are the paper's overview of these benchmarks (tab:community-benchmarks-overview) and
its tables of Courant's sizes (tab:courant-shared-hparams) and training (tab:courant-training). It
leaves open which windows of a trajectory are trained on; here they are all, and an epoch draws as
many as there are training cases. Runs without clipping have a bound that no norm reaches.

The small runs are for `courant benchmark` on generated cases. Their epochs are short, so that a
budget of processor time is met closely, and their optimiser is Muon (docs/accuracy.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from courant.experiment import Experiment, SteadyData, TrainingConfig, TransientData
from courant.model import CourantConfig, presets
from courant.recipes.variants import Recipe

NO_CLIPPING = 1e9
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
_SMALL: dict[str, Any] = {
    "model": {"width": 64, "num_heads": 4, "num_anchors": 128, "num_levels": 2},
    "training": _BRIEF,
}


def _steady(name: str, field: str, model: CourantConfig, **training: Any) -> Experiment:
    usual: dict[str, Any] = {
        "epochs": 1000,
        "weight_decay": 1e-5,
        "schedule": "cosine",
        "loss": "relative-l2",
        "clip_norm": NO_CLIPPING,
        "validate_every": 10,
        "checkpoint_every": 10,
    }
    return Experiment(
        task="steady",
        name=name,
        family=name,
        model=model,
        data=SteadyData(fields=(field,), encoder="mesh"),
        training=TrainingConfig(**{**usual, **training}),
    )


def _ten_of_ten(
    name: str, fields: tuple[str, ...], interval_s: float, model: CourantConfig, **training: Any
) -> Experiment:
    """Predict the ten states after ten known ones."""
    return Experiment(
        task="transient",
        name=name,
        family=name,
        model=model,
        data=TransientData(
            fields=fields, input_steps=10, window_steps=10, step_s=interval_s, stride_s=interval_s
        ),
        training=TrainingConfig(
            epochs=500,
            learning_rate=5e-4,
            weight_decay=1e-4,
            loss="relative-l2",
            clip_norm=NO_CLIPPING,
            validate_every=5,
            checkpoint_every=5,
            **training,
        ),
    )


def _small(name: str, num: int, **more: Any) -> dict[str, Recipe]:
    about = f"A small model on some {num} generated cases: minutes on two CPU cores"
    return {f"{name}-small": Recipe(about, name, [_SMALL, more])}


def _with_published(about: str, make: Callable[[], Experiment]) -> dict[str, Recipe]:
    name = make().name
    published = f"{name}-published"
    on_them = Recipe(f"`{name}` on the published cases", name, family=published)
    return {name: Recipe(about, make), published: on_them}


_darcy_flow = partial(
    _steady,
    "darcy-flow",
    "pressure",
    presets.darcy_flow(),
    learning_rate=5e-4,
    batch_size=4,
    derivative_weight=0.1,
)
_diffusion_sorption = partial(
    _ten_of_ten,
    "diffusion-sorption",
    ("concentration",),
    5.0,
    presets.diffusion_sorption(),
    batch_size=20,
    samples_per_epoch=9000,
    schedule="step",
    step_epochs=100,
    step_factor=0.5,
)

RECIPES = {
    "elasticity": Recipe(
        "Courant on the stress around a void",
        lambda: _steady(
            "elasticity", "stress", presets.elasticity(), batch_size=1, learning_rate=5e-5
        ),
    ),
    **_small("elasticity", 300),
    "pipe": Recipe(
        "Courant on the axial velocity in a bent pipe",
        lambda: _steady("pipe", "velocity", presets.pipe_flow(), learning_rate=1e-4, batch_size=4),
    ),
    "airfoil": Recipe(
        "Courant on the Mach number around an airfoil",
        lambda: _steady(
            "airfoil",
            "mach",
            presets.airfoil(),
            learning_rate=5e-4,
            batch_size=8,
            weight_decay=1e-4,
            clip_norm=0.1,
        ),
    ),
    **_with_published(
        "Courant on flow through rock of two permeabilities, with the loss of derivatives",
        _darcy_flow,
    ),
    # Whether the loss of derivatives would help in minutes has not been measured.
    **_small("darcy-flow", 400, training={"derivative_weight": 0.0}),
    **_with_published(
        "Courant on a contaminant in soil: ten states known, the next ten predicted",
        _diffusion_sorption,
    ),
    **_small("diffusion-sorption", 400, model={"num_anchors": 32}),
    "compressible-flow-3d": Recipe(
        "Courant on compressible flow in a cube: ten states known, the next ten predicted",
        lambda: _ten_of_ten(
            "compressible-flow-3d",
            ("density", "velocity", "pressure"),
            0.05,
            presets.compressible_flow_3d(),
            batch_size=2,
            samples_per_epoch=1000,
            schedule="cosine",
        ),
    ),
}
