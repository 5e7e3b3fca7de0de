"""The errors that the paper prints, beside ours, and what sets its data and trainings apart.

tab:bench-unstr, tab:bench-str, and tab:feature_ablation_nmae for Courant's variants; all three are
captioned NMAE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from courant.benchmark.request import COURANT, Request
from courant.data_config import SteadyData, TransientData
from courant.experiment import Experiment
from courant.models import BASELINES, count
from courant.recipes import RECIPES
from courant.recipes.community_baselines import benchmark_of
from courant.recipes.compared import compared
from simgen.cases import FAMILIES, get_family

if TYPE_CHECKING:
    from simgen.store.read import Dataset


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


ABLATIONS: dict[str, tuple[float | None, float | None, float | None]] = {
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
OWN_CASES = ("branched-pipe", "centrifugal-pump", "cylinder-flow")
"""The paper's own cases, in the order of these columns"""
VARIANTS = {
    "courant-gwa": "GWA (enc + dec)",
    "courant-learned-anchors": "Learned anchors",
    "courant-abstract-queries": "Abstract learned queries",
}
"""Rows of the ablations, by the contender that they are"""
MODELS: dict[str, dict[str, float]] = {
    "branched-pipe": {"mgn": 0.22, "transolver": 0.086, "upt": 0.31, "courant": 0.096},
    "centrifugal-pump": {"transolver": 0.29, "upt": 0.41, "courant": 0.17},
    "cylinder-flow": {"enf": 0.23, "mgn": 0.13, "transolver": 0.13, "upt": 0.28, "courant": 0.17},
    "elasticity": {"transolver": 0.0057, "upt": 0.013, "courant": 0.021},
    "darcy-flow": {
        "fno": 0.0085,
        "factformer": 0.0042,
        "transolver": 0.0049,
        "upt": 0.016,
        "courant": 0.0057,
    },
    "airfoil": {
        "fno": 0.0021,
        "factformer": 0.0032,
        "transolver": 0.0019,
        "upt": 0.050,
        "courant": 0.014,
    },
    "pipe": {
        "fno": 0.0022,
        "factformer": 0.0013,
        "transolver": 0.0018,
        "upt": 0.0059,
        "courant": 0.014,
    },
    "diffusion-sorption": {
        "enf": 0.0049,
        "fno": 0.0039,
        "transolver": 0.0039,
        "upt": 0.019,
        "courant": 0.0038,
    },
    "compressible-flow-3d": {
        "enf": 0.038,
        "fno": 0.019,
        "transolver": 0.018,
        "upt": 0.017,
        "courant": 0.017,
    },
}
"""tab:bench-unstr, where elasticity stands too, and tab:bench-str, by dataset"""
DESIGNS = {"branched-pipe": 300, "centrifugal-pump": 300, "cylinder-flow": 200}
"""tab:dataset-details"""


@dataclass(frozen=True)
class Benchmark:
    """How large a community benchmark is in tab:courant-training and the text below it."""

    num_train: int
    num_test: int
    num_points: int
    """At the resolution of the paper"""


BENCHMARKS = {
    "elasticity": Benchmark(1000, 200, 972),
    "darcy-flow": Benchmark(1000, 200, 85 * 85),
    "airfoil": Benchmark(1000, 200, 221 * 51),
    "pipe": Benchmark(1000, 200, 129 * 129),
    "diffusion-sorption": Benchmark(9000, 1000, 1024),
    "compressible-flow-3d": Benchmark(1000, 200, 16**3),
}


def number(family: str, name: str, is_ablation: bool) -> float | None:
    """Return the error of a contender; both tables have Courant's own, rounded apart.

    `family` is one of `MODELS`; None where the paper has no such row.
    """
    if name in MODELS[family] and (not is_ablation or family not in OWN_CASES):
        return MODELS[family][name]
    row = ABLATIONS.get("Baseline" if name == "courant" else VARIANTS.get(name, name))
    return row[OWN_CASES.index(family)] if row and family in OWN_CASES else None
