"""Read what the solver's mesh adds to the quantities, from a dataset of designs on several meshes.

courant generate branched-pipe --cases 5 --set mesh_size=7 --store grids    # as the dataset's
courant generate branched-pipe --cases 5 --set mesh_size=5 --store grids
courant generate branched-pipe --cases 5 --set mesh_size=3.5 --store grids
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from courant.prediction.error_models import GridError, fit_grid_error
from simgen.errors import InputError
from simgen.store.read import Dataset

#: Every family's setting for the size of its cells.
MESH_SIZE = "mesh_size"


def grid_errors(
    dataset: Dataset, settings: Mapping[str, float]
) -> tuple[dict[str, GridError], dict[str, str]]:
    """Return the mesh's error in each quantity, at the mesh size of the settings.

    Also, for each quantity whose error cannot be told, the reason. Designs that were not accepted
    on every mesh are left out. InputError where cases differ in other settings than the mesh size,
    where none has that of `settings`, and where no quantity tells anything.
    """
    place = f"{dataset.url} {dataset.version}"
    here = settings.get(MESH_SIZE)
    by_design: dict[tuple[float, ...], dict[float, str]] = {}
    for case in dataset:
        if without_size(case.settings) != without_size(settings):
            raise InputError(
                f"{place}: case {case.id} differs from the training's cases in other settings than"
                f" {MESH_SIZE}; a study of the mesh changes that alone"
            )
        sizes = by_design.setdefault(tuple(case.parameters.values()), {})
        sizes[case.settings.get(MESH_SIZE, 0.0)] = case.id
    everywhere = sorted({size for sizes in by_design.values() for size in sizes})
    if here is None or here not in everywhere:
        raise InputError(f"{place} has no case of the training's {MESH_SIZE}, {here}")
    complete = [
        [sizes[size] for size in everywhere]
        for sizes in by_design.values()
        if len(sizes) == len(everywhere)
    ]
    found: dict[str, GridError] = {}
    refused: dict[str, str] = {}
    for quantity in dataset.schema.quantities:
        table = dataset.design[quantity.name]
        values = np.array([[float(table[case]) for case in cases] for cases in complete])
        usable = np.isfinite(values).all(axis=1) if len(values) else np.zeros(0, bool)
        try:
            found[quantity.name] = fit_grid_error(np.array(everywhere), values[usable], here)
        except InputError as error:
            refused[quantity.name] = str(error)
    if not found:
        first = next(iter(refused.values()), "the dataset has no quantities")
        raise InputError(f"{place} tells no error of the mesh: {first}")
    return found, refused


def without_size(settings: Mapping[str, float]) -> dict[str, float]:
    """Return a case's settings but for the size of its cells."""
    return {name: value for name, value in settings.items() if name != MESH_SIZE}
