"""Compare the models' errors in the quantities of interest with those of their null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from courant.evaluation.evaluation import Evaluation
from courant.evaluation.interval import Interval


@dataclass(frozen=True)
class QuantityRow:
    """Errors in one quantity: sums of absolute errors over sums of absolute values."""

    name: str
    null: float | None
    """Of a Gaussian process on the design parameters; None where it could not be fitted"""
    models: dict[str, Interval]
    """From predicted fields, over seeds, by model; without those that do not tell it"""


def quantity_rows(found: Mapping[str, Sequence[Evaluation]]) -> tuple[QuantityRow, ...]:
    """Return a row for each quantity that any model's fields tell, from evaluations by model."""
    every = [each for evaluations in found.values() for each in evaluations]
    names = dict.fromkeys(name for each in every for name in each.quantities)
    rows = []
    for name in names:
        errors = {model: _errors(evaluations, name) for model, evaluations in found.items()}
        scores = [each.quantities[name] for each in every if name in each.quantities]
        rows.append(
            QuantityRow(
                name=name,
                null=next(
                    (each.null_error for each in scores if each.null_error is not None), None
                ),
                models={model: Interval.of(of) for model, of in errors.items() if of},
            )
        )
    return tuple(row for row in rows if row.models)


def _errors(evaluations: Sequence[Evaluation], name: str) -> list[float]:
    """Return the error of each seed; none where one of them is not known."""
    found = [each.quantities[name].error for each in evaluations if name in each.quantities]
    known = [error for error in found if error is not None]
    return known if len(known) == len(evaluations) else []
