"""Regress quantities on the training designs' parameters, and tell how far that is off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from courant.evaluation.null_model import fit_quantity, scaled_designs
from courant.evaluation.quantities import family_of, recorded
from courant.prediction.error_models import MOST_DESIGNS, Regressed, RegressedQuantity
from simgen.store.read import Dataset


def regress_quantities(
    trained_on: Dataset, dataset: Dataset, cases: Sequence[str]
) -> Regressed | None:
    """Fit every quantity on record to the training cases; its errors are those on `cases`.

    The fit is the null of an evaluation. The cases are of `dataset`, a later version of the same.
    None where no quantity varies, or the cases have none.
    """
    family = family_of(trained_on)
    train = trained_on.cases("train")[:MOST_DESIGNS]
    if family is None or not train or not trained_on.schema.parameters:
        return None
    designs, fresh = scaled_designs(trained_on, train), scaled_designs(dataset, cases)
    fits = {}
    for name in (each.name for each in family.quantities):
        known = recorded(trained_on, name, train)
        fit = fit_quantity(designs, known)
        if fit is not None:
            errors = np.abs(fit(fresh)[:, 0] - recorded(dataset, name, cases))
            fits[name] = RegressedQuantity(
                values=_finite(known), logs=tuple(fit.logs.tolist()), errors=_finite(errors)
            )
    if not fits:
        return None
    return Regressed(designs=tuple(map(tuple, designs.tolist())), quantities=fits)


def _finite(values: np.ndarray) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in values)
