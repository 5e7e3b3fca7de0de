"""The errors that the paper prints, beside ours, and what sets its data and trainings apart.

tab:bench-unstr, tab:bench-str, and tab:feature_ablation_nmae for Courant's variants; all three are
captioned NMAE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from courant.data_config import SteadyData, TransientData
from courant.experiment import Experiment
from courant.models import BASELINES, count
from courant.recipes import RECIPES, get_recipe
from courant.recipes.compared import benchmark_of, compared
from courant.sweeps.benchmark import COURANT, Benchmark
from simgen.cases import FAMILIES, get_family

if TYPE_CHECKING:
    from simgen.store.read import Dataset

_ABOUT = 1.15
"""Parameters over the paper's, up to which a model counts as of its size"""
_MEASURE = (
    "Its tables of these benchmarks are captioned NMAE, while its text has them judged by"
    " relative L2, the mean over test cases: hold the numbers against both columns"
)
_BUDGET = "each model trained for epochs of its own on one A100, here by one budget"


class PaperNumbers(NamedTuple):
    """The paper's errors by contender, and what has to be known before they are compared."""

    nmae: dict[str, float]
    words: str


def paper_numbers(benchmark: Benchmark, dataset: Dataset) -> PaperNumbers:
    """Return the paper's numbers for the contenders, none where the task is another."""
    base, family = benchmark.base, benchmark.base.family
    known_as = benchmark_of(family) or family
    if known_as not in _ERRORS:
        return PaperNumbers({}, f"The paper has no dataset {family}: there is nothing to compare.")
    # Published cases without a recipe of their own share the other one.
    recipe = get_recipe(family if family in RECIPES else known_as)
    asked, theirs = _task(base), _task(recipe)
    if asked != theirs:
        other = ", ".join(name for name in theirs if asked.get(name) != theirs[name])
        return PaperNumbers({}, f"The paper's task is another ({other}): its errors are left out.")
    numbers = {
        name: nmae
        for name in benchmark.contenders
        if (nmae := _number(known_as, name, benchmark.space is not None)) is not None
    }
    published = known_as in BENCHMARKS
    apart = (_apart_from_published if published else _apart_from_own)(base, recipe, dataset)
    other_sizes = []
    for name, experiment in benchmark.contenders.items():
        if (kind := experiment.model.kind) not in (COURANT, *BASELINES):
            continue
        named = recipe if kind == COURANT else compared(recipe, kind)
        paper, here = count(named.model), count(experiment.model)
        if paper and here and not 1 / _ABOUT < here / paper < _ABOUT:
            other_sizes.append(name)
    if other_sizes:
        apart.append(f"models of other sizes than here ({', '.join(other_sizes)})")
    data = "the published data" if published else "data of its own"
    words = f"The paper's numbers are of {data}: {'; '.join([*apart, _BUDGET])}."
    return PaperNumbers(numbers, f"{words} {_MEASURE}." if published else words)


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


def _apart_from_own(base: Experiment, recipe: Experiment, dataset: Dataset) -> list[str]:
    """Name what differs from the paper's own cases, which are not published."""
    family = base.family
    here = sum(len(dataset.cases(split)) for split in ("train", "validation", "test"))
    apart = [f"{DESIGNS[family]} designs, here {here}"] if here != DESIGNS[family] else []
    settings = dataset[dataset.cases()[0]].settings
    wanted = get_family(family).settings("paper", {}) if family in FAMILIES else {}
    apart += [
        f"{name} {value:g} in the preset that follows it, here {settings[name]:g}"
        for name, value in wanted.items()
        if name in settings and settings[name] != value
    ]
    if isinstance(base.data, SteadyData) and base.data.scaled_by:
        apart.append("fields learned as they are, here relative to design parameters")
    return apart


def _apart_from_published(base: Experiment, recipe: Experiment, dataset: Dataset) -> list[str]:
    """Name what differs from the published data that the paper took."""
    num_train, num_test, num_points = BENCHMARKS[benchmark_of(base.family) or base.family]
    source = dataset.schema.source
    apart = []
    if source is None or source.name != f"{base.family}, as published":
        apart.append("those data are generated anew here, by other seeds and a solver")
    train, test = (len(dataset.cases(split)) for split in ("train", "test"))
    if (train, test) != (num_train, num_test):
        apart.append(f"{num_train} training and {num_test} test cases, here {train} and {test}")
    points = dataset[dataset.cases()[0]].num_points
    if points != num_points:
        apart.append(f"{num_points} points a case, here {points}")
    if isinstance(base.data, TransientData):
        apart.append("ten steps predicted from ten, here from every time of a case in turn")
    theirs, ours = recipe.training.derivative_weight, base.training.derivative_weight
    if ours != theirs:
        apart.append(f"derivatives weighed by {theirs:g} in the loss, here by {ours:g}")
    return apart


def _number(family: str, name: str, is_ablation: bool) -> float | None:
    """Return the error of a contender, None where the paper has none."""
    # Both tables have Courant's own on the paper's cases, rounded apart.
    if name in _COLUMNS and (not is_ablation or family not in OWN_CASES):
        return _ERRORS[family][_COLUMNS.index(name)]
    row = ABLATIONS.get("Baseline" if name == COURANT else _ROWS.get(name, name))
    return row[OWN_CASES.index(family)] if row and family in OWN_CASES else None


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
_ROWS = {
    "courant-gwa": "GWA (enc + dec)",
    "courant-learned-anchors": "Learned anchors",
    "courant-abstract-queries": "Abstract learned queries",
}
"""Rows of the ablations, by the contender that they are"""
_COLUMNS = ("courant", "transolver", "upt", "mgn", "enf", "fno", "factformer")
_ERRORS: dict[str, tuple[float | None, ...]] = {
    "branched-pipe": (0.096, 0.086, 0.31, 0.22, None, None, None),
    "centrifugal-pump": (0.17, 0.29, 0.41, None, None, None, None),
    "cylinder-flow": (0.17, 0.13, 0.28, 0.13, 0.23, None, None),
    "elasticity": (0.021, 0.0057, 0.013, None, None, None, None),
    "darcy-flow": (0.0057, 0.0049, 0.016, None, None, 0.0085, 0.0042),
    "airfoil": (0.014, 0.0019, 0.050, None, None, 0.0021, 0.0032),
    "pipe": (0.014, 0.0018, 0.0059, None, None, 0.0022, 0.0013),
    "diffusion-sorption": (0.0038, 0.0039, 0.019, None, 0.0049, 0.0039, None),
    "compressible-flow-3d": (0.017, 0.018, 0.017, None, 0.038, 0.019, None),
}
"""tab:bench-unstr, where elasticity is too, and tab:bench-str, by dataset"""
DESIGNS = {"branched-pipe": 300, "centrifugal-pump": 300, "cylinder-flow": 200}
"""tab:dataset-details"""


BENCHMARKS = {
    "elasticity": (1000, 200, 972),
    "darcy-flow": (1000, 200, 85 * 85),
    "airfoil": (1000, 200, 221 * 51),
    "pipe": (1000, 200, 129 * 129),
    "diffusion-sorption": (9000, 1000, 1024),
    "compressible-flow-3d": (1000, 200, 16**3),
}
"""Training and test cases, and points of a case at the paper's resolution, of the community
benchmarks in tab:courant-training and the text below it
"""
