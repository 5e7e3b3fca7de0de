"""Errors of fields by component, case and step, and of quantities, with bands."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from courant.evaluation import record
from courant.evaluation.metrics import ALL, METRICS, finite_or_none
from courant.evaluation.quantities import solved_and_predicted
from courant.prediction.answers import REGRESSION
from courant.prediction.bands import QuantityBand, quantity_bands
from courant.report import drawing
from courant.report import page as pages
from courant.report.context import Context
from courant.report.page import Cell, Panel, PanelTable, Picture, listed, number, percent, plain
from simgen.design_space import with_unit
from simgen.publish.figures import axes_grid
from simgen.quantities import obtainable


def errors_panel(context: Context) -> Panel:
    """Show one row for each component and one for all; marks show where the model wins or loses."""
    evaluation = context.evaluation
    predictors = evaluation.predictors
    scores = {
        component: [evaluation.by_component[name][component] for name in predictors]
        for component in evaluation.components
    }
    scores[ALL] = [evaluation.overall[name] for name in predictors]
    shown = {name: metric for name, metric in METRICS.items() if metric.in_tables}
    # A column for each measure of all components, and for the NMAE of each.
    columns = {f"{of.label}, all": [each[key] for each in scores[ALL]] for key, of in shown.items()}
    if len(scores) > 2:
        columns |= {
            f"{METRICS['nmae'].label}, {pages.component_name(name)}": [each.nmae for each in of]
            for name, of in scores.items()
            if name != ALL
        }
    rows, own = [], predictors.index(context.by)
    for place, name in enumerate(predictors):
        row: dict[str, str | Cell] = {"predicted by": pages.reference(name)}
        for column, values in columns.items():
            # What differs by less than a twentieth may be chance.
            ratio = values[own] / max(min(values[:own] + values[own + 1 :]), 1e-300)
            judged = None if place != own or 0.95 < ratio < 1.05 else ratio < 1
            row[column] = Cell.judged(f"{values[place]:.3f}", judged)
        rows.append(row)
    over, sample = "points, steps and windows", "window and step"
    if evaluation.step_s is None:
        over, sample = "points and cases", "case"
    notes = [f"On {pages.count(len(evaluation.cases), f'{evaluation.split} case')}."]
    notes += [metric.meaning.format(over=over, sample=sample) for metric in shown.values()]
    if len({name.rpartition(".")[0] for name in evaluation.components}) > 1:
        notes.append("All components together is the mean of fields, because their units differ.")
    notes.append("Green: a twentieth or more below all others; red: above the best of them.")
    return Panel(
        "errors",
        "Beside the references",
        tables=[PanelTable(rows, words=("predicted by",))],
        note=" ".join(notes),
    )


LEAST_DRAWN = 3  # cases, of which a picture shows more than a table


def case_panel(context: Context) -> Panel | None:
    """Show NMAE by case beside the references', and by parameter; None for fewer than three."""
    if len(context.evaluation.cases) < LEAST_DRAWN:
        return None
    evaluation, parameters = context.evaluation, context.dataset.schema.parameters
    cases, predictors, by = context.ranked, evaluation.predictors, context.by
    of_cases = (evaluation.cases[case].overall for case in cases)
    nmae = np.array([[of[name].nmae for name in predictors] for of in of_cases])
    arrays = {"cases": np.array(cases), "predictors": np.array(predictors), "nmae": nmae}
    own = nmae[:, predictors.index(by)]
    won = int((own[:, None] <= nmae).all(axis=1).sum())
    # Beside the parameters' figure, as far as there is room.
    across = min(5, len(parameters))
    each_width = min(2.1, 8.2 / (across or 1))
    width = float(np.clip(0.35 * len(cases) + 2, 12.0 - max(5.0, each_width * across), 16.0))
    figure = Figure(figsize=(width, 3.4))
    axis = figure.subplots()
    for name, errors in zip(predictors, nmae.T, strict=True):
        axis.plot(errors, ls="", ms=6, **drawing.PREDICTORS[name])
    axis.set(xlabel="case", ylabel="NMAE", ylim=(0, None), xlim=(-0.6, len(cases) - 0.4))
    if len(cases) <= 60:
        axis.set_xticks(range(len(cases)), cases, rotation=90, fontsize=7)
    drawing.legend_above(figure, [axis], int(width / 1.8))
    pictures = [
        Picture(
            "errors_by_case.png",
            f"NMAE of each {evaluation.split} case, the best predicted first.",
            figure,
            look_for=f"The points of {pages.called(by)} should lie below all others.",
            score=f"They do in {won} of {len(cases)} cases",
        )
    ]
    names, table = [each.name for each in parameters], context.dataset.design
    designs = table.loc[cases, names].to_numpy(float)
    arrays |= {"parameter_names": np.array(names), "parameters": designs}
    if parameters:
        train = [case for case in context.dataset.cases("train") if case not in cases]
        figure, axes = axes_grid(len(parameters), across, each_width, 3.0, share_y=True)
        color = drawing.PREDICTORS[by]["color"]
        for place, (axis, parameter) in enumerate(zip(axes, parameters, strict=True)):
            axis.plot(designs[:, place], own, "o", ms=5, color=color)
            ticks = table.loc[train, parameter.name].to_numpy(float)
            axis.plot(ticks, 0 * ticks, "|", ms=9, color=color, alpha=0.5, clip_on=False)
            axis.set(xlabel=with_unit(plain(parameter.name), parameter.unit), ylim=(0, None))
            axis.locator_params("x", nbins=4)
        figure.supylabel("NMAE")
        pictures.append(
            Picture(
                "errors_by_parameter.png",
                f"The NMAE of {pages.called(by)} against each design parameter. Ticks below are"
                " training designs. Where errors rise and ticks are few, more may help.",
                figure,
                look_for="Find your design on each axis: expect the error of the points around it.",
                score=f"NMAE from {own[0]:.3f} to {own[-1]:.3f}",
            )
        )
    title = "Errors by case and parameter" if parameters else "Errors by case"
    return Panel("errors_by_case", title, pictures, arrays=arrays)


