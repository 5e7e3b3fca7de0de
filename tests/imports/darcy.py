"""An importer, whole: Darcy flow on the unit square, solved here by finite differences.

-div(a grad u) = 1 with u = 0 on the edges; a, the permeability, is given, and jumps between two
values as in the published benchmark of that name.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sparse
from scipy.ndimage import gaussian_filter
from scipy.sparse.linalg import spsolve

from simgen.imports import (
    Field,
    Imported,
    Source,
    SourceCase,
    grid_points,
    import_cases,
    imported_schema,
)

SIZE = 13
SCHEMA = imported_schema(
    "darcy-flow",
    dimension=2,
    fields=(Field("permeability", "m2", ("a",), role="given"), Field("pressure", "Pa", ("u",))),
    grid_shape=(SIZE, SIZE),
    splits="published",
    source=Source("Darcy flow", "https://example.org/darcy", "CC BY 4.0"),
)


def permeability(number: int) -> np.ndarray:
    """12 or 3, by the sign of a smooth random field."""
    noise = np.random.default_rng(number).normal(size=(SIZE, SIZE))
    return np.where(gaussian_filter(noise, 2.0, mode="wrap") > 0, 12.0, 3.0)


def solve(a: np.ndarray) -> np.ndarray:
    """u of the five-point scheme, permeabilities of neighbours averaged."""
    inside = np.arange((SIZE - 2) ** 2).reshape(SIZE - 2, SIZE - 2)
    number = np.pad(inside, 1, constant_values=-1)
    rows, columns, values = [], [], []
    for axis in (0, 1):
        for step in (-1, 1):
            across = (0.5 * (a + np.roll(a, -step, axis)) * (SIZE - 1) ** 2)[1:-1, 1:-1].ravel()
            neighbour = np.roll(number, -step, axis)[1:-1, 1:-1].ravel()
            rows += [inside.ravel(), inside.ravel()[neighbour >= 0]]
            columns += [inside.ravel(), neighbour[neighbour >= 0]]
            values += [across, -across[neighbour >= 0]]
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    u = np.zeros((SIZE, SIZE))
    u[1:-1, 1:-1] = spsolve(sparse.csr_matrix(entries), np.ones(inside.size)).reshape(inside.shape)
    return u


def read_cases(num_train: int, num_test: int) -> Iterator[SourceCase]:
    axis = np.linspace(0.0, 1.0, SIZE)
    for number in range(num_train + num_test):
        a = permeability(number)
        yield SourceCase(
            name=f"darcy-{number:04d}",
            points=grid_points(axis, axis),
            fields={"permeability": a, "pressure": solve(a)},
            split="train" if number < num_train else "test",
        )


def import_darcy(url: str, num_train: int = 24, num_test: int = 4) -> Imported:
    return import_cases(url, SCHEMA, read_cases(num_train, num_test))
