"""Public benchmarks: generated case by case, resumable, or read as published (`published`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from simgen.errors import InputError
from simgen.imports.benchmarks.darcy import DarcyGrid
from simgen.imports.benchmarks.diffusion_sorption import SorptionGrid
from simgen.imports.benchmarks.elasticity import CellGrid
from simgen.imports.importing import Imported, UnreadCase, import_cases

Grid = DarcyGrid | SorptionGrid | CellGrid
"""How finely a benchmark's cases are solved and stored, with its schema and its cases"""
VALIDATION_FROM = 100_000
"""The number of the first validation case: no published case has one as high"""


@dataclass(frozen=True)
class Generator:
    """How many cases of a benchmark are made, and how."""

    grid: Grid
    """The published one"""
    num_train: int
    num_test: int
    test_from: int
    """The number of the first test case: training cases, however many, stay below it"""


GENERATORS = {
    "darcy": Generator(DarcyGrid(), 1000, 200, 50_000),
    "diffusion-sorption": Generator(SorptionGrid(), 9000, 1000, 9000),
    "elasticity": Generator(CellGrid(), 1000, 200, 50_000),
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
    grid: Grid | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Imported:
    """Solve the cases that the dataset at `url` lacks, and publish them as a version.

    Run it again after an interruption, or with larger numbers. Validation cases, which the
    published benchmarks do not have, are further ones.
    """
    made = get_generator(name)
    of = made.grid if grid is None else grid
    most_test = VALIDATION_FROM - made.test_from
    if not (
        1 <= num_train <= made.test_from and 0 <= num_test <= most_test and num_validation >= 0
    ):
        raise InputError(
            f"{num_train} training, {num_validation} validation and {num_test} test cases: expected"
            f" 1 to {made.test_from}, 0 or more, and 0 to {most_test}"
        )
    numbers = {
        "train": range(num_train),
        "validation": range(VALIDATION_FROM, VALIDATION_FROM + num_validation),
        "test": range(made.test_from, made.test_from + num_test),
    }

    def unread(number: int, split: str) -> UnreadCase:
        files = f"revision {of.revision}, {of}"
        return UnreadCase(of.name.format(number), files, lambda: of.case(number, split))

    cases: Iterator[UnreadCase] = (
        unread(number, split) for split, found in numbers.items() for number in found
    )
    total = sum(map(len, numbers.values()))
    return import_cases(
        url,
        of.schema(),
        cases,
        message=f"{name}: {num_train} training, {num_validation} validation and {num_test} test"
        " cases, generated",
        on_progress=lambda done, _: on_progress(done, total),
    )
