"""Describe a benchmark: what is compared on which data, at which budget, in which folder.

    <out>/
        request.json                  what was asked for
        trials/<run>/                 run directories, named by the content of their experiments
        table.md table.csv table.json figure.png
        ray/                          Ray Tune's notes

A benchmark that is run again finds its finished trials there. More models or seeds extend it; other
data, another budget or another recipe are another benchmark, with a folder of its own.

Contenders are experiments that differ in nothing but the model. `courant` is the recipe itself, a
baseline's kind puts that model in its place, and the paper's variants of Courant change its windows
or anchors. `NAME-x2` is any of them with two members. A search space gives its settings
(ablations). The budget is epochs, or processor time, the same for every model.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from courant.experiment import MACHINE, MAX_EPOCHS, Experiment, parse_experiment
from courant.models import kinds
from courant.problems import open_problem
from courant.recipes.compared import compared
from courant.recipes.legible import legible, placed_anchors
from courant.runs.directory import RunDirectory
from courant.sweeps.search_space import BASELINE, CHOICE, SearchSpace, Setting, label, show
from courant.training.step import check_graphs_of_its_own
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset


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


_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
MOST = 1e9
"""Of any unit"""
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(epochs?|s|min|h)\s*")


@dataclass(frozen=True)
class Budget:
    """What each trial may spend on training."""

    unit: Literal["epochs", "processor"]
    amount: float
    """Epochs, or seconds of processor time"""

    @property
    def text(self) -> str:
        if self.unit == "epochs":
            return f"{self.amount:.0f} epochs"
        return f"{duration(self.amount)} of processor time"

    @property
    def key(self) -> str:
        """Return the text, with all digits where it leaves some out."""
        if self.unit == "epochs":
            return self.text
        size, _ = _unit_of(self.amount)
        exact = f"{self.amount!r} s of processor time"
        return self.text if float(f"{self.amount / size:.3g}") * size == self.amount else exact

    def epochs(self, model: str, epoch_s: float) -> int:
        """Return the epochs that a model can train, given its processor time for one.

        InputError where that is less than one.
        """
        wanted = self.amount if self.unit == "epochs" else self.amount / epoch_s
        if wanted < 1:
            raise InputError(
                f"budget {duration(self.amount)} is too small for one epoch of {model}, which takes"
                f" {duration(epoch_s)} of processor time; raise --budget, leave {model} out, or"
                " lower training.samples_per_epoch in an experiment of your own"
            )
        return min(int(wanted), MAX_EPOCHS)


def parse_budget(text: str) -> Budget:
    """Parse `40 epochs`, `90s`, `30min` or `2h`; InputError for anything else."""
    found = _TEXT.fullmatch(text)
    amount = float(found.group(1)) if found else 0.0
    if found is None or not amount or amount > MOST:
        raise InputError(
            f"budget '{text}' is none; give epochs (40epochs) or processor time of each training"
            " (90s, 30min, 2h)"
        )
    if found.group(2).startswith("epoch"):
        if amount != int(amount) or amount > MAX_EPOCHS:
            raise InputError(f"budget '{text}': give whole epochs, {MAX_EPOCHS:,} at most")
        return Budget("epochs", amount)
    return Budget("processor", amount * _UNITS[found.group(2)])


def duration(seconds: float) -> str:
    """`12 s`, `3.5 min`, `2 h`"""
    size, unit = _unit_of(seconds)
    return f"{seconds / size:.3g} {unit}"


def _unit_of(seconds: float) -> tuple[float, str]:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return size, unit
    return 1.0, "s"


REQUEST = "request.json"
RATES = (3e-4, 1e-3, 3e-3)
"""Learning rates that are tried for every model"""
SEARCH_SHARE = 0.25
"""Budget of each trial of the search, over that of a trial that counts"""
MOST_SEEDS = 100


@dataclass(frozen=True)
class Request:
    """A benchmark, complete but for what its own trials find out."""

    base: Experiment
    contenders: tuple[Contender, ...]
    dataset_url: str
    version: str
    snapshot_id: str
    budget: Budget
    rates: tuple[float, ...]
    """Learning rates to choose from; one alone is taken as it is"""
    seeds: int
    """Trainings of each model, with the recipe's seed and those after it"""
    best: int | None
    """So many of the models get all seeds, by their first seed's validation error; None = all"""
    folder: RunDirectory
    space: str | None = None
    """The search space whose settings are compared; None for models by name"""
    left_out: tuple[str, ...] = ()
    """A line for each setting of the space that means nothing to the recipe"""

    @property
    def searches(self) -> bool:
        return len(self.rates) > 1

    def identity(self) -> dict[str, Any]:
        """Return what makes this another benchmark than one in the same folder."""
        return _identity(self.base, self.snapshot_id, self.budget, self.rates, self.space)

    def write(self) -> None:
        """Write request.json; InputError where the folder holds another benchmark."""
        self.check_folder()
        self.folder.write_json(
            REQUEST,
            {
                **self.identity(),
                "dataset": self.dataset_url,
                "version": self.version,
                "models": [each.name for each in self.contenders],
                "seeds": self.seeds,
                "best": self.best,
            },
        )

    def to_json(self) -> dict[str, Any]:
        """Return the request for a job on a cluster."""
        plain = asdict(replace(self, base=None, contenders=(), folder=None))  # type: ignore[arg-type]
        models = [
            {"name": each.name, "experiment": each.experiment.model_dump(mode="json")}
            for each in self.contenders
        ]
        base = self.base.model_dump(mode="json")
        return {**plain, "base": base, "contenders": models, "folder": self.folder.url}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Request:
        """Return the request that `to_json` was called on."""
        contenders = tuple(
            Contender(each["name"], parse_experiment(each["experiment"]))
            for each in content["contenders"]
        )
        read = {
            "base": parse_experiment(content["base"]),
            "contenders": contenders,
            "budget": Budget(**content["budget"]),
            "rates": tuple(content["rates"]),
            "folder": RunDirectory(content["folder"]),
            "left_out": tuple(content["left_out"]),
        }
        return cls(**{**content, **read})

    def check_folder(self) -> None:
        """Raise InputError where the folder holds another benchmark."""
        if not self.folder.exists(REQUEST):
            return
        found = self.folder.read_object(REQUEST)
        mine = json.loads(json.dumps(self.identity()))
        other = [key for key, value in mine.items() if found.get(key) != value]
        if other:
            raise InputError(
                f"{self.folder.url} holds another benchmark: its {', '.join(other)} is not the same"
                " as asked for now; give another --out"
            )


