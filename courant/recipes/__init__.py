"""Training runs by name: one file a family, one function a run, each returning a complete Experiment.

An ablation derives from a recipe:

    get_recipe("cylinder-flow-small").derive(name="few-anchors", model={"num_anchors": 16})
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from courant.experiment import Experiment
from courant.recipes import branched_pipe as pipe
from courant.recipes import centrifugal_pump as pump
from courant.recipes import cylinder_flow as cylinder
from simgen.errors import InputError

RECIPES: dict[str, Callable[[], Experiment]] = {
    "cylinder-flow": cylinder.cylinder_flow,
    "cylinder-flow-small": cylinder.cylinder_flow_small,
    "cylinder-flow-demo": cylinder.cylinder_flow_demo,
    "branched-pipe": pipe.branched_pipe,
    "branched-pipe-gwa": pipe.branched_pipe_gwa,
    "branched-pipe-full-mesh": pipe.branched_pipe_full_mesh,
    "branched-pipe-small": pipe.branched_pipe_small,
    "branched-pipe-demo": pipe.branched_pipe_demo,
    "centrifugal-pump": pump.centrifugal_pump,
    "centrifugal-pump-gwa": pump.centrifugal_pump_gwa,
    "centrifugal-pump-full-mesh": pump.centrifugal_pump_full_mesh,
    "centrifugal-pump-small": pump.centrifugal_pump_small,
    "centrifugal-pump-demo": pump.centrifugal_pump_demo,
}


def get_recipe(name: str) -> Experiment:
    """The recipe called `name`; InputError lists the known ones."""
    if name not in RECIPES:
        raise InputError(f"recipe '{name}' is unknown; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]()


def recipe_of(family: str, size: Literal["demo", "small"]) -> str:
    """The name of a family's recipe for a laptop; InputError for a family without one."""
    name = f"{family}-{size}"
    if name not in RECIPES:
        raise InputError(f"family {family} has no recipe {name}; give an experiment of your own as a JSON file")
    return name
