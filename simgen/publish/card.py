"""Write a dataset card: a README with pictures that explains a version to a newcomer."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from simgen.cases import FAMILIES
from simgen.errors import InputError, StoreError
from simgen.publish import card_text
from simgen.store.read import Dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: First line of every card, by which a later card knows that it may replace it.
MARK = "<!-- dataset card of courant -->"
NUM_SAMPLES = 6


def write_card(
    dataset: Dataset,
    folder: str | Path,
    license: str = "",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Write the card of the dataset's version into `folder`; return the README's path.

    Files: README.md, designs.png, samples.png, distributions.png, quantities.png and parallel.png
    where cases have quantities, and cases.csv, the table of all cases. Raises InputError where the
    folder holds a README that is no card.
    """
    target = Path(folder).expanduser()
    readme = target / "README.md"
    try:
        _check(readme)
        target.mkdir(parents=True, exist_ok=True)
        steps = [*_pictures(dataset, target), lambda: dataset.design.to_csv(target / "cases.csv")]
        for done, step in enumerate(steps):
            on_progress(done, len(steps))
            step()
        # The text comes last: a folder with a README has every file that it mentions.
        readme.write_text(f"{MARK}\n\n{card_text.card_text(dataset, physics(dataset), license)}")
        on_progress(len(steps), len(steps))
    except OSError as error:
        raise StoreError(
            f"card {target} cannot be written: {error.strerror or error}; choose another folder"
        ) from error
    return readme


def physics(dataset: Dataset) -> tuple[str, str]:
    """Return title and description of the family's physics; just its name if it is unknown here.

    A description from this project's own pages is Markdown already.
    """
    family, source = FAMILIES.get(dataset.schema.family), dataset.schema.source
    if source is not None:
        return source.name, f"Solved elsewhere and imported from {source.url}."
    if family is None:
        return dataset.schema.family, "This release does not know the family."
    documentation = inspect.getdoc(inspect.getmodule(type(family))) or ""
    # The paper's table labels mean nothing outside the source.
    plain = re.sub(r"\s\(tab:[^)]*\)", "", documentation.removeprefix(f"{family.name}: "))
    return family.title, Markup(plain)


def _check(readme: Path) -> None:
    if readme.exists() and not readme.read_text(errors="replace").startswith(MARK):
        raise InputError(f"{readme} is no dataset card: choose another folder with --out")


def _pictures(dataset: Dataset, target: Path) -> list[Callable[[], None]]:
    """List the steps; each draws one picture."""
    from simgen.publish import dataset_figures
    from simgen.publish.figure_files import png_bytes

    def save(name: str, draw: Callable[[], Figure]) -> None:
        (target / name).write_bytes(png_bytes(draw()))

    field = card_text.shown_field(dataset).name
    samples = [dataset[case] for case in sample_ids(dataset)]
    designs = [lambda: save("designs.png", lambda: dataset_figures.designs(dataset))]
    return [
        *(designs if dataset.schema.parameters else []),
        *_quantity_pictures(dataset, save),
        lambda: save("samples.png", lambda: dataset_figures.sample_cases(samples, field)),
        lambda: save("distributions.png", lambda: dataset_figures.distributions(dataset)),
    ]


def _quantity_pictures(
    dataset: Dataset, save: Callable[[str, Callable[[], Figure]], None]
) -> list[Callable[[], None]]:
    from simgen.publish import quantity_figures
    from simgen.publish.sensitivity import shown_quantities

    if not shown_quantities(dataset):
        return []
    return [
        lambda: save("quantities.png", lambda: quantity_figures.histograms(dataset)),
        lambda: save("parallel.png", lambda: quantity_figures.parallel_coordinates(dataset)),
    ]


def sample_ids(dataset: Dataset) -> list[str]:
    """Choose cases to show, spread over the first design parameter so that the pictures differ.

    Without design parameters they keep the dataset's order.
    """
    ordered = dataset.cases()
    for first in dataset.schema.parameters[:1]:
        ordered = sorted(ordered, key=lambda case: float(dataset[case].parameters[first.name]))
    count = min(NUM_SAMPLES, len(ordered))
    return [
        ordered[round(number * (len(ordered) - 1) / max(1, count - 1))] for number in range(count)
    ]
