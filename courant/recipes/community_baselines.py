"""Hold the paper's baselines on the community benchmarks: their sizes and trainings.

Their sources are the paper's tables of each (tab:baseline-transolver, tab:baseline-fno,
tab:baseline-upt, tab:baseline-factformer), and the defaults in the text above them: cosine
annealing but for Diff-Sorp, weight decay 1e-5, no clipping. What the tables leave open:

- UPT's six layers: the library that the paper ran has all of them in the approximator, between two
  perceivers; here encoder, approximator and decoder have two blocks each. For Diff-Sorp the table
  has two rows; the second one is taken, which is also the library's script.
- FNO's frequencies are the library's default of 12, on 3D CFD the 8 that a grid of 16 nodes has.
- The grid: as many nodes along an axis as the data have, so that nodes of Darcy, Diff-Sorp and
  3D CFD are the data's own points. The curved grids of Pipe and Airfoil are clouds here, carried to
  a straight grid; the paper's FNO and FactFormer read them by their index. Elasticity has no grid.
"""

from __future__ import annotations

from typing import Any

from courant.recipes.community import NO_CLIPPING

NODES = {
    "pipe": 129,
    "airfoil": 221,
    "darcy-flow": 85,
    "diffusion-sorption": 1024,
    "compressible-flow-3d": 16,
}
"""Points of the data along their longer axis"""
_BENCHMARKS = ("elasticity", *NODES)
_TRANSOLVER = {"width": 128, "num_heads": 8, "num_layers": 8, "num_slices": 64}
_UPT = {"width": 512, "num_heads": 8, "num_layers": 2, "num_latents": 32}
_FNO_WIDTHS = {
    "elasticity": 32,
    "pipe": 128,
    "airfoil": 32,
    "darcy-flow": 128,
    "diffusion-sorption": 64,
    "compressible-flow-3d": 20,
}
_FACTFORMER_WIDTHS = {"airfoil": 32, "pipe": 128, "darcy-flow": 128}

Rates = tuple[int, int, float, float]
"""Epochs, batch size, learning rate, weight decay"""
TRAININGS: dict[str, dict[str, Rates]] = {
    "elasticity": {
        "transolver": (500, 1, 1e-3, 1e-5),
        "fno": (500, 4, 1e-3, 1e-5),
        "upt": (1000, 1, 5e-4, 1e-5),
    },
    "pipe": {
        "transolver": (500, 4, 1e-3, 1e-5),
        "fno": (500, 4, 1e-3, 1e-5),
        "upt": (1000, 4, 5e-4, 1e-5),
        "factformer": (500, 4, 1e-3, 1e-5),
    },
    "airfoil": {
        "transolver": (500, 8, 1e-3, 1e-4),
        "fno": (500, 4, 1e-3, 1e-5),
        "upt": (1000, 8, 5e-4, 1e-5),
        "factformer": (500, 4, 1e-3, 1e-5),
    },
    "darcy-flow": {
        "transolver": (500, 4, 1e-3, 1e-5),
        "fno": (500, 4, 1e-3, 1e-5),
        "upt": (1000, 4, 5e-4, 1e-5),
        "factformer": (500, 4, 1e-3, 1e-5),
    },
    "diffusion-sorption": {
        "transolver": (500, 20, 5e-4, 1e-4),
        "fno": (500, 20, 5e-4, 1e-5),
        "upt": (1000, 16, 5e-4, 1e-4),
    },
    "compressible-flow-3d": {"fno": (500, 5, 5e-4, 1e-5)},
}
"""Every row of the four tables"""


def benchmark_of(family: str) -> str | None:
    """Return the community benchmark of a dataset's family, generated or published."""
    name = family.removesuffix("-published")
    return name if name in _BENCHMARKS else None


def community_sizes(family: str, kind: str) -> dict[str, Any]:
    """Return the sizes that the paper has for a kind of baseline on a family's data."""
    name = benchmark_of(family)
    if name is None:
        return {}
    grid = {"resolution": NODES[name]} if name in NODES else {}
    sizes: dict[str, dict[str, Any]] = {
        "transolver": _TRANSOLVER,
        "upt": _UPT,
        "fno": {
            "width": _FNO_WIDTHS[name],
            "num_layers": 8,
            "num_modes": 8 if name == "compressible-flow-3d" else 12,
            **grid,
        },
        "factformer": {"width": _FACTFORMER_WIDTHS.get(name, 128), **grid},
    }
    return dict(sizes.get(kind, {}))


def community_training(recipe: str, kind: str) -> dict[str, Any]:
    """Return what a row of the tables changes of the training of Courant; empty without a row.

    The schedule and Darcy's loss of derivatives are Courant's.
    """
    name = benchmark_of(recipe)
    row = TRAININGS[name].get(kind) if name else None
    if row is None:
        return {}
    epochs, batch, rate, decay = row
    clipped = (name, kind) == ("airfoil", "transolver")
    return {
        "epochs": epochs,
        "batch_size": batch,
        "learning_rate": rate,
        "weight_decay": decay,
        "clip_norm": 0.1 if clipped else NO_CLIPPING,
    }
