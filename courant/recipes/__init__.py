"""List training runs by name.

Each is a complete Experiment, and most derive from another one; so do ablations:

    get_recipe("cylinder-flow-small").derive(name="few-anchors", model={"num_anchors": 16})

A baseline's kind at the end of a name puts it in Courant's place (`compared`).
"""

from difflib import get_close_matches
from typing import Literal

from courant.experiment import Experiment
from courant.models import BASELINES
from courant.recipes import community, cylinder_flow, steady
from courant.recipes.compared import compared, split_name
from courant.recipes.variants import Recipe
from simgen.errors import InputError

RECIPES: dict[str, Recipe] = {**cylinder_flow.RECIPES, **steady.RECIPES, **community.RECIPES}

USUAL = {"branched-pipe": "branched-pipe-all-fields"}
"""Where a family's usual recipe has another name: the paper's pipe predicts no pressure"""


def get_recipe(name: str) -> Experiment:
    """Return the recipe called `name`; InputError lists the known ones, the nearest first."""
    if recipe := RECIPES.get(name):
        if not isinstance(recipe.base, str):
            return recipe.base()
        made = get_recipe(recipe.base).derive(name=name)
        for change in recipe.changes:
            made = made.derive(**change)
        return made.model_copy(update={"family": recipe.family or made.family})
    parts = split_name(name)
    if parts is None or parts[0] not in RECIPES:
        known = dict.fromkeys([*get_close_matches(name, RECIPES, n=1), *RECIPES])
        raise InputError(
            f"recipe '{name}' is unknown; choose one of {', '.join(known)}, or one of them with"
            f" a baseline's kind at its end, as {next(iter(RECIPES))}-{next(iter(BASELINES))}"
            f" ({', '.join(BASELINES)})"
        )
    return compared(get_recipe(parts[0]), parts[1])


def recipe_of(family: str, size: Literal["demo", "small"]) -> str | None:
    """Name a family's recipe for a laptop; None for a family without one, such as a user's own."""
    name = f"{USUAL.get(family, family)}-{size}"
    return name if name in RECIPES else None
