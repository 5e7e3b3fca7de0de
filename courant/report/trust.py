"""Show how far to trust a model: quantities with bands, sensitivities, and cost and savings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from courant.evaluation.ledger import Interval, Ledger, solver_times
from courant.evaluation.quantities import Dependence, dependences
from courant.evaluation.record import Evaluation, QuantityScore
from courant.prediction.bands import LEVEL, GridError, refused, scaled_design
from courant.report.context import Context
from courant.report.drawing import MODEL_COLOR, PALETTE
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.wording import count, number, plain, with_unit
from courant.runs.directory import RunDirectory
from courant.sweeps.sweep import TABLE, sweep_of
from simgen.errors import SimgenError
from simgen.publish.dataset_figures import Sensitivity

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


QUANTITIES_NAME = "quantities"
COLUMNS = 3
NULL_COLOR = PALETTE[1]
_COLUMNS = (
    "error, model",
    "error, parameters alone",
    "rank correlation, model",
    "rank correlation, parameters alone",
)


def quantities_panel(context: Context) -> Panel | None:
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
                draw_quantities(evaluation.quantities, widths),
                caption,
                look_for="Points should lie on the line, and nearer to it than the diamonds.",
                score=_quantities_score(evaluation.quantities),
            ),
        )
    return Panel(
        QUANTITIES_NAME,
        "Quantities of interest",
        figures,
        _tables(context, widths),
        note=" ".join(filter(None, (_quantities_note(evaluation), trust_note(context)))),
        arrays=_quantities_arrays(evaluation, widths),
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


def _quantities_score(found: Mapping[str, QuantityScore]) -> str:
    """Count the quantities that the model tells better than the parameters alone."""
    judged = [each for each in found.values() if None not in (each.error, each.null_error)]
    if not judged:
        errors = [each.error for each in found.values() if each.error is not None]
        return f"Largest relative error {max(errors):.1%}" if errors else "Not told by these cases"
    won = sum(not each.null_wins for each in judged)
    return f"Better than the design parameters alone: {won} of {len(judged)} quantities"


def draw_quantities(
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


def _quantities_note(evaluation: Evaluation) -> str:
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


def _quantities_arrays(
    evaluation: Evaluation, widths: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
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


SENSITIVITY_NAME = "sensitivity"
SOURCES = ("solved", "predicted")
COLORS = dict(zip(SOURCES, ("#7a7a7a", PALETTE[0]), strict=True))


def sensitivity_panel(context: Context) -> Panel | None:
    """Show Sobol indices; None where too few designs tell them."""
    found = {
        name: each
        for name, each in dependences(context.surrogate, context.dataset).items()
        if each.solved is not None or each.predicted is not None
    }
    if not found:
        return None
    parameters = [each.name for each in context.dataset.schema.parameters]
    caption = (
        "Sobol indices: the share of each quantity's variance over the design space that a"
        " parameter explains, alone (bar) and with its interactions (line). They are shown for the"
        " solved designs and for the model's predictions, each from a Gaussian process fitted to"
        " designs of this dataset."
    )
    return Panel(
        SENSITIVITY_NAME,
        "Dependence of the quantities on the parameters",
        (
            PanelFigure(
                "sensitivity.png",
                draw_sensitivity(found, parameters),
                caption,
                look_for=(
                    "Blue bars as high as the grey ones mean that the model has learned what each"
                    " quantity depends on."
                ),
                score=_sensitivity_score(found),
            ),
        ),
        note=_sensitivity_note(found),
        arrays=_sensitivity_arrays(found, parameters),
    )


def _sensitivity_score(found: Mapping[str, Dependence]) -> str:
    """Return the largest difference of an index between solved designs and predictions."""
    apart = [
        float(np.abs(np.subtract(each.solved.first, each.predicted.first)).max())
        for each in found.values()
        if each.solved is not None and each.predicted is not None
    ]
    if not apart:
        return "Indices are known of one of the two only"
    return f"First indices of solved and predicted designs differ by at most {max(apart):.2f}"


def draw_sensitivity(found: Mapping[str, Dependence], parameters: Sequence[str]) -> Figure:
    """Draw first and total indices of every quantity by parameter."""
    figure = Figure(figsize=(max(6.0, 4.2 * len(found)), 3.6), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
    places = np.arange(len(parameters))
    for axis, (name, each) in zip(axes, found.items(), strict=True):
        for shift, source in zip((-0.2, 0.2), SOURCES, strict=True):
            indices: Sensitivity | None = getattr(each, source)
            if indices is None:
                continue
            color = COLORS[source]
            axis.bar(places + shift, indices.first, 0.36, color=color, label=source)
            axis.vlines(places + shift, 0, indices.total, color="k", lw=1.5)
        axis.set_title(plain(name), fontsize=9)
        axis.set_xticks(places, [plain(each) for each in parameters], rotation=30, ha="right")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.25, axis="y")
    axes[0].set_ylabel("Sobol index")
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=2, frameon=False
    )
    return figure


def _sensitivity_note(found: Mapping[str, Dependence]) -> str:
    fits = ", ".join(
        f"{plain(name)} {each.solved.fit:.2f} and {each.predicted.fit:.2f}"
        for name, each in found.items()
        if each.solved and each.predicted
    )
    return (
        "The Gaussian processes explain this share of the variance (R²) of designs left out of the"
        f" fit, solved and predicted: {fits}."
        if fits
        else ""
    )


def _sensitivity_arrays(
    found: Mapping[str, Dependence], parameters: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return (P,) first and total of each quantity and source, and the parameters' names."""
    arrays = {"parameters": np.array(parameters, dtype=str)}
    for name, each in found.items():
        for source in SOURCES:
            indices: Sensitivity | None = getattr(each, source)
            if indices is not None:
                arrays[f"{name}.{source}.first"] = np.array(indices.first)
                arrays[f"{name}.{source}.total"] = np.array(indices.total)
    return arrays


