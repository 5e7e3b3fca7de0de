"""A dataset card: a folder with a README and pictures that tell a stranger what a version is and how to use it."""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Callable
from pathlib import Path

from simgen.cases import FAMILIES
from simgen.errors import InputError, StoreError
from simgen.store import card_text
from simgen.store.reader import Dataset
from simgen.store.remake import Remake, how_to_make

#: First line of every card: what lets a later one take its place.
MARK = "<!-- dataset card of courant -->"
NUM_SAMPLES = 6
LICENSE = "not stated"


def write_card(
    dataset: Dataset,
    folder: str | Path,
    license: str = LICENSE,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Write the card of the dataset's version into `folder`; the README's path.

    README.md, designs.png, samples.png, distributions.png, and cases.csv, the table of all cases; designs.csv where it takes a list
    of designs to make the version again. Raises InputError where the folder holds a README that is no card.
    """
    target = Path(folder).expanduser()
    readme = target / "README.md"
    remake = how_to_make(dataset)
    try:
        _check(readme)
        target.mkdir(parents=True, exist_ok=True)
        steps = [*_pictures(dataset, target), lambda: _write_tables(dataset, remake, target)]
        for done, step in enumerate(steps):
            on_progress(done, len(steps))
            step()
        # The text comes last: a folder with a README has everything that it speaks of.
        readme.write_text(f"{MARK}\n\n{card_text.card_text(dataset, physics(dataset), remake, license)}")
        on_progress(len(steps), len(steps))
    except OSError as error:
        raise StoreError(
            f"card {target} cannot be written: {error.strerror or error}; choose another folder"
        ) from error
    return readme


def physics(dataset: Dataset) -> tuple[str, str]:
    """Title and description of the family's physics; the family's name alone where this release does not know it."""
    family = FAMILIES.get(dataset.schema.family)
    if family is None:
        return dataset.schema.family, "This release does not know the family."
    documentation = inspect.getdoc(inspect.getmodule(type(family))) or ""
    # Labels of tables mean something beside the source alone.
    return family.title, re.sub(r" \(Tables? tab:[^)]*\)", "", documentation.removeprefix(f"{family.name}: "))


def _check(readme: Path) -> None:
    if readme.exists() and not readme.read_text(errors="replace").startswith(MARK):
        raise InputError(f"{readme} is no dataset card: choose another folder with --out")


def _pictures(dataset: Dataset, target: Path) -> list[Callable[[], None]]:
    """Steps that draw one picture each."""
    from matplotlib.figure import Figure

    from simgen import dataset_figures
    from simgen.figure_files import png_bytes

    def save(name: str, draw: Callable[[], Figure]) -> None:
        (target / name).write_bytes(png_bytes(draw()))

    field = dataset.schema.fields[0].name
    samples = [dataset[case] for case in sample_ids(dataset)]
    return [
        lambda: save("designs.png", lambda: dataset_figures.designs(dataset)),
        lambda: save("samples.png", lambda: dataset_figures.sample_cases(samples, field)),
        lambda: save("distributions.png", lambda: dataset_figures.distributions(dataset)),
    ]


def sample_ids(dataset: Dataset) -> list[str]:
    """Cases to show: spread over the first design parameter, so that the pictures differ."""
    first = dataset.schema.parameters[0].name
    ordered = sorted(dataset.cases(), key=lambda case: float(dataset[case].parameters[first]))
    count = min(NUM_SAMPLES, len(ordered))
    return [ordered[round(number * (len(ordered) - 1) / max(1, count - 1))] for number in range(count)]


def _write_tables(dataset: Dataset, remake: Remake, target: Path) -> None:
    dataset.design.to_csv(target / "cases.csv")
    for name, rows in remake.designs.items():
        with (target / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
