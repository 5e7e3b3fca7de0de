"""Generate PDEBench's diffusion-sorption benchmark: a contaminant that soaks into soil.

u_t = D / R(u) u_xx on 0 < x < 1 m, 0 < t <= 500 s; u = 1 at x = 0, u = -D u_x at x = 1, and at
first u is the same everywhere, between 0 and 0.2. R(u) is Freundlich's retardation (Takamoto et
al., PDEBench, 2022). 1024 cells, 101 times; the initial values of case n are the published ones.

Finite volumes in space, implicit steps of variable order (LSODA, banded). What differs from the
published files: boundary values hold on the outermost faces, where theirs hold half a cell further
out. That moves u by 0.2 % of its norm, and makes the scheme second-order at the edges too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.integrate import solve_ivp

from simgen.case import Field
from simgen.errors import CaseError
from simgen.imports.importing import SourceCase, imported_schema
from simgen.store.schema import Schema, Source

DIFFUSION = 5e-4
POROSITY, DENSITY, FREUNDLICH, EXPONENT = 0.29, 2880.0, 3.5e-4, 0.874
SOLUBILITY, MOST_AT_FIRST = 1.0, 0.2
#: Keeps the retardation finite where there is nothing.
SMALL = 1e-6
END_S = 500.0
RELATIVE, ABSOLUTE = 1e-6, 1e-9


@dataclass(frozen=True)
class SorptionGrid:
    """How finely a case is solved and stored."""

    cells: int = 1024
    times: int = 101
    name: ClassVar[str] = "sorption-{:05d}"
    revision: ClassVar[int] = 1

    def schema(self) -> Schema:
        return imported_schema(
            "diffusion-sorption",
            dimension=1,
            transient=True,
            fields=(Field("concentration", "1", ("u",)),),
            grid_shape=(self.cells,),
            source=Source(
                f"PDEBench diffusion-sorption, generated ({self.cells} cells)",
                "https://arxiv.org/abs/2210.07182",
                "as this dataset",
            ),
        )

    def case(self, number: int, split: str) -> SourceCase:
        return SourceCase(
            self.name.format(number),
            points=(np.arange(self.cells) + 0.5) / self.cells,
            fields={"concentration": concentration(first_value(number), self)},
            time=np.linspace(0.0, END_S, self.times),
            split=split,
            provenance={"solver": "finite volumes, LSODA", "solver_version": str(self.revision)},
        )


def first_value(number: int) -> float:
    """Return the initial value that PDEBench draws with this seed."""
    return float(np.random.RandomState(number).uniform(0, MOST_AT_FIRST))


def concentration(first: float, grid: SorptionGrid) -> np.ndarray:
    """Return u (times, cells); CaseError where the integration fails."""
    width = 1.0 / grid.cells

    def change(_: float, u: np.ndarray) -> np.ndarray:
        """Return u_t from the fluxes through the cells' faces."""
        half = 0.5 * width
        # On the last face: u_face = -D (u_face - u) / half.
        last = u[-1] * DIFFUSION / (half + DIFFUSION)
        slope = np.concatenate(
            [[(u[0] - SOLUBILITY) / half], np.diff(u) / width, [(last - u[-1]) / half]]
        )
        sorbed = (1 - POROSITY) / POROSITY * DENSITY * FREUNDLICH * EXPONENT
        retardation = 1 + sorbed * (np.maximum(u, 0.0) + SMALL) ** (EXPONENT - 1)
        return DIFFUSION / retardation * np.diff(slope) / width

    solved = solve_ivp(
        change,
        (0.0, END_S),
        np.full(grid.cells, first),
        method="LSODA",
        t_eval=np.linspace(0.0, END_S, grid.times),
        rtol=RELATIVE,
        atol=ABSOLUTE,
        lband=1,
        uband=1,
    )
    if not solved.success:
        raise CaseError(f"diffusion-sorption from {first:g}: {solved.message}")
    return np.asarray(solved.y.T)