def ledger_panel(context: Context) -> Panel:
    """Show core-seconds, and the number of predictions at which they are even."""
    ledger = ledger_of(context)
    table = Table((Column("", is_number=False), Column("core-seconds")), tuple(_rows(ledger)))
    return Panel("ledger", "Cost and savings", tables=(table,), note=_ledger_note(ledger))


def ledger_of(context: Context) -> Ledger:
    """Return the ledger of the report's run."""
    evaluation = context.evaluation
    used = [record.processor_s for record in context.records]
    return Ledger(
        solver=solver_times(context.dataset, context.surrogate.problem, tuple(evaluation.cases)),
        training=Interval(sum(used), None, 1),
        tuning_s=tuning_seconds(context.run),
        prediction_s=evaluation.timing.prediction_processor_s,
    )


def tuning_seconds(run: RunDirectory) -> float | None:
    """Return what the other trials of the run's sweep took; None for a run of no sweep."""
    sweep, name = sweep_of(run), run.url.rstrip("/").rpartition("/")[2]
    if sweep is None:
        return None
    try:
        rows = sweep.read_json(TABLE)
        return sum(float(row["seconds"]) for row in rows if not row["run"].endswith(f"/{name}"))
    except (SimgenError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _rows(ledger: Ledger) -> list[tuple[Cell, Cell]]:
    solver, unknown = ledger.solver, "not on record"
    designs = count(solver.num_solved, "design")
    per = solver.per_prediction
    saved, even = ledger.saved_s, ledger.break_even
    lines = {
        f"meshing and solving {designs} for the training": _seconds(solver.spent_s),
        "training": _seconds(ledger.training.mean),
        "search for settings": _seconds(ledger.tuning_s),
        "the solver, for the case or span of a prediction": per.text() if per else unknown,
        "a prediction": f"{ledger.prediction_s:.3g}",
        "saved by a prediction": unknown if saved is None else f"{saved:.3g}",
        "number of predictions until it breaks even": even.text() if even else unknown,
    }
    return [(Cell(words), Cell(value)) for words, value in lines.items()]


def _seconds(value: float | None) -> str:
    return "not on record" if value is None else f"{value:,.1f}"


def _ledger_note(ledger: Ledger) -> str:
    searched = (
        ""
        if ledger.tuning_s is not None
        else " The run is not part of a sweep, so there is no search to count."
    )
    return (
        "Core-seconds are CPU seconds of the solver (wall time times cores where it told none), of"
        " training and of prediction (on a GPU the time for which it was held). Designs are those"
        " of training and validation, including rejected and failed ones. Meshing is not saved,"
        " since a prediction needs points as well. The interval is the 95 % interval of the"
        " solver's time over the"
        f" predicted cases.{searched}"
    )
