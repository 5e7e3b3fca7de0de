"""Put a baseline in Courant's place: the same data, batches, schedule and evaluation.

A recipe's name takes a baseline's kind at its end. With a family's published run the result is the
paper's run of that baseline, from its tables of hyperparameters (tab:cf-hparams, tab:hvac-hparams,
tab:pump-hparams; for the public benchmarks see `community_baselines`); with any other recipe, its
training stays as it is, but for the loss of contributions far from their anchors, which baselines
lack. Sizes are the paper's for the family, whichever the recipe.

    get_recipe("cylinder-flow-transolver")        # the paper's
    get_recipe("cylinder-flow-small-transolver")  # on two CPU cores, like Courant's
"""

from __future__ import annotations

from typing import Any

from courant.baselines import OWN
from courant.experiment import Experiment, parse_experiment
from courant.models import BASELINES
from courant.recipes.community_baselines import community_sizes, community_training
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
_ON_GRIDS = ("fno", "factformer")
_FLAT = ("cylinder-flow",)
"""Families of 2D cases that carry z = 0, which a grid leaves out"""


def split_name(name: str) -> tuple[str, str] | None:
    """Split `<recipe>-<kind>`; None where no baseline's kind stands at the end."""
    recipe, _, kind = name.rpartition("-")
    return (recipe, kind) if recipe and kind in BASELINES else None


def paper_sizes(family: str, kind: str) -> dict[str, Any]:
    """Return the sizes of a kind that the paper has for a family, beside the kind's defaults."""
    return {**OWN.get((kind, _CASES.get(family, "")), {}), **community_sizes(family, kind)}


def compared(experiment: Experiment, kind: str, *, has_mesh: bool | None = None) -> Experiment:
    """Return the experiment with a baseline of this kind as its model.

    It reads the full mesh, as the paper's baselines do, and all else that Courant reads there.
    Where whole meshes are read, a model of edges takes those of the cells' faces if the dataset's
    cases have a mesh; None stands for the answer of the family: those that are solved here do.
    """
    content = experiment.model_dump(mode="json")
    model: dict[str, Any] = {
        name: getattr(experiment.model, name)
        for name in (
            "num_features",
            "num_outputs",
            "num_query_features",
            "num_parameters",
            "dimension",
            "transient",
        )
    }
    if content["data"].get("encoder") == "boundary":
        content["data"]["encoder"] = "mesh"
        model["num_features"] = model["num_outputs"] + model["num_query_features"]
    if content["data"].get("input_steps", 1) > 1:
        model["input_steps"] = content["data"]["input_steps"]
    if kind in _ON_GRIDS and experiment.family in _FLAT:
        model["dimension"] = 2
    if kind == "mgn":
        has_mesh = experiment.family in FAMILIES if has_mesh is None else has_mesh
        most = content["data"]["points_per_sample"]
        if most is not None:
            model["num_nodes"] = most
        elif has_mesh:
            model["edges"] = "mesh"
    model |= paper_sizes(experiment.family, kind)
    content |= {"name": f"{experiment.name}-{kind}", "model": {"kind": kind, **model}}
    content["training"] |= community_training(experiment.name, kind)
    if kind in BASELINES:
        content["training"]["locality_weight"] = 0.0
    if row := ROWS.get(experiment.name, {}).get(kind):
        rate, epochs, batch = row
        content["training"] |= {"learning_rate": rate, "epochs": epochs, "batch_size": batch}
        content["model"]["num_parameters"] = 0
    return parse_experiment(content)
