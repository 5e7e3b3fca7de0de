"""Put a baseline in Courant's place: the same data, batches, schedule and evaluation.

A recipe's name takes a baseline's kind at its end. With a family's published run the result is the
paper's run of that baseline, from its tables of hyperparameters (tab:cf-hparams, tab:hvac-hparams,
tab:pump-hparams; for the public benchmarks tab:baseline-transolver, tab:baseline-fno,
tab:baseline-upt, tab:baseline-factformer); with any other recipe, its training stays as it is, but
for the loss of contributions far from their anchors, which baselines lack. Sizes are the paper's
for the family, whichever the recipe.

    get_recipe("cylinder-flow-transolver")        # the paper's
    get_recipe("cylinder-flow-small-transolver")  # on two CPU cores, like Courant's

On the public benchmarks the defaults in the text above the tables hold: cosine annealing but for
Diff-Sorp, weight decay 1e-5, no clipping. What the tables leave open:

- UPT's six layers: all of them in the approximator, between two perceivers, as in the library that
  the paper ran. For Diff-Sorp the table has two rows; the second one is taken, which is also the
  library's script.
- FNO's frequencies are the library's default of 12, on 3D CFD the 8 that a grid of 16 nodes has.
- The grid: as many nodes along an axis as the data have, so that nodes of Darcy, Diff-Sorp and
  3D CFD are the data's own points. The curved grids of Pipe and Airfoil are clouds here, mapped to
  a straight grid; the paper's FNO and FactFormer read them by their index. Elasticity has no grid.
"""

from dataclasses import fields
from typing import Any

from courant.baselines import OWN
from courant.experiment import Experiment, parse_experiment
from courant.model_config import ModelConfig
from courant.models import BASELINES
from courant.recipes.community import NO_CLIPPING
from simgen.cases import FAMILIES

ROWS: dict[str, dict[str, tuple[float, int, int]]] = {
    "cylinder-flow": {
        "fno": (3e-4, 300, 100),
        "enf": (3e-4, 300, 50),
        "mgn": (1e-4, 150, 20),
        "upt": (3e-4, 300, 100),
        "transolver": (1e-3, 100, 8),
    },
    "branched-pipe": {"upt": (2e-4, 2500, 1), "mgn": (3e-4, 300, 1), "transolver": (1e-3, 150, 1)},
    "centrifugal-pump": {"upt": (3e-4, 300, 1), "transolver": (1e-3, 150, 1)},
}
"""Learning rate, epochs and batch size of each row of the tables of the paper's own cases"""
_CASES = {"cylinder-flow": "Cyl.Flow", "branched-pipe": "Br.Pipe", "centrifugal-pump": "Ctr.Pump"}

NODES = {
    "pipe": 129,
    "airfoil": 221,
    "darcy-flow": 85,
    "diffusion-sorption": 1024,
    "compressible-flow-3d": 16,
}
"""Points of the public benchmarks along their longer axis"""
FNO_WIDTHS = {
    "elasticity": 32,
    "pipe": 128,
    "airfoil": 32,
    "darcy-flow": 128,
    "diffusion-sorption": 64,
    "compressible-flow-3d": 20,
}
_USUAL, _UPT = (500, 4, 1e-3, 1e-5), (1000, 4, 5e-4, 1e-5)
_OF_GRIDS = {"transolver": _USUAL, "fno": _USUAL, "upt": _UPT, "factformer": _USUAL}
TRAININGS: dict[str, dict[str, tuple[int, int, float, float]]] = {
    "elasticity": {"transolver": (500, 1, 1e-3, 1e-5), "fno": _USUAL, "upt": (1000, 1, 5e-4, 1e-5)},
    "pipe": _OF_GRIDS,
    "airfoil": {**_OF_GRIDS, "transolver": (500, 8, 1e-3, 1e-4), "upt": (1000, 8, 5e-4, 1e-5)},
    "darcy-flow": _OF_GRIDS,
    "diffusion-sorption": {
        "transolver": (500, 20, 5e-4, 1e-4),
        "fno": (500, 20, 5e-4, 1e-5),
        "upt": (1000, 16, 5e-4, 1e-4),
    },
    "compressible-flow-3d": {"fno": (500, 5, 5e-4, 1e-5)},
}
"""Every row of the four tables: epochs, batch size, learning rate and weight decay"""


