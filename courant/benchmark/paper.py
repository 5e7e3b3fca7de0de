"""Hold the paper's errors, and say in words what sets its data and trainings apart from ours.

tab:bench-unstr, and tab:feature_ablation_nmae for Courant's variants; both hold the NMAE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from courant.benchmark.contenders import COURANT
from courant.benchmark.request import Request
from courant.data_config import SteadyData, TransientData
from courant.experiment import Experiment
from courant.models import BASELINES, count
from courant.recipes import RECIPES
from courant.recipes.compared import compared
from simgen.cases import FAMILIES, get_family

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset

_ABLATIONS: dict[str, tuple[float | None, float | None, float | None]] = {
    "Baseline": (0.097, 0.18, 0.17),
    "GWA (enc + dec)": (0.11, 0.17, None),
    "GWA in decoder only": (0.10, 0.17, None),
    "GWA in encoder only": (0.10, 0.18, None),
    "Learned anchors": (0.089, 0.16, 0.19),
    "Abstract learned queries": (0.094, 0.16, 0.19),
    "No shared coord emb.": (0.096, 0.18, 0.19),
    "No distance field": (0.19, 0.22, 0.21),
    "No global data": (0.10, 0.18, None),
    "No boundary PC (full-mesh)": (0.096, 0.19, None),
    "MLP ODE integrator": (None, None, 0.18),
}
"""Rows of tab:feature_ablation_nmae: branched pipe, pump, cylinder; fig:ablations has no numbers"""
_FAMILIES = ("branched-pipe", "centrifugal-pump", "cylinder-flow")
_MODELS: dict[str, dict[str, float]] = {
    "branched-pipe": {"mgn": 0.22, "transolver": 0.086, "upt": 0.31, "courant": 0.096},
    "centrifugal-pump": {"transolver": 0.29, "upt": 0.41, "courant": 0.17},
    "cylinder-flow": {"enf": 0.23, "mgn": 0.13, "transolver": 0.13, "upt": 0.28, "courant": 0.17},
}
"""tab:bench-unstr"""
_ROWS = {
    "courant-gwa": "GWA (enc + dec)",
    "courant-learned-anchors": "Learned anchors",
    "courant-abstract-queries": "Abstract learned queries",
}
_DESIGNS = {"branched-pipe": 300, "centrifugal-pump": 300, "cylinder-flow": 200}
"""tab:dataset-details"""
_ABOUT = 1.15
"""Parameters over the paper's, up to which a model counts as of its size"""


@dataclass(frozen=True)
class PaperNumbers:
    """The paper's NMAE by contender, and what has to be known before they are compared."""

    nmae: dict[str, float]
    words: str


def paper_numbers(request: Request, dataset: Dataset) -> PaperNumbers:
    """Return the paper's numbers for the contenders, none where the task is another."""
    family = request.base.family
    if family not in _FAMILIES:
        return PaperNumbers({}, f"The paper has no dataset {family}: there is nothing to compare.")
    asked, theirs = _task(request.base), _task(RECIPES[family]())
    if asked != theirs:
        other = ", ".join(name for name in theirs if asked.get(name) != theirs[name])
        return PaperNumbers({}, f"The paper's task is another ({other}): its errors are left out.")
    is_ablation = request.space is not None
    known = {each.name: _number(family, each.name, is_ablation) for each in request.contenders}
    numbers = {name: nmae for name, nmae in known.items() if nmae is not None}
    return PaperNumbers(numbers, _words(request, dataset))


def _number(family: str, name: str, is_ablation: bool) -> float | None:
    """Return the number of a table's row; both tables have one for the baseline, rounded apart."""
    if not is_ablation and name in _MODELS[family]:
        return _MODELS[family][name]
    row = _ABLATIONS.get("Baseline" if name == COURANT else _ROWS.get(name, name))
    return row[_FAMILIES.index(family)] if row else None


def _task(experiment: Experiment) -> dict[str, Any]:
    data = experiment.data
    task: dict[str, Any] = {"modelled fields": data.fields}
    if isinstance(data, TransientData):
        task |= {
            "steps of a rollout": data.window_steps,
            "time of a step": data.step_s,
            "known states": data.input_steps,
        }
    return task


def _words(request: Request, dataset: Dataset) -> str:
    family = request.base.family
    here = sum(len(dataset.cases(split)) for split in ("train", "validation", "test"))
    apart = [f"{_DESIGNS[family]} designs, here {here}"] if here != _DESIGNS[family] else []
    settings = dataset[dataset.cases()[0]].settings
    wanted = get_family(family).settings("paper", {}) if family in FAMILIES else {}
    apart += [
        f"{name} {value:g} in the preset that follows it, here {settings[name]:g}"
        for name, value in wanted.items()
        if name in settings and settings[name] != value
    ]
    if isinstance(request.base.data, SteadyData) and request.base.data.scaled_by:
        apart.append("fields learned as they are, here relative to design parameters")
    others = _other_sizes(request)
    apart += [f"models of other sizes than here ({', '.join(others)})"] if others else []
    apart.append("each model trained for epochs of its own on one A100, here by one budget")
    return f"The paper's numbers are of data of its own: {'; '.join(apart)}."


def _other_sizes(request: Request) -> list[str]:
    """Name the models whose number of parameters is not about the paper's."""
    recipe = RECIPES[request.base.family]()
    other = []
    for each in request.contenders:
        if each.kind not in (COURANT, *BASELINES):
            continue
        named = recipe if each.kind == COURANT else compared(recipe, each.kind)
        theirs, ours = count(named.model), count(each.experiment.model)
        if theirs and ours and not 1 / _ABOUT < ours / theirs < _ABOUT:
            other.append(each.name)
    return other
