"""Show quantities of interest: predicted against true, beside the design parameters alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from courant.evaluation.evaluation import Evaluation, QuantityScore
from courant.prediction.bands import LEVEL, refused, scaled_design
from courant.report.context import Context
from courant.report.drawing import MODEL_COLOR, PALETTE
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.panels.trust import trust_note, trust_table
from courant.report.wording import count, number, plain, with_unit

NAME = "quantities"
COLUMNS = 3
NULL_COLOR = PALETTE[1]
_COLUMNS = (
    "error, model",
    "error, parameters alone",
    "rank correlation, model",
    "rank correlation, parameters alone",
)


def panel(context: Context) -> Panel | None:
    """Show the quantities that the family declares; None where it declares none."""
    evaluation = context.evaluation
    if not evaluation.quantities and not evaluation.not_predicted:
        return None
    figures: tuple[PanelFigure, ...] = ()
    widths = half_widths(context)
    if evaluation.quantities:
        caption = (
            f"For each {evaluation.split} case, the quantity from the predicted fields against that"
            " from the solved ones. The diamonds are a Gaussian process on the design parameters,"
            " without fields. On the line a prediction is perfect."
        )
        if widths:
            caption += (
                f" A bar is the band that holds the solved value in {LEVEL:.0%} of new designs like"
                " those of the calibration; a point without a bar is a case for which none holds."
            )
        figures = (
            PanelFigure(
                "quantities.png",
                draw(evaluation.quantities, widths),
                caption,
                look_for="Points should lie on the line, and nearer to it than the diamonds.",
                score=_score(evaluation.quantities),
            ),
        )
    return Panel(
        NAME,
        "Quantities of interest",
        figures,
        _tables(context, widths),
        note=" ".join(filter(None, (_note(evaluation), trust_note(context)))),
        arrays=_arrays(evaluation, widths),
    )


def _tables(context: Context, widths: Mapping[str, np.ndarray]) -> tuple[Table, ...]:
    found = context.evaluation.quantities
    trust = trust_table(context, widths)
    return (*((table(found),) if found else ()), *(() if trust is None else (trust,)))


def half_widths(context: Context) -> dict[str, np.ndarray]:
    """Return the half-widths (n,) of the bands of each quantity; empty without calibration.

    NaN for a case for which no band holds.
    """
    surrogate, bands = context.surrogate, context.surrogate.bands
    if bands is None:
        return {}
    cases = [context.dataset[case] for case in context.evaluation.cases]
    designs = [scaled_design(surrogate, case.parameters) for case in cases]
    holds = [
        not refused(
            surrogate,
            bands,
            case.parameters,
            surrogate.prepare_case(case, surrogate.problem.start(case)),
        )
        for case in cases
    ]
    return {
        name: np.where(holds, [bands.quantity(name, design) for design in designs], np.nan)
        for name in context.evaluation.quantities
        if name in bands.quantities
    }


def _score(found: Mapping[str, QuantityScore]) -> str:
    """Count the quantities that the model tells better than the parameters alone."""
    judged = [each for each in found.values() if None not in (each.error, each.null_error)]
    if not judged:
        errors = [each.error for each in found.values() if each.error is not None]
        return f"Largest relative error {max(errors):.1%}" if errors else "Not told by these cases"
    won = sum(not each.null_wins for each in judged)
    return f"Better than the design parameters alone: {won} of {len(judged)} quantities"


def draw(
    quantities: Mapping[str, QuantityScore], widths: Mapping[str, np.ndarray] | None = None
) -> Figure:
    """Draw predicted against true values, a picture for each quantity."""
    columns = min(COLUMNS, len(quantities))
    rows = -(-len(quantities) // columns)
    figure = Figure(figsize=(max(5.0, 4.0 * columns), 3.8 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (name, score) in zip(axes, quantities.items(), strict=False):
        truth = _values(score.truth)
        if score.null:
            axis.plot(
                truth, _values(score.null), "D", ms=5, color=NULL_COLOR, label="parameters alone"
            )
        predicted, width = _values(score.predicted), (widths or {}).get(name)
        if width is not None and (there := np.isfinite(width)).any():
            bars = {"ecolor": MODEL_COLOR, "elinewidth": 1.2, "capsize": 2}
            axis.errorbar(truth[there], predicted[there], width[there], fmt="none", **bars)
        axis.plot(truth, predicted, "o", ms=6, color=MODEL_COLOR, label="model")
        known = truth[np.isfinite(truth)]
        if len(known):
            axis.plot([known.min(), known.max()], [known.min(), known.max()], color="k", lw=0.8)
        axis.set_title(with_unit(plain(name), score.unit), fontsize=9)
        axis.set(xlabel="true", ylabel="predicted")
        axis.grid(alpha=0.25)
    for axis in axes[len(quantities) :]:
        axis.set_axis_off()
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False
    )
    return figure


def table(quantities: Mapping[str, QuantityScore]) -> Table:
    """Compare errors and rank correlations, the better of two in green."""
    rows = []
    for name, score in quantities.items():
        ranks = (score.rank_correlation, score.null_rank_correlation)
        rows.append(
            (
                Cell(plain(name)),
                Cell(score.meaning),
                *_marked(score.error, score.null_error, less_is_better=True),
                *_marked(*ranks, less_is_better=False),
            )
        )
    head = (Column("quantity", False), Column("meaning", False), *map(Column, _COLUMNS))
    return Table(head, tuple(rows))


def _marked(ours: float | None, null: float | None, *, less_is_better: bool) -> tuple[Cell, Cell]:
    if ours is None or null is None or ours == null:
        return Cell(number(ours)), Cell(number(null))
    wins = (ours < null) == less_is_better
    return Cell(number(ours), "good" if wins else "bad"), Cell(number(null))


def _note(evaluation: Evaluation) -> str:
    error = "An error is the sum of absolute errors over the sum of absolute values."
    for name, score in evaluation.quantities.items():
        known = [case for case, value in score.truth.items() if value is not None]
        lost = sum(score.predicted[case] is None for case in known)
        if lost:
            error += (
                f" The predicted fields of {lost} of {count(len(known), 'case')} tell no"
                f" {plain(name)}, so the model has no error of it."
            )
    missing = [f"{plain(name)} ({why})" for name, why in sorted(evaluation.not_predicted.items())]
    if not missing:
        return error
    told = f"This model does not predict {', '.join(missing)}."
    return f"{error} {told}" if evaluation.quantities else told


def _arrays(evaluation: Evaluation, widths: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return cases (n,), and truth, prediction, null and half-width of each quantity, (n,)."""
    if not evaluation.quantities:
        return {}
    arrays = {"cases": np.array(list(evaluation.cases), dtype=str)}
    for name, score in evaluation.quantities.items():
        arrays[f"{name}.truth"] = _values(score.truth)
        arrays[f"{name}.prediction"] = _values(score.predicted)
        if score.null:
            arrays[f"{name}.null"] = _values(score.null)
        if name in widths:
            arrays[f"{name}.half_width"] = widths[name]
    return arrays


def _values(by_case: Mapping[str, float | None]) -> np.ndarray:
    """Return (n,), NaN where a value is not known."""
    return np.array([np.nan if value is None else value for value in by_case.values()])