def growth_panel(context: Context) -> Panel | None:
    """Show NMAE against time and both measures at each step; None for steady problems."""
    evaluation, predictors = context.evaluation, context.evaluation.predictors
    if evaluation.step_s is None:
        return None
    cases = pages.count(len(evaluation.cases), f"{evaluation.split} case")
    names = (ALL, *evaluation.components)
    time = evaluation.step_s * np.arange(1, evaluation.num_steps + 1)
    nmae, relative = (
        np.array([[errors[predictor][name] for name in names] for predictor in predictors])
        for errors in (evaluation.nmae, evaluation.relative_l2)
    )
    shown, own = names if len(names) > 2 else names[:1], nmae[predictors.index(context.by), 0]
    figure, axes = axes_grid(len(shown), 4 if len(shown) == 4 else 3, 4.4, 3.1)
    for place, (axis, name) in enumerate(zip(axes, shown, strict=True)):
        for predictor, errors in zip(predictors, nmae, strict=True):
            axis.plot(time, errors[place], ms=4, **drawing.PREDICTORS[predictor])
        axis.set(xlabel="rollout time (s)", title=pages.component_name(name), ylim=(0, None))
    axes[0].set_ylabel("NMAE")
    drawing.legend_above(figure, axes)
    picture = Picture(
        "error_growth.png",
        f"NMAE over {pages.count(evaluation.num_windows, 'window')} of {cases}, one beginning every"
        f" {evaluation.step_s:g} s, against the time since the state that the prediction starts"
        " from.",
        figure,
        look_for=f"The line of {pages.called(context.by)} should be below all others.",
        score=f"NMAE {own[0]:.3f} at the first step, {own[-1]:.3f} at the last",
    )
    return Panel(
        "errors_over_rollout",
        "Errors over the rollout",
        [picture],
        arrays={
            "time_s": time,
            "components": np.array(names),
            "predictors": np.array(predictors),
            "nmae": nmae,
            "relative_l2": relative,
        },
    )


