"""Say in one paragraph what a benchmark's table shows."""

from __future__ import annotations

from courant.benchmark.rows import Table
from courant.evaluation.interval import Interval


def verdict(table: Table) -> str:
    """Say which model is first, by how much, and against which reference or null it loses."""
    models = [row for row in table.models if row.errors]
    first = models[0]
    assert first.errors is not None
    said = [f"{first.name} has the lowest NMAE of the models, {first.errors.nmae.text()}"]
    if len(models) > 1 and models[1].errors is not None:
        second = models[1]
        said[0] += f"; next is {second.name}, {models[1].errors.nmae.text()}"
        said.append(_apart(first.errors.nmae, models[1].errors.nmae))
    for reference in table.references:
        if reference.errors is None:
            continue
        worse = [
            row.name
            for row in models
            if row.errors and row.errors.nmae.mean >= reference.errors.nmae.mean
        ]
        if worse:
            nmae = reference.errors.nmae.text()
            said.append(f"Not below {reference.name} ({nmae}): {', '.join(worse)}")
    partly = [row.name for row in models if row.failures]
    if partly:
        said.append(f"Not every training ended, so these numbers are too good: {', '.join(partly)}")
    return ". ".join(said) + "."


def _apart(first: Interval, second: Interval) -> str:
    if first.half_width is None or second.half_width is None:
        return "With one seed nothing is known of the spread between trainings"
    if first.high < second.low:
        return "Their intervals do not overlap"
    return "Their intervals overlap: the order may be chance"
