"""The paper's errors on the community benchmarks stand beside ours, with what sets them apart."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import simgen
from courant.data_config import TransientData
from courant.experiment import Experiment
from courant.recipes import get_recipe
from courant.sweeps.benchmark_table import PaperNumbers, paper_numbers
from simgen.imports import Field, Source, SourceCase, import_cases, imported_schema
from simgen.store.read import Dataset
from tests.sweeps.in_process import planned

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


def publish(folder: Path, base: Experiment, source: str) -> Dataset:
    """Publish four cases of 9 points and random values, of a recipe's fields."""
    random, data, dimension = np.random.default_rng(0), base.data, base.model.dimension
    components = {"velocity": 3} if dimension == 3 else {}
    fields = [
        Field(name, "1", tuple(f"{name}{n}" for n in range(components.get(name, 1))))
        for name in data.fields
    ]
    if base.family.startswith("darcy"):
        fields.append(Field("permeability", "1", ("a",), role="given"))
    transient = isinstance(data, TransientData)
    schema = imported_schema(
        base.family,
        dimension=dimension,
        transient=transient,
        fields=tuple(fields),
        source=Source(source, "https://example.org", "none"),
    )

    def cases() -> Iterator[SourceCase]:
        shape = (21, 9) if transient else (9,)
        for number, split in enumerate(("train", "train", "validation", "test")):
            yield SourceCase(
                f"case-{number}",
                random.random((9, dimension)),
                {each.name: random.random((*shape, len(each.components))) for each in fields},
                time=data.step_s * np.arange(21) if isinstance(data, TransientData) else None,
                split=split,
            )

    return simgen.open_dataset(import_cases(str(folder / base.family), schema, cases()).url)


def found(base: Experiment, models: list[str], dataset: Dataset, folder: Path) -> PaperNumbers:
    return paper_numbers(planned(dataset, base, folder, models, "1epoch", sizes={}), dataset)


@pytest.mark.parametrize("family", PRINTED)
def test_community_benchmarks_come_with_the_papers_numbers(family: str, tmp_path: Path) -> None:
    base = get_recipe(family)
    dataset = publish(tmp_path, base, f"{family}, as published")
    none = NOT_PRINTED.get(family, [])
    numbers = found(base, [*PRINTED[family], *none], dataset, tmp_path)
    assert numbers.nmae == PRINTED[family]
    assert ", here 2; test cases" in numbers.words and ", here 9" in numbers.words
    assert ("ten steps predicted from ten" in numbers.words) == base.model.transient


def test_another_task_or_a_dataset_of_ones_own_has_no_numbers(tmp_path: Path) -> None:
    base = get_recipe("diffusion-sorption").derive(data={"window_steps": 5})
    numbers = found(base, ["courant"], publish(tmp_path, base, "generated"), tmp_path)
    assert numbers.nmae == {} and "another (steps of a rollout)" in numbers.words
    base = get_recipe("elasticity").model_copy(update={"family": "beams"})
    numbers = found(base, ["courant"], publish(tmp_path, base, "mine"), tmp_path)
    assert numbers.nmae == {} and "has no dataset beams" in numbers.words