def quantities_panel(context: Context) -> Panel | None:
    """Show the quantities that the family declares; None where it declares none."""
    evaluation, scores = context.evaluation, context.evaluation.quantities
    if not scores and not evaluation.not_predicted:
        return None
    bands = bands_of(context)
    widths = {
        name: np.array([np.nan if band is None else band.half_width for band in of])
        for name, of in bands.items()
    }
    pictures, tables, notes = [], [], []
    arrays: dict[str, np.ndarray] = {}
    if scores:
        alone = [plain(name) for name, each in scores.items() if each.source == REGRESSION]
        bars = " Bars are the bands, where they hold." if bands else ""
        if len(alone) < len(scores):
            bars += " Diamonds are a regression on the parameters alone: points should be nearer."
        picture = Picture(
            "quantities.png",
            f"For each {evaluation.split} case, the answer against what the solver measured.{bars}",
            draw_quantities(scores, widths),
            look_for="Points should lie on the line.",
            score=f"A regression alone answers for {listed(alone)}"
            if alone
            else "The fields are part of every answer",
        )
        pictures += [picture] * (len(evaluation.cases) >= LEAST_DRAWN)
        of_fields = {name: dict(each.of_fields) for name, each in scores.items()}
        if by := context.better[1]:
            for case in map(context.dataset.__getitem__, evaluation.cases):
                found = solved_and_predicted(context.surrogate, context.dataset, case, by)[1]
                for name, values in of_fields.items():
                    values[case.id] = finite_or_none(found.get(name, np.nan))
        tables.append(quantity_table(context, of_fields))
        arrays["cases"] = np.array(list(evaluation.cases), dtype=str)
        notes.append(
            "An answer is a regression on the design parameters, fitted to training and validation"
            " cases, and what the predicted fields add to it, which is chosen on validation cases:"
            " on a few test cases the fields may look better alone. An error is the sum of absolute"
            " errors over the sum of absolute values that the solver measured. Fields alone are put"
            " through a formula in their cells; what solved fields are off by is the formula's."
        )
    for name, each in scores.items():
        arrays[f"{name}.truth"] = _values(each.truth)
        arrays[f"{name}.prediction"] = _values(each.predicted)
        if each.null:
            arrays[f"{name}.null"] = _values(each.null)
        if name in widths:
            arrays[f"{name}.half_width"] = widths[name]
    missing = [f"{plain(name)} ({why})" for name, why in sorted(evaluation.not_predicted.items())]
    if missing:
        notes.append(f"This model does not predict {', '.join(missing)}.")
    return Panel(
        "quantities", "Quantities of interest", pictures, tables, " ".join(notes), "", arrays
    )


def _values(by_case: Mapping[str, float | None]) -> np.ndarray:
    """Return (n,), NaN where a value is not known."""
    return np.array([np.nan if value is None else value for value in by_case.values()])


def bands_of(context: Context) -> dict[str, list[QuantityBand | None]]:
    """Return each quantity's bands by case, None where none holds; without those that have none."""
    surrogate, bands = context.surrogate, context.surrogate.bands
    scores, found = context.evaluation.quantities, []
    for case in map(context.dataset.__getitem__, context.evaluation.cases):
        usable, design = True, surrogate.scaled(case.parameters)
        if bands is not None:
            prepared = surrogate.prepare_case(case, surrogate.problem.start(case))
            usable = not bands.out_of_reach(surrogate.pooled_latents(prepared))
        of_case = {name: each.predicted[case.id] for name, each in scores.items()}
        values = {name: value for name, value in of_case.items() if value is not None}
        found.append(quantity_bands(surrogate.answers, bands, design, values, usable))
    by_name = {name: [of_case.get(name) for of_case in found] for name in scores}
    return {name: of for name, of in by_name.items() if any(of)}


def bands_in_the_middle(context: Context) -> dict[str, list[QuantityBand | None]]:
    """Return the bands of the middle design, for quantities that a regression answers."""
    answers, middle = context.surrogate.answers, np.zeros((1, len(context.surrogate.space)))
    values = {name: of[0] for name, of in answers.at(middle, {}, usable=False).items()}
    found = quantity_bands(answers, context.surrogate.bands, middle[0], values, usable=False)
    scores = context.evaluation.quantities
    return {k: [found[k]] for k, of in scores.items() if k in found and not of.constant}


