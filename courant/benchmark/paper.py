"""Put the paper's errors beside ours, and say in words what sets its data and trainings apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from courant.benchmark.contenders import COURANT
from courant.benchmark.paper_tables import BENCHMARKS, DESIGNS, MODELS, number
from courant.benchmark.request import Request
from courant.data_config import SteadyData, TransientData
from courant.experiment import Experiment
from courant.models import BASELINES, count
from courant.recipes import RECIPES
from courant.recipes.community_baselines import benchmark_of
from courant.recipes.compared import compared
from simgen.cases import FAMILIES, get_family

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset

_ABOUT = 1.15
"""Parameters over the paper's, up to which a model counts as of its size"""
_MEASURE = (
    "Its tables of these benchmarks are captioned NMAE, while its text says that they are judged by"
    " relative L2, the mean over test cases: hold the numbers against both columns"
)
_BUDGET = "each model trained for epochs of its own on one A100, here by one budget"


@dataclass(frozen=True)
class PaperNumbers:
    """The paper's errors by contender, and what has to be known before they are compared."""

    nmae: dict[str, float]
    words: str


def paper_numbers(request: Request, dataset: Dataset) -> PaperNumbers:
    """Return the paper's numbers for the contenders, none where the task is another."""
    family = request.base.family
    known_as = benchmark_of(family) or family
    if known_as not in MODELS:
        return PaperNumbers({}, f"The paper has no dataset {family}: there is nothing to compare.")
    asked, theirs = _task(request.base), _task(_recipe(family))
    if asked != theirs:
        other = ", ".join(name for name in theirs if asked.get(name) != theirs[name])
        return PaperNumbers({}, f"The paper's task is another ({other}): its errors are left out.")
    is_ablation = request.space is not None
    known = {each.name: number(known_as, each.name, is_ablation) for each in request.contenders}
    numbers = {name: nmae for name, nmae in known.items() if nmae is not None}
    words = _words_of_benchmark if known_as in BENCHMARKS else _words_of_family
    return PaperNumbers(numbers, words(request, dataset))


def _recipe(family: str) -> Experiment:
    """Return the paper's run; published cases without a recipe of their own share the other one."""
    return RECIPES[family if family in RECIPES else benchmark_of(family) or family]()


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


def _words_of_family(request: Request, dataset: Dataset) -> str:
    """Say what differs from the paper's own cases, which are not published."""
    family = request.base.family
    here = sum(len(dataset.cases(split)) for split in ("train", "validation", "test"))
    apart = [f"{DESIGNS[family]} designs, here {here}"] if here != DESIGNS[family] else []
    settings = dataset[dataset.cases()[0]].settings
    wanted = get_family(family).settings("paper", {}) if family in FAMILIES else {}
    apart += [
        f"{name} {value:g} in the preset that follows it, here {settings[name]:g}"
        for name, value in wanted.items()
        if name in settings and settings[name] != value
    ]
    if isinstance(request.base.data, SteadyData) and request.base.data.scaled_by:
        apart.append("fields learned as they are, here relative to design parameters")
    apart += [*_other_sizes(request), _BUDGET]
    return f"The paper's numbers are of data of its own: {'; '.join(apart)}."


def _words_of_benchmark(request: Request, dataset: Dataset) -> str:
    """Say what differs from the published data that the paper took."""
    family = request.base.family
    theirs = BENCHMARKS[benchmark_of(family) or family]
    source = dataset.schema.source
    published = source is not None and source.name == f"{family}, as published"
    apart = [] if published else ["those data are generated anew here, by other seeds and a solver"]
    num_train, num_test = (len(dataset.cases(split)) for split in ("train", "test"))
    if (num_train, num_test) != (theirs.num_train, theirs.num_test):
        apart.append(
            f"{theirs.num_train} training and {theirs.num_test} test cases, here {num_train} and"
            f" {num_test}"
        )
    num_points = dataset[dataset.cases()[0]].num_points
    if num_points != theirs.num_points:
        apart.append(f"{theirs.num_points} points a case, here {num_points}")
    if isinstance(request.base.data, TransientData):
        apart.append("ten steps predicted from ten, here from every time of a case in turn")
    weight = _recipe(family).training.derivative_weight
    if request.base.training.derivative_weight != weight:
        apart.append(
            f"derivatives weighed by {weight:g} in the loss, here by"
            f" {request.base.training.derivative_weight:g}"
        )
    apart += [*_other_sizes(request), _BUDGET]
    return f"The paper's numbers are of the published data: {'; '.join(apart)}. {_MEASURE}."


def _other_sizes(request: Request) -> list[str]:
    """Name the models whose number of parameters is not about the paper's, in one phrase."""
    recipe = _recipe(request.base.family)
    other = []
    for each in request.contenders:
        if each.kind not in (COURANT, *BASELINES):
            continue
        named = recipe if each.kind == COURANT else compared(recipe, each.kind)
        theirs, ours = count(named.model), count(each.experiment.model)
        if theirs and ours and not 1 / _ABOUT < ours / theirs < _ABOUT:
            other.append(each.name)
    return [f"models of other sizes than here ({', '.join(other)})"] if other else []