def split_name(name: str) -> tuple[str, str] | None:
    """Split `<recipe>-<kind>`; None where no baseline's kind is at the end."""
    recipe, _, kind = name.rpartition("-")
    return (recipe, kind) if recipe and kind in BASELINES else None


def benchmark_of(family: str) -> str | None:
    """Return the community benchmark of a dataset's family, generated or published."""
    name = family.removesuffix("-published")
    return name if name in FNO_WIDTHS else None


def paper_sizes(family: str, kind: str) -> dict[str, Any]:
    """Return the sizes of a kind that the paper has for a family, beside the kind's defaults."""
    if (name := benchmark_of(family)) is None:
        return OWN.get((kind, _CASES.get(family, "")), {})
    grid = {"resolution": NODES[name]} if name in NODES else {}
    sizes: dict[str, dict[str, Any]] = {
        "transolver": {"width": 128, "num_heads": 8, "num_layers": 8, "num_slices": 64},
        "upt": {
            "width": 512,
            "num_heads": 8,
            "num_layers": 0,
            "num_further_layers": 6,
            "num_latents": 32,
        },
        "fno": {
            "width": FNO_WIDTHS[name],
            "num_layers": 8,
            "num_modes": 8 if name == "compressible-flow-3d" else 12,
            **grid,
        },
        "factformer": {"width": 32 if name == "airfoil" else 128, **grid},
    }
    return sizes.get(kind, {})


def compared(experiment: Experiment, kind: str, *, has_mesh: bool | None = None) -> Experiment:
    """Return the experiment with a baseline of this kind as its model.

    It reads the full mesh, as the paper's baselines do, and all else that Courant reads there.
    Where whole meshes are read, a model of edges takes those of the cells' faces if the dataset's
    cases have a mesh; None stands for the answer of the family: those that are solved here do.
    """
    content = experiment.model_dump(mode="json")
    data, training = content["data"], content["training"]
    model = {field.name: content["model"][field.name] for field in fields(ModelConfig)}
    del model["num_members"]
    if data.get("encoder") == "boundary":
        data["encoder"] = "mesh"
        model["num_features"] = model["num_outputs"] + model["num_query_features"]
    if data.get("input_steps", 1) > 1:
        model["input_steps"] = data["input_steps"]
    if kind in ("fno", "factformer") and experiment.family == "cylinder-flow":
        model["dimension"] = 2  # z = 0, which a grid leaves out
    if kind == "mgn":
        has_mesh = experiment.family in FAMILIES if has_mesh is None else has_mesh
        if data["points_per_sample"] is not None:
            model["num_nodes"] = data["points_per_sample"]
        elif has_mesh:
            model["edges"] = "mesh"
    model |= {"kind": kind, **paper_sizes(experiment.family, kind)}
    name = benchmark_of(experiment.name)
    if name and kind in TRAININGS[name]:
        epochs, batch, rate, decay = TRAININGS[name][kind]
        # The schedule and Darcy's loss of derivatives are Courant's.
        training |= {
            "epochs": epochs,
            "batch_size": batch,
            "learning_rate": rate,
            "weight_decay": decay,
            "clip_norm": 0.1 if (name, kind) == ("airfoil", "transolver") else NO_CLIPPING,
        }
    if kind in BASELINES:
        training["locality_weight"] = 0.0
    if row := ROWS.get(experiment.name, {}).get(kind):
        rate, epochs, batch = row
        training |= {"learning_rate": rate, "epochs": epochs, "batch_size": batch}
        model["num_parameters"] = 0
    return parse_experiment({**content, "name": f"{experiment.name}-{kind}", "model": model})