def draw_quantities(
    quantities: Mapping[str, record.QuantityScore], widths: Mapping[str, np.ndarray]
) -> Figure:
    """Draw predicted against true values, with bands where they hold, a picture for each."""
    figure, axes = axes_grid(len(quantities), 3, 4.0, 3.8)
    for axis, (name, score) in zip(axes, quantities.items(), strict=True):
        truth, predicted = _values(score.truth), _values(score.predicted)
        if score.null and score.source != REGRESSION:
            null = _values(score.null)
            axis.plot(truth, null, "D", ms=5, color=drawing.PALETTE[1], label="parameters alone")
        axis.plot(truth, predicted, "o", ms=6, color=drawing.MODEL_COLOR, label="answer")
        if (width := widths.get(name)) is not None and (holds := np.isfinite(width)).any():
            style: drawing.Style = {"fmt": "none", "ecolor": drawing.MODEL_COLOR, "capsize": 2}
            axis.errorbar(truth[holds], predicted[holds], width[holds], **style)
        axis.set(title=with_unit(plain(name), score.unit), xlabel="true", ylabel="predicted")
        limits = [*axis.get_xlim(), *axis.get_ylim()]
        ends = min(limits), max(limits)
        axis.plot(ends, ends, color="k", lw=0.8)
        axis.set(xlim=ends, ylim=ends, box_aspect=1)
    if any(score.source != REGRESSION for score in quantities.values()):
        drawing.legend_above(figure, axes)
    return figure


def lead_table(
    context: Context, around: Mapping[str, list[QuantityBand | None]]
) -> PanelTable | None:
    """Return the quantities' errors, their bands, and the mesh's errors where it is calibrated.

    A band is the median over the evaluated cases. None for a model without quantities.
    """
    bands, rows = context.surrogate.bands, []
    kinds = dict.fromkeys(f"{band.level:.0%}" for of in around.values() for band in of if band)
    for name, score in context.evaluation.quantities.items():
        row: dict[str, str | Cell] = {"quantity": with_unit(plain(name), score.unit)}
        row["answered by"] = _source(score)
        row["error"] = percent(score.error)
        if around:
            of = around.get(name, ())
            known = [band for band in of if band]
            half = np.median([band.half_width for band in known]) if known else 0.0
            share = half / (float(np.nanmean(np.abs(_values(score.predicted)))) or np.inf)
            band = f"± {number(half, 2)} ({share:.0%})" if known else "none"
            row[f"band ({' or '.join(kinds)})"] = band
            off = np.abs(_values(score.truth) - _values(score.predicted))
            if len(of) == len(off) > 1:
                pairs = zip(off, of, strict=True)
                held = [each <= band.half_width for each, band in pairs if band and each == each]
                row["cases inside"] = f"{sum(held)} of {len(held)}"
        if bands is not None:
            mesh, why = bands.grid.get(name), bands.no_grid.get(name, "not studied")
            row["on a fine mesh"] = f"{mesh.low:+.1%} to {mesh.high:+.1%}" if mesh else why
        rows.append(row)
    return PanelTable(rows, words=("quantity", "answered by")) if rows else None


def _source(score: record.QuantityScore) -> str | Cell:
    return Cell("no trend, its mean", "bad") if score.constant else score.source


def quantity_table(context: Context, alone: Mapping[str, Mapping[str, float | None]]) -> PanelTable:
    """Compare errors and rank correlations, the better of two in green."""
    rows, by = [], pages.called(context.by).removeprefix("the ")
    lacking = obtainable(context.dataset.computed, context.surrogate.channels)[1]
    for name, score in context.evaluation.quantities.items():
        row: dict[str, str | Cell] = {"quantity": plain(name), "meaning": score.meaning}
        row |= {"answered by": _source(score), "error": percent(score.error)}
        if (error := score.error_of(alone[name])) is not None:
            row[f"error, {by}'s fields alone"] = percent(error)
            row["error, solved fields alone"] = percent(score.error_of(score.of_solved_fields))
        else:
            row[f"error, {by}'s fields alone"] = plain(lacking.get(name, "not finite"))
        if score.rank_correlation is not None:
            row["rank correlation"] = number(score.rank_correlation)
        # Of a regression that would be much the same, of fewer cases.
        if score.null_error is not None and score.source != REGRESSION:
            if score.error not in (None, score.null_error):
                row["error"] = Cell.judged(percent(score.error), score.error < score.null_error)
            row["error, parameters alone"] = percent(score.null_error)
        rows.append(row)
    return PanelTable(rows, words=("quantity", "meaning", "answered by"))
