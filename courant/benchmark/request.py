"""Describe a benchmark: what is compared on which data, at which budget, in which folder.

    <out>/
        request.json                  what was asked for
        trials/<run>/                 run directories, named by the content of their experiments
        table.md table.csv table.json figure.png
        ray/                          Ray Tune's notes

A benchmark that is run again finds its finished trials there. More models or seeds extend it; other
data, another budget or another recipe are another benchmark, with a folder of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from courant.benchmark.budget import Budget
from courant.benchmark.contenders import Contender
from courant.experiment import MACHINE, Experiment, parse_experiment, without_younger
from courant.runs.directory import RunDirectory
from courant.sweeps.search_space import SearchSpace
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset

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
        if isinstance(found.get("recipe"), dict):  # an older release wrote defaults as well
            found["recipe"] = without_younger(found["recipe"])
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
        "recipe": without_younger(base.model_dump(mode="json", exclude=MACHINE)),
        "snapshot": snapshot_id,
        "budget": budget.key,
        "rates": list(rates),
        "space": space,
    }
