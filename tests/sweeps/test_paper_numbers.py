"""The paper's errors are beside those of a benchmark of the same task."""

import pytest

from courant.experiment import Experiment
from courant.recipes import get_recipe
from courant.sweeps.benchmark import Benchmark, parse_budget
from courant.sweeps.benchmark_table import paper_errors

PRINTED: dict[str, dict[str, float]] = {
    "elasticity": {"courant": 2.1e-2, "transolver": 5.7e-3, "upt": 1.3e-2},
    "airfoil": {"courant": 1.4e-2, "fno": 2.1e-3, "factformer": 3.2e-3, "upt": 5.0e-2},
    "pipe": {"courant": 1.4e-2, "fno": 2.2e-3, "factformer": 1.3e-3, "transolver": 1.8e-3},
    "darcy-flow": {"courant": 5.7e-3, "fno": 8.5e-3, "factformer": 4.2e-3, "upt": 1.6e-2},
    "darcy-flow-published": {"courant": 5.7e-3, "transolver": 4.9e-3},
    "diffusion-sorption": {"courant": 3.8e-3, "enf": 4.9e-3, "fno": 3.9e-3, "upt": 1.9e-2},
    "diffusion-sorption-published": {"courant": 3.8e-3, "transolver": 3.9e-3},
    "compressible-flow-3d": {"courant": 1.7e-2, "enf": 3.8e-2, "fno": 1.9e-2, "upt": 1.7e-2},
}
"""tab:bench-unstr and tab:bench-str"""
NOT_PRINTED = {"elasticity": ["fno"], "airfoil": ["mgn"], "diffusion-sorption": ["factformer"]}


def found(base: Experiment, models: list[str]) -> dict[str, float]:
    recorded = dict.fromkeys(("dataset_url", "version", "snapshot_id", "url"), "unused")
    contenders = dict.fromkeys(models, base)
    budget = parse_budget("1epoch")
    return paper_errors(Benchmark(base=base, contenders=contenders, budget=budget, **recorded))


@pytest.mark.parametrize("family", PRINTED)
def test_community_benchmarks_come_with_the_papers_numbers(family: str) -> None:
    models = [*PRINTED[family], *NOT_PRINTED.get(family, [])]
    assert found(get_recipe(family), models) == PRINTED[family]


def test_another_task_or_a_dataset_of_ones_own_has_no_numbers() -> None:
    shorter = get_recipe("diffusion-sorption").derive(data={"window_steps": 5})
    beams = get_recipe("elasticity").model_copy(update={"family": "beams"})
    assert found(shorter, ["courant"]) == found(beams, ["courant"]) == {}
