"""Name the models that are compared, as experiments that differ in nothing but the model.

`courant` is the recipe itself, a baseline's kind puts that model in its place, and the paper's
variants of Courant change its windows or anchors. `NAME-x2` is any of them with two members. A
search space gives its settings (ablations).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from courant.experiment import Experiment
from courant.models import kinds
from courant.problems import open_problem
from courant.recipes.compared import compared
from courant.recipes.legible import legible, placed_anchors
from courant.sweeps.search_space import SearchSpace
from courant.sweeps.setting import BASELINE, CHOICE, Setting, label, show
from courant.training.step import check_graphs_of_its_own
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset

COURANT = "courant"
VARIANTS: dict[str, Callable[[Experiment], Experiment]] = {
    COURANT: Experiment.derive,
    "courant-gwa": partial(Experiment.derive, model={"gaussian_window": "both"}),
    "courant-learned-anchors": partial(Experiment.derive, model={"anchor_kind": "learned"}),
    "courant-placed-anchors": placed_anchors,
    "courant-legible": legible,
    # Without places, contributions have no distance from them that the loss could weigh.
    "courant-abstract-queries": partial(
        Experiment.derive, model={"anchor_kind": "abstract"}, training={"locality_weight": 0.0}
    ),
}
"""The recipe, and what puts Courant's optional parts into it, by name"""
CHOSEN = {
    "training.learning_rate": "searches it for each model; give --rates",
    "training.warmup_steps": "limits it to a part of each training",
    "training.checkpoint_every": "takes it from the number of validations",
}
"""Keys that a benchmark sets itself, and how"""
_MEMBERS = re.compile(r"(.+)-x([2-9]|[1-5]\d|6[0-4])")
Sizes = Mapping[str, Mapping[str, Any]]
"""Model sizes by contender, in place of the usual ones"""


@dataclass(frozen=True)
class Contender:
    """A model that takes part, by its name in tables."""

    name: str
    experiment: Experiment

    @property
    def kind(self) -> str:
        return self.experiment.model.kind


def contender_names() -> tuple[str, ...]:
    """Return the names that `--models` takes, each also with a number of members."""
    return (*VARIANTS, *(kind for kind in kinds() if kind != COURANT))


def choose_contenders(
    names: Sequence[str], base: Experiment, dataset: Dataset, sizes: Sizes
) -> tuple[Contender, ...]:
    """Return the contenders of these names.

    InputError for a name that is none, comes twice, or whose model cannot be used on the dataset.
    """
    known = contender_names()
    for name in names:
        kind, _ = of_members(name)
        if kind not in known:
            near = difflib.get_close_matches(kind, known, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(
                f"model '{name}' is unknown; {hint}choose of {', '.join(known)}; behind each,"
                " -x2 to -x64 makes so many members"
            )
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise InputError(f"model {', '.join(twice)} is named twice; once is enough")
    unused = sorted(set(sizes) - {*names, *(of_members(name)[0] for name in names)})
    if unused:
        raise InputError(f"sizes are given for {', '.join(unused)}, which is not compared")
    return tuple(_usable(name, base, dataset, _sizes_of(name, sizes)) for name in names)


def of_members(name: str) -> tuple[str, int]:
    """Split `NAME-x2` into the name of a model and the number of its members; 0 where none is.

    A model whose own name ends so is taken by its name.
    """
    found = None if name in contender_names() else _MEMBERS.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, 0)


def _sizes_of(name: str, sizes: Sizes) -> dict[str, Any]:
    """Return the sizes of Courant for its variants, those of a model for several of it, its own."""
    kind, _ = of_members(name)
    shared = sizes.get(COURANT, {}) if kind in VARIANTS else {}
    return {**shared, **sizes.get(kind, {}), **sizes.get(name, {})}


def settings_of(space: SearchSpace, base: Experiment, dataset: Dataset) -> tuple[Contender, ...]:
    """Return the settings of a search space around the recipe.

    The recipe itself comes first if it is one of them, under the kind of its model.
    """
    linked = (key for choice in space.choices for key in choice.values)
    if chosen := [key for key in (*space.parameters, *linked) if key in CHOSEN]:
        raise InputError(
            f"space {space.name}: {chosen[0]} cannot be compared: a benchmark {CHOSEN[chosen[0]]}"
        )
    num, baseline = space.count(base), space.baseline(base)
    if num is None:
        raise InputError(
            f"space {space.name} draws its values at random; a benchmark compares settings that"
            " are named: use design isolated or grid"
        )
    made: list[Contender] = []
    for setting, _ in zip(space.settings(base, seed=0), range(num), strict=False):
        name = _differing(setting, baseline) or base.model.kind
        if name in (each.name for each in made):
            raise InputError(
                f"space {space.name}: two settings are both told as '{name}'; leave one out, or"
                " take values that differ in four digits"
            )
        experiment = space.apply(base, setting)
        open_problem(experiment, dataset)
        made.append(Contender(name, experiment))
    return tuple(sorted(made, key=lambda each: each.name != base.model.kind))


def _differing(setting: Setting, baseline: Setting) -> str:
    """Name a setting by what it changes: `num_anchors 16`, or the name of a choice."""
    changed = [
        show(value) if key == CHOICE else f"{label(key)} {show(value)}"
        for key, value in setting.items()
        if value != baseline[key] and value != BASELINE
    ]
    return ", ".join(changed)


def _usable(name: str, base: Experiment, dataset: Dataset, sizes: Mapping[str, Any]) -> Contender:
    """Make the experiment of one name, and compare it with the data."""
    kind, members = of_members(name)
    # A recipe of several members is compared with as many of each model.
    own = {"num_members": base.model.num_members, **sizes}
    if members:
        own["num_members"] = members
    try:
        if kind in VARIANTS and base.model.kind != COURANT:
            raise InputError(
                f"the recipe {base.name} has a {base.model.kind} in Courant's place; give a recipe"
                f" of Courant, or leave {name} out"
            )
        if kind in VARIANTS:
            experiment = VARIANTS[kind](base).derive(model=own)
        else:
            # Named anew, so that the paper's own epochs and batches do not come with its models.
            anew = base.derive(name=f"{base.name}-benchmark")
            placed = compared(anew, kind, has_mesh=dataset[dataset.cases()[0]].mesh is not None)
            experiment = placed.derive(model=own)
        open_problem(experiment, dataset)
        check_graphs_of_its_own(experiment)
    except InputError as error:
        raise InputError(
            f"model {name} cannot be used on {dataset.url} {dataset.version}: {error}"
        ) from error
    return Contender(name, experiment)