def make_request(
    base: Experiment,
    contenders: Sequence[Contender],
    dataset: Dataset,
    budget: Budget,
    *,
    runs_url: str,
    out: str | None = None,
    rates: Sequence[float] = RATES,
    seeds: int = 1,
    best: int | None = None,
    space: SearchSpace | None = None,
) -> Request:
    """Check a benchmark and give it its folder: `out`, or one among the runs named by its content.

    InputError for a dataset without test or validation cases, and for numbers that make no sense.
    """
    for split, use in (("train", "train on"), ("validation", "choose by"), ("test", "judge by")):
        if not dataset.cases(split):
            raise InputError(
                f"dataset {dataset.url} {dataset.version} has no {split} case to {use}; a benchmark"
                " needs all three splits: generate more cases"
            )
    if not contenders:
        raise InputError("no model is named; give --models courant,transolver or --space features")
    if not 1 <= seeds <= MOST_SEEDS:
        raise InputError(f"{seeds} seeds; a benchmark has 1 to {MOST_SEEDS}")
    if best is not None and best < 1:
        raise InputError(f"best = {best}: at least one model gets all seeds")
    tried = tuple(sorted(set(rates)))
    if not tried or not all(0 < rate < math.inf for rate in tried):
        raise InputError("learning rates are numbers above 0, such as --rates 3e-4,1e-3,3e-3")
    name = space.name if space else None
    if out is None:
        content = _identity(base, dataset.snapshot_id, budget, tried, name)
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
        out = f"{runs_url.rstrip('/')}/{base.name}-benchmark-{digest}"
    return Request(
        base=base,
        contenders=tuple(contenders),
        dataset_url=dataset.url,
        version=dataset.version,
        snapshot_id=dataset.snapshot_id,
        budget=budget,
        rates=tried,
        seeds=seeds,
        best=best,
        folder=RunDirectory(out),
        space=name,
        left_out=space.left_out(base) if space else (),
    )


def _identity(
    base: Experiment, snapshot_id: str, budget: Budget, rates: Sequence[float], space: str | None
) -> dict[str, Any]:
    return {
        "recipe": base.model_dump(mode="json", exclude=MACHINE),
        "snapshot": snapshot_id,
        "budget": budget.key,
        "rates": list(rates),
        "space": space,
    }
