"""List training runs by name: one file a family, one function a run.

Each returns a complete Experiment; an ablation derives from a recipe:

    get_recipe("cylinder-flow-small").derive(name="few-anchors", model={"num_anchors": 16})

A baseline's kind at the end of a name puts it in Courant's place (`compared`).
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Literal

from courant.experiment import Experiment
from courant.models import BASELINES
from courant.recipes import branched_pipe as pipe
from courant.recipes import centrifugal_pump as pump
from courant.recipes import community
from courant.recipes import cylinder_flow as cylinder
from courant.recipes.compared import compared, split_name
from simgen.errors import InputError

RECIPES: dict[str, Callable[[], Experiment]] = {
    "cylinder-flow": cylinder.cylinder_flow,
    "cylinder-flow-small": cylinder.cylinder_flow_small,
    "cylinder-flow-demo": cylinder.cylinder_flow_demo,
    "cylinder-flow-legible-small": cylinder.cylinder_flow_legible_small,
    "cylinder-flow-all-fields": cylinder.cylinder_flow_all_fields,
    "cylinder-flow-all-fields-small": cylinder.cylinder_flow_all_fields_small,
    "cylinder-flow-all-fields-demo": cylinder.cylinder_flow_all_fields_demo,
    "branched-pipe": pipe.branched_pipe,
    "branched-pipe-gwa": pipe.branched_pipe_gwa,
    "branched-pipe-full-mesh": pipe.branched_pipe_full_mesh,
    "branched-pipe-all-fields": pipe.branched_pipe_all_fields,
    "branched-pipe-all-fields-small": pipe.branched_pipe_all_fields_small,
    "branched-pipe-all-fields-demo": pipe.branched_pipe_all_fields_demo,
    "branched-pipe-small": pipe.branched_pipe_small,
    "branched-pipe-demo": pipe.branched_pipe_demo,
    "branched-pipe-legible-small": pipe.branched_pipe_legible_small,
    "centrifugal-pump": pump.centrifugal_pump,
    "centrifugal-pump-gwa": pump.centrifugal_pump_gwa,
    "centrifugal-pump-full-mesh": pump.centrifugal_pump_full_mesh,
    "centrifugal-pump-small": pump.centrifugal_pump_small,
    "centrifugal-pump-demo": pump.centrifugal_pump_demo,
    "centrifugal-pump-legible-small": pump.centrifugal_pump_legible_small,
    "elasticity": community.elasticity,
    "elasticity-small": community.elasticity_small,
    "pipe": community.pipe,
    "airfoil": community.airfoil,
    "darcy-flow": community.darcy_flow,
    "darcy-flow-published": community.darcy_flow_published,
    "darcy-flow-small": community.darcy_flow_small,
    "diffusion-sorption": community.diffusion_sorption,
    "diffusion-sorption-published": community.diffusion_sorption_published,
    "diffusion-sorption-small": community.diffusion_sorption_small,
    "compressible-flow-3d": community.compressible_flow_3d,
}


def get_recipe(name: str) -> Experiment:
    """Return the recipe called `name`; InputError lists the known ones, the nearest first."""
    if name in RECIPES:
        return RECIPES[name]()
    parts = split_name(name)
    if parts is None or parts[0] not in RECIPES:
        known = dict.fromkeys([*get_close_matches(name, RECIPES, n=1), *RECIPES])
        raise InputError(
            f"recipe '{name}' is unknown; choose one of {', '.join(known)}, or one of them with"
            f" a baseline's kind at its end, as {next(iter(RECIPES))}-{next(iter(BASELINES))}"
            f" ({', '.join(BASELINES)})"
        )
    recipe, kind = parts
    return compared(RECIPES[recipe](), kind)


def recipe_of(family: str, size: Literal["demo", "small"]) -> str | None:
    """Name a family's recipe for a laptop; None for a family without one, such as a user's own."""
    name = f"{family}-{size}"
    return name if name in RECIPES else None
