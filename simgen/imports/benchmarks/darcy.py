"""Generate the Darcy benchmark: flow through rock of two permeabilities, on the unit square.

-div(a grad u) = 1 with u = 0 on the edges; a is 12 where a Gaussian random field is positive and 3
elsewhere. The field has the covariance (-Laplacian + 9)^-2 with zero normal derivative on the edges
(Li et al., Fourier Neural Operator, 2021). Solved on 421 x 421 points by the five-point scheme with
a direct solver; every fifth point is kept, as is usual, which gives 85 x 85.

What differs from the published files: the random field is evaluated at the grid's own points, where
theirs is interpolated to them, and other seeds draw it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from simgen.case import Field
from simgen.imports.importing import SourceCase, grid_points, imported_schema
from simgen.store.schema import Schema, Source

HIGH, LOW = 12.0, 3.0
TAU, ALPHA = 3.0, 2.0
#: Waves of the random field along each axis; the amplitude of the last is 1e-5 of the first's.
MODES = 256


@dataclass(frozen=True)
class DarcyGrid:
    """How finely a case is solved, and which points of it are kept."""

    size: int = 421
    every: int = 5
    name: ClassVar[str] = "darcy-{:05d}"
    revision: ClassVar[int] = 1

    @property
    def axis(self) -> np.ndarray:
        return np.linspace(0.0, 1.0, self.size)[:: self.every]

    def schema(self) -> Schema:
        return imported_schema(
            "darcy-flow",
            dimension=2,
            fields=(
                Field("permeability", "1", ("a",), role="given"),
                Field("pressure", "1", ("u",)),
            ),
            grid_shape=(len(self.axis), len(self.axis)),
            source=Source(
                f"Darcy flow, generated ({self.size} points, every {self.every}th)",
                "https://arxiv.org/abs/2010.08895",
                "as this dataset",
            ),
        )

    def case(self, number: int, split: str) -> SourceCase:
        a = permeability(number, self.size)
        kept = (slice(None, None, self.every),) * 2
        return SourceCase(
            self.name.format(number),
            points=grid_points(self.axis, self.axis),
            fields={"permeability": a[kept], "pressure": pressure(a)[kept]},
            split=split,
            provenance={"solver": "five-point scheme", "solver_version": str(self.revision)},
        )


def permeability(number: int, size: int) -> np.ndarray:
    """Return a (size, size) on the grid's points; the same field whatever the size."""
    waves = np.arange(MODES)
    square = np.pi**2 * (waves[:, None] ** 2 + waves[None, :] ** 2) + TAU**2
    amplitude = np.random.default_rng(number).normal(size=(MODES, MODES)) * square ** (-ALPHA / 2)
    # Of unit length on the square: 1 for the mean, sqrt(2) cos(pi k x) for each wave.
    amplitude *= np.where(waves > 0, np.sqrt(2), 1)[:, None] * np.where(waves > 0, np.sqrt(2), 1)
    amplitude[0, 0] = 0.0
    basis = np.cos(np.pi * np.linspace(0.0, 1.0, size)[:, None] * waves)
    return np.where(basis @ amplitude @ basis.T >= 0, HIGH, LOW)


def pressure(a: np.ndarray, source: np.ndarray | float = 1.0) -> np.ndarray:
    """Return u of -div(a grad u) = source by the five-point scheme, a averaged between points."""
    size = len(a)
    inner = size - 2
    across = [0.5 * (a[1:, 1:-1] + a[:-1, 1:-1]), 0.5 * (a[1:-1, 1:] + a[1:-1, :-1])]
    number = np.arange(inner * inner).reshape(inner, inner)
    diagonal = across[0][1:] + across[0][:-1] + across[1][:, 1:] + across[1][:, :-1]
    pairs = [
        (number[1:], number[:-1], across[0][1:-1]),
        (number[:, 1:], number[:, :-1], across[1][:, 1:-1]),
    ]
    rows = [number, *(part for one, other, _ in pairs for part in (one, other))]
    columns = [number, *(part for one, other, _ in pairs for part in (other, one))]
    values = [diagonal, *(-weight for _, _, weight in pairs for _ in range(2))]
    entries = [np.concatenate([each.ravel() for each in of]) for of in (values, rows, columns)]
    matrix = sparse.csc_matrix((entries[0], (entries[1], entries[2])))
    right = np.broadcast_to(source, a.shape)[1:-1, 1:-1].ravel() / (size - 1) ** 2
    solver = splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    return np.pad(solver.solve(right).reshape(inner, inner), 1)
