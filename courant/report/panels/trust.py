"""Tell how far each quantity is to be trusted: both answers with their bands, and the mesh."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from courant.prediction.bands import LEVEL, scaled_design
from courant.prediction.error_models import GridError
from courant.report.context import Context
from courant.report.panel import Cell, Column, Table
from courant.report.wording import plain, with_unit

NOT_STUDIED = "not studied"


def trust_table(context: Context, widths: Mapping[str, np.ndarray]) -> Table | None:
    """Return bands and mesh intervals by quantity; None for a run that is not calibrated.

    `widths` are half-widths (n,) of the model's bands by quantity, NaN where none holds. Those of
    the regression and of the model are told by their medians over the evaluated cases.
    """
    surrogate, bands = context.surrogate, context.surrogate.bands
    if bands is None:
        return None
    alone = [
        bands.by_regression(scaled_design(surrogate, context.dataset[case].parameters))
        for case in context.evaluation.cases
    ]
    units = {each.name: each.unit for each in context.dataset.schema.quantities}
    rows = []
    for name, unit in units.items():
        by_regression = np.array([of[name][1] for of in alone if name in of])
        if name in widths or len(by_regression) or name in bands.grid:
            rows.append(
                (
                    Cell(with_unit(plain(name), unit)),
                    Cell(_median(widths.get(name, np.zeros(0)))),
                    Cell(_median(by_regression)),
                    Cell(_of_mesh(bands.grid.get(name), bands.no_grid.get(name, NOT_STUDIED))),
                )
            )
    head = (
        Column("quantity", False),
        Column(f"{LEVEL:.0%} band, model"),
        Column(f"{LEVEL:.0%} band, by regression on the parameters"),
        Column("on an infinitely fine mesh"),
    )
    return Table(head, tuple(rows)) if rows else None


def trust_note(context: Context) -> str:
    """Explain the table; empty without calibration."""
    if context.surrogate.bands is None:
        return ""
    return (
        "A band is the median half-width over these cases. The last column is by how much the"
        " solver's mesh lets a quantity be wrong, with 90 % probability, in shares of its value;"
        " no band has it."
    )


def _median(widths: np.ndarray) -> str:
    finite = widths[np.isfinite(widths)]
    return f"± {np.median(finite):.2g}" if len(finite) else "none"


def _of_mesh(error: GridError | None, reason: str) -> str:
    if error is None:
        return reason
    return f"{error.low:+.1%} to {error.high:+.1%} ({error.num_designs} designs)"
