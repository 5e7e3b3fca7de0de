"""List training runs by name.

Each is a complete Experiment, and most derive from another one; so do ablations:

    get_recipe("cylinder-flow-small").derive(name="few-anchors", model={"num_anchors": 16})

A baseline's kind at the end of a name puts it in Courant's place (`compared`).
"""

from typing import Literal

from courant.experiment import Experiment
from courant.models import BASELINES
from courant.recipes import community, cylinder_flow, steady
from courant.recipes.compared import compared, split_name
from courant.recipes.variants import Recipe
from simgen.errors import InputError, did_you_mean

RECIPES: dict[str, Recipe] = {**cylinder_flow.RECIPES, **steady.RECIPES, **community.RECIPES}

USUAL = {"branched-pipe": "branched-pipe-all-fields"}
"""Where a family's usual recipe has another name: the paper's pipe predicts no pressure"""


def get_recipe(name: str) -> Experiment:
    """Return the recipe called `name`; InputError names the nearest, or lists all."""
    if recipe := RECIPES.get(name):
        if not isinstance(recipe.base, str):
            return recipe.base()
        made = get_recipe(recipe.base).derive(name=name)
        for change in recipe.changes:
            made = made.derive(**change)
        return made.model_copy(update={"family": recipe.family or made.family})
    parts = split_name(name)
    if parts is None or parts[0] not in RECIPES:
        known = did_you_mean(name, RECIPES) or f"choose one of {', '.join(RECIPES)}; "
        kinds = f"-{', -'.join(BASELINES)} behind one takes that model"
        raise InputError(f"recipe '{name}' is unknown; {known}{kinds}")
    return compared(get_recipe(parts[0]), parts[1])


def recipe_of(family: str, size: Literal["demo", "small"]) -> str | None:
    """Name a family's recipe for a laptop; None for a family without one, such as a user's own."""
    name = f"{USUAL.get(family, family)}-{size}"
    return name if name in RECIPES else None
