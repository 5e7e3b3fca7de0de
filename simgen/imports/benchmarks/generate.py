"""Generate a public benchmark's data as a dataset version, case by case, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simgen.errors import InputError
from simgen.imports.benchmarks import darcy, diffusion_sorption, elasticity
from simgen.imports.importing import Imported, import_cases
from simgen.imports.source_case import SourceCase, UnreadCase
from simgen.store.schema import Schema


@dataclass(frozen=True)
class Generator:
    """How the cases of a benchmark are made."""

    name: str
    """How cases are named"""
    schema: Callable[[Any], Schema]
    case: Callable[[int, str, Any], SourceCase]
    """From a case's number, its split and the grid"""
    grid: Any
    """The published one"""
    revision: int
    num_train: int
    num_test: int
    test_from: int
    """The number of the first test case: training cases, however many, stay below it"""


VALIDATION_FROM = 100_000
"""The number of the first validation case: no published case has one as high"""


GENERATORS = {
    "darcy": Generator(
        darcy.NAME,
        darcy.darcy_schema,
        darcy.darcy_case,
        darcy.DarcyGrid(),
        darcy.REVISION,
        1000,
        200,
        50_000,
    ),
    "diffusion-sorption": Generator(
        diffusion_sorption.NAME,
        diffusion_sorption.sorption_schema,
        diffusion_sorption.sorption_case,
        diffusion_sorption.SorptionGrid(),
        diffusion_sorption.REVISION,
        9000,
        1000,
        9000,
    ),
    "elasticity": Generator(
        elasticity.NAME,
        elasticity.elasticity_schema,
        elasticity.elasticity_case,
        elasticity.CellGrid(),
        elasticity.REVISION,
        1000,
        200,
        50_000,
    ),
}


def get_generator(name: str) -> Generator:
    """Return the generator called `name`; InputError lists the known ones."""
    if name not in GENERATORS:
        raise InputError(f"benchmark '{name}' is unknown; choose one of {', '.join(GENERATORS)}")
    return GENERATORS[name]


def generate_benchmark(
    name: str,
    url: str,
    num_train: int,
    num_test: int,
    *,
    num_validation: int = 0,
    grid: Any = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Imported:
    """Solve the cases that the dataset at `url` lacks, and publish them as a version.

    Run it again after an interruption, or with larger numbers. Validation cases, which the
    published benchmarks do not have, are further ones.
    """
    made = get_generator(name)
    grid = made.grid if grid is None else grid
    most = {"training": made.test_from, "test": VALIDATION_FROM - made.test_from}
    asked = {"training": num_train, "test": num_test}
    if num_train < 1 or min(num_test, num_validation) < 0 or any(asked[k] > most[k] for k in most):
        raise InputError(
            f"{num_train} training, {num_validation} validation and {num_test} test cases: expected"
            f" 1 to {most['training']}, 0 or more, and 0 to {most['test']}"
        )
    numbers = {
        "train": range(num_train),
        "validation": range(VALIDATION_FROM, VALIDATION_FROM + num_validation),
        "test": range(made.test_from, made.test_from + num_test),
    }
    total = sum(map(len, numbers.values()))
    return import_cases(
        url,
        made.schema(grid),
        _cases(made, numbers, grid),
        message=f"{name}: {num_train} training, {num_validation} validation and {num_test} test"
        " cases, generated",
        on_progress=lambda done, _: on_progress(done, total),
    )


def _cases(made: Generator, numbers: Mapping[str, range], grid: Any) -> Iterator[UnreadCase]:
    def unread(number: int, split: str) -> UnreadCase:
        files = f"revision {made.revision}, {grid}"
        name = made.name.format(number)
        return UnreadCase(name, files, lambda: made.case(number, split, grid))

    yield from (unread(number, split) for split, found in numbers.items() for number in found)
