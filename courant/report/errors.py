"""Errors of fields by component, case and step; of quantities, with bands; sensitivities."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from courant.data.normalisation import Channel
from courant.evaluation.metrics import ALL, METRICS
from courant.evaluation.quantities import Dependence, dependences
from courant.evaluation.record import (
    DMD,
    NEAREST_DESIGN,
    PERSISTENCE,
    POD_GP,
    TRAINING_MEAN,
    QuantityScore,
)
from courant.prediction.bands import LEVEL
from courant.problems.steady import read_solution
from courant.report.context import (
    LIMIT_COLOR,
    MODEL_COLOR,
    PALETTE,
    Context,
    Style,
    axes_grid,
    colors,
    legend_above,
    ranked_cases,
)
from courant.report.page import (
    Cell,
    Panel,
    PanelTable,
    Picture,
    channel_label,
    component_name,
    count,
    number,
    plain,
)
from simgen.design_space import Parameter, with_unit
from simgen.publish.figures import SPLIT_COLORS
from simgen.regression import Sensitivity

GREEN_AND_RED = "Green values are below every reference, red ones below none."
REFERENCES = {
    PERSISTENCE: "Persistence holds the initial state; it is hard to beat at the first step, and"
    " after each full period of periodic flows.",
    TRAINING_MEAN: "The training mean is that of the training cases: of rollouts the mean state at"
    " the same points, of steady cases one number for each component.",
    DMD: "DMD (dynamic mode decomposition) advances the initial state by the linear map that fits"
    " the training cases best.",
    NEAREST_DESIGN: "The nearest design's field is that of the training case with the nearest"
    " parameters and given fields, at the nearest points and the same times.",
    POD_GP: "POD (proper orthogonal decomposition) combines the training fields' principal"
    " components, with coefficients by a Gaussian process (GP) or radial basis functions (RBF) of"
    " the design parameters.",
}


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
    rows = []
    for component, of_predictors in scores.items():
        row: dict[str, str | Cell] = {"component": component_name(component)}
        for key, metric in shown.items():
            row |= _marked(metric.label, predictors, [score[key] for score in of_predictors])
        rows.append(row)
    is_steady = evaluation.step_s is None
    over, sample = (
        ("points and cases", "case")
        if is_steady
        else ("points, steps and windows", "window and step")
    )
    notes = [metric.meaning.format(over=over, sample=sample) for metric in shown.values()]
    notes.append(
        "The paper's tables of its own cases have the NMAE, which the paper never defines: its"
        " normalisation here is our reading. The paper's evaluation protocol uses relative L2. All"
        " points count alike, so fine cells weigh more than their share of the volume."
    )
    if len({name.rpartition(".")[0] for name in evaluation.components}) > 1:
        notes.append(
            "The row of all components is the mean over the fields, because their units differ."
        )
    notes += [REFERENCES[name] for name in evaluation.references if name in REFERENCES]
    return Panel(
        "errors",
        "Errors",
        tables=[PanelTable(rows, words=("component",))],
        note=" ".join([*notes, GREEN_AND_RED]),
        arrays={
            "components": np.array(list(scores)),
            "predictors": np.array(predictors),
            **{
                metric: np.array([[score[metric] for score in row] for row in scores.values()])
                for metric in METRICS
            },
        },
    )


def _marked(
    measure: str, predictors: Sequence[str], values: Sequence[float] | np.ndarray
) -> dict[str, str | Cell]:
    """Format errors, the model's first: good if below every reference's, bad if below none."""
    wins = {bool(values[0] < other) for other in values[1:]}
    cells = [Cell.judged(f"{values[0]:.3f}", wins.pop() if len(wins) == 1 else None)]
    texts = [f"{value:.3f}" for value in values[1:]]
    heads = [f"{measure}, {name}" for name in predictors]
    return dict(zip(heads, [*cells, *texts], strict=True))


CASE_FIGURE, GROWTH_FIGURE = "errors_by_case.png", "error_growth.png"
NAMED_CASES = 60
"""With more cases there is no room for their ids"""


def case_panel(context: Context) -> Panel:
    """Show NMAE of each case beside the references', and where in the design space it is large."""
    evaluation, parameters = context.evaluation, context.dataset.schema.parameters
    cases, predictors = ranked_cases(evaluation), evaluation.predictors
    scores = [[evaluation.cases[case].overall[name] for name in predictors] for case in cases]
    metrics = {m: np.array([[score[m] for score in row] for row in scores]) for m in METRICS}
    nmae = metrics.pop("nmae")
    won = int((nmae[:, :1] < nmae[:, 1:]).all(axis=1).sum())
    pictures = [
        Picture(
            CASE_FIGURE,
            f"NMAE of each {evaluation.split} case, the best predicted first.",
            partial(draw_cases, cases, predictors, nmae),
            look_for="The blue points should lie below all others, and the last not far above.",
            score=f"The model is better than every reference in {won} of {len(cases)} cases",
            arrays={"cases": np.array(cases), "predictors": np.array(predictors), "nmae": nmae},
        )
    ]
    names = [each.name for each in parameters]
    arrays = {
        "parameter_names": np.array(names),
        "parameters": _parameters_of(context, cases, names),
    }
    if parameters:
        train = [case for case in context.dataset.cases("train") if case not in cases]
        ticks = _parameters_of(context, train, names)
        pictures.append(
            Picture(
                "errors_by_parameter.png",
                "The model's NMAE against each design parameter; ticks below are training designs."
                " Where errors rise and ticks are few, more training cases may help.",
                partial(draw_parameters, parameters, arrays["parameters"], nmae[:, 0], ticks),
                look_for="Find your design on each axis: expect the error of the points around it.",
                score=f"NMAE from {nmae[0, 0]:.3f} to {nmae[-1, 0]:.3f}",
                arrays=arrays,
            )
        )
        arrays = {}
    title = "Errors by case and parameter" if parameters else "Errors by case"
    return Panel("errors_by_case", title, pictures, arrays={**metrics, **arrays})


def _parameters_of(context: Context, cases: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Return the parameters (n, D) of cases."""
    designs = [context.dataset[case].parameters for case in cases]
    return np.array([[design[name] for name in names] for design in designs])


def draw_cases(cases: Sequence[str], predictors: Sequence[str], nmae: np.ndarray) -> Figure:
    """Draw NMAE (n, P) of every case, the model beside its references."""
    width = float(np.clip(0.35 * len(cases) + 2, 6.0, 16.0))
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    axis = figure.subplots()
    markers = ("o", "D", "_", "s", "^")
    for place, (name, color) in enumerate(colors(predictors).items()):
        marker = markers[place % len(markers)]
        axis.plot(nmae[:, place], marker, ms=6, color=color, label=name)
    axis.set(xlabel="case", ylabel="NMAE", ylim=(0, None), xlim=(-0.6, len(cases) - 0.4))
    if len(cases) <= NAMED_CASES:
        style: Style = {"rotation": 90, "fontsize": 7, "family": "monospace"}
        axis.set_xticks(range(len(cases)), short_ids(cases), **style)
    axis.grid(alpha=0.25, axis="y")
    legend_above(figure, [axis], min(len(predictors), int(width / 1.8)))
    return figure


def short_ids(cases: Sequence[str]) -> list[str]:
    """Shorten ids, of which the imported ones are names, as far as they stay different."""
    if len(cases) > 1 and not all(re.fullmatch(r"[0-9a-f]{12}", case) for case in cases):
        first, last = min(cases), max(cases)
        shared = next(
            (n for n, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), 0
        )
        cases = [case[shared:] for case in cases]
    for length in range(8, max(map(len, cases), default=0)):
        if len({case[:length] for case in cases}) == len(cases):
            return [case[:length] for case in cases]
    return list(cases)


def draw_parameters(
    parameters: Sequence[Parameter], designs: np.ndarray, nmae: np.ndarray, training: np.ndarray
) -> Figure:
    """Draw NMAE (n,) against each design parameter (n, D), training designs (m, D) as ticks."""
    figure, axes, columns = axes_grid(
        len(parameters), 4, lambda columns, rows: (max(5.0, 3.2 * columns), 2.8 * rows), True
    )
    color = SPLIT_COLORS["train"]
    for place, (axis, parameter) in enumerate(zip(axes, parameters, strict=True)):
        axis.plot(designs[:, place], nmae, "o", ms=5, color=MODEL_COLOR)
        ticks = training[:, place] if len(training) else np.zeros(0)
        axis.plot(ticks, np.zeros(len(ticks)), "|", ms=9, color=color, alpha=0.5, clip_on=False)
        axis.set(xlabel=with_unit(parameter.name, parameter.unit), ylim=(0, None))
        axis.grid(alpha=0.25)
    for axis in axes[::columns]:
        axis.set_ylabel("NMAE")
    return figure


def growth_panel(context: Context) -> Panel | None:
    """Show NMAE against time and both measures at each step; None for steady problems."""
    evaluation, predictors = context.evaluation, context.evaluation.predictors
    if evaluation.step_s is None:
        return None
    cases = count(len(evaluation.cases), f"{evaluation.split} case")
    names = (ALL, *evaluation.components)
    time = evaluation.step_s * np.arange(1, evaluation.num_steps + 1)
    nmae, relative = (
        np.array([[errors[predictor][name] for name in names] for predictor in predictors])
        for errors in (evaluation.nmae, evaluation.relative_l2)
    )
    picture = Picture(
        GROWTH_FIGURE,
        f"NMAE over {count(evaluation.num_windows, 'window')} of {cases}, one beginning every"
        f" {evaluation.step_s:g} s, against the time since the state that the prediction starts"
        " from.",
        partial(draw_growth, time, names, predictors, nmae),
        look_for="The model is worth its cost where its line is below all others.",
        score=f"NMAE {nmae[0, 0, 0]:.3f} at the first step, {nmae[0, 0, -1]:.3f} at the last",
        arrays={
            "time_s": time,
            "components": np.array(names),
            "predictors": np.array(predictors),
            "nmae": nmae,
        },
    )
    rows = [
        {
            "step": str(step + 1),
            "time (s)": f"{at:g}",
            **_marked("NMAE", predictors, nmae[:, 0, step]),
            **_marked("relative L2", predictors, relative[:, 0, step]),
        }
        for step, at in enumerate(time)
    ]
    return Panel(
        "errors_over_rollout",
        "Errors over the rollout",
        [picture],
        [PanelTable(rows)],
        note=f"The table takes all components together. {GREEN_AND_RED}",
        arrays={"relative_l2": relative},
    )


def draw_growth(
    time: np.ndarray, names: Sequence[str], predictors: Sequence[str], nmae: np.ndarray
) -> Figure:
    """Draw NMAE (P, C + 1, T) over time: all components, and each where there are several."""
    shown = names if len(names) > 2 else names[:1]
    figure, axes, columns = axes_grid(
        len(shown), 3, lambda columns, rows: (4.4 * columns, 3.1 * rows + 0.3)
    )
    color = colors(predictors)
    for place, (axis, name) in enumerate(zip(axes, shown, strict=True)):
        for predictor, errors in zip(predictors, nmae, strict=True):
            axis.plot(time, errors[place], "o-", ms=4, color=color[predictor], label=predictor)
        axis.set(xlabel="rollout time (s)", title=component_name(name), ylim=(0, None))
        axis.grid(alpha=0.25)
    for axis in axes[::columns]:
        axis.set_ylabel("NMAE")
    legend_above(figure, axes)
    return figure


NUM_POINTS = 5_000
"""Points of each case, drawn at random"""


def parity_panel(context: Context) -> Panel | None:
    """Show one picture for each component, darker for more points; None for rollouts."""
    if context.evaluation.step_s is not None:
        return None
    generator = np.random.default_rng(0)
    true_parts, predicted_parts = [], []
    for name in context.evaluation.cases:
        case = context.dataset[name]
        chosen = generator.permutation(case.num_points)[:NUM_POINTS]
        true_parts.append(read_solution(case, context.surrogate.normaliser)[chosen])
        predicted_parts.append(context.surrogate.predict_case(case)[chosen])
    truth, predicted = np.concatenate(true_parts), np.concatenate(predicted_parts)
    spread = np.square(truth - truth.mean(axis=0)).sum(axis=0)
    missed = np.square(predicted - truth).sum(axis=0)
    explained = 1 - missed / np.where(spread > 0, spread, np.nan)
    scores = [
        f"{component_name(channel.name)} {value:.3f}"
        for channel, value in zip(context.channels, explained, strict=True)
        if np.isfinite(value)
    ]
    picture = Picture(
        "parity.png",
        f"Predicted against true values at up to {NUM_POINTS:,} random points of each"
        f" {context.evaluation.split} case, darker where there are more points. On the line a"
        " prediction is perfect.",
        partial(draw_parity, truth, predicted, context.channels),
        look_for="A narrow band on the line is accurate; a flat one misses the extremes.",
        score=f"R² {', '.join(scores)}" if scores else "No component varies",
    )
    arrays = {"truth": truth, "prediction": predicted}
    return Panel("parity", "Predicted against true values", [picture], arrays=arrays)


def draw_parity(truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Channel]) -> Figure:
    """Draw predicted against true values (n, C) as densities."""
    figure, axes, columns = axes_grid(
        len(channels), 4, lambda columns, rows: (3.4 * columns, 3.9 * rows)
    )
    for axis, channel, true, ours in zip(axes, channels, truth.T, predicted.T, strict=True):
        # Without the outermost thousandth of the values.
        low, high = np.quantile(np.concatenate([true, ours]), (0.0005, 0.9995)).tolist()
        bounds = (low, high if high > low else low + 1)
        axis.hist2d(true, ours, bins=120, range=(bounds, bounds), cmap="Blues", norm=LogNorm(1))
        axis.plot(bounds, bounds, color=LIMIT_COLOR, lw=0.8)
        axis.set_title(channel_label(channel), fontsize=9)
        axis.set(box_aspect=1, xlabel="truth")
    for axis in axes[::columns]:
        axis.set_ylabel("prediction")
    return figure


def quantities_panel(context: Context) -> Panel | None:
    """Show the quantities that the family declares; None where it declares none."""
    evaluation = context.evaluation
    scores = evaluation.quantities
    if not scores and not evaluation.not_predicted:
        return None
    widths = half_widths(context)
    pictures, tables, notes = [], [], []
    arrays: dict[str, np.ndarray] = {}
    if scores:
        judged = [each for each in scores.values() if None not in (each.error, each.null_error)]
        errors = [each.error for each in scores.values() if each.error is not None]
        won = sum(not each.null_wins for each in judged)
        score = "Unknown for these cases"
        if judged:
            score = f"Better than the design parameters alone: {won} of {len(judged)} quantities"
        elif errors:
            score = f"Largest relative error {max(errors):.1%}"
        bars = (
            f" A bar is the band that holds the solved value in {LEVEL:.0%} of new designs like"
            " those of the calibration; a point without a bar is a case for which none holds."
        )
        pictures.append(
            Picture(
                "quantities.png",
                f"For each {evaluation.split} case, the quantity from the predicted fields against"
                " that from the solved ones. The diamonds are a Gaussian process on the design"
                f" parameters, without fields.{bars if widths else ''}",
                partial(draw_quantities, scores, widths),
                look_for="Points should lie on the line, and nearer to it than the diamonds.",
                score=score,
            )
        )
        tables.append(quantity_table(scores))
        arrays["cases"] = np.array(list(evaluation.cases), dtype=str)
        notes.append("An error is the sum of absolute errors over the sum of absolute values.")
    for name, each in scores.items():
        arrays[f"{name}.truth"] = _values(each.truth)
        arrays[f"{name}.prediction"] = _values(each.predicted)
        if each.null:
            arrays[f"{name}.null"] = _values(each.null)
        if name in widths:
            arrays[f"{name}.half_width"] = widths[name]
        known = [case for case, value in each.truth.items() if value is not None]
        if lost := sum(each.predicted[case] is None for case in known):
            notes.append(
                f"The predicted fields of {lost} of {count(len(known), 'case')} have no"
                f" {plain(name)}, so the model has no error of it."
            )
    missing = [f"{plain(name)} ({why})" for name, why in sorted(evaluation.not_predicted.items())]
    if missing:
        notes.append(f"This model does not predict {', '.join(missing)}.")
    if (trust := trust_table(context, widths)) is not None:
        tables.append(trust)
        notes.append(
            "A band is the median half-width over these cases. The last column is by how much the"
            " solver's mesh lets a quantity be wrong, with 90 % probability, in shares of its"
            " value; no band has it."
        )
    title, note = "Quantities of interest", " ".join(notes)
    return Panel("quantities", title, pictures, tables, note, arrays=arrays)


def _values(by_case: Mapping[str, float | None]) -> np.ndarray:
    """Return (n,), NaN where a value is not known."""
    return np.array([np.nan if value is None else value for value in by_case.values()])


def half_widths(context: Context) -> dict[str, np.ndarray]:
    """Return the half-widths (n,) of each quantity's bands, NaN where none holds; else empty."""
    surrogate, bands = context.surrogate, context.surrogate.bands
    if bands is None:
        return {}
    cases = [context.dataset[case] for case in context.evaluation.cases]
    designs = [surrogate.scaled(case.parameters) for case in cases]
    holds = []
    for case in cases:
        prepared = surrogate.prepare_case(case, surrogate.problem.start(case))
        holds.append(not surrogate.no_band(prepared, case.parameters, bands))
    return {
        name: np.where(holds, [bands.quantity(name, design) for design in designs], np.nan)
        for name in context.evaluation.quantities
        if name in bands.quantities
    }


def draw_quantities(
    quantities: Mapping[str, QuantityScore], widths: Mapping[str, np.ndarray] | None = None
) -> Figure:
    """Draw predicted against true values, a picture for each quantity."""
    figure, axes, _ = axes_grid(
        len(quantities), 3, lambda columns, rows: (max(5.0, 4.0 * columns), 3.8 * rows + 0.4)
    )
    for axis, (name, score) in zip(axes, quantities.items(), strict=True):
        truth, predicted = _values(score.truth), _values(score.predicted)
        if score.null:
            null = _values(score.null)
            axis.plot(truth, null, "D", ms=5, color=PALETTE[1], label="parameters alone")
        width = (widths or {}).get(name)
        if width is not None and (there := np.isfinite(width)).any():
            bars: Style = {"ecolor": MODEL_COLOR, "elinewidth": 1.2, "capsize": 2}
            axis.errorbar(truth[there], predicted[there], width[there], fmt="none", **bars)
        axis.plot(truth, predicted, "o", ms=6, color=MODEL_COLOR, label="model")
        known = truth[np.isfinite(truth)]
        if len(known):
            axis.plot([known.min(), known.max()], [known.min(), known.max()], color="k", lw=0.8)
        axis.set_title(with_unit(plain(name), score.unit), fontsize=9)
        axis.set(xlabel="true", ylabel="predicted")
        axis.grid(alpha=0.25)
    legend_above(figure, axes[:1], 2)
    return figure


def quantity_table(quantities: Mapping[str, QuantityScore]) -> PanelTable:
    """Compare errors and rank correlations, the better of two in green."""
    rows = []
    for name, score in quantities.items():
        row: dict[str, str | Cell] = {"quantity": plain(name), "meaning": score.meaning}
        pairs = {
            "error": (score.error, score.null_error),
            "rank correlation": (score.rank_correlation, score.null_rank_correlation),
        }
        for what, (ours, null) in pairs.items():
            wins = None
            if ours is not None and null is not None and ours != null:
                wins = (ours < null) == (what == "error")
            row[f"{what}, model"] = Cell.judged(number(ours), wins)
            row[f"{what}, parameters alone"] = number(null)
        rows.append(row)
    return PanelTable(rows, words=("quantity", "meaning"))


def trust_table(context: Context, widths: Mapping[str, np.ndarray]) -> PanelTable | None:
    """Return bands and mesh intervals by quantity; None for a run that is not calibrated.

    A band is the median over the evaluated cases; `widths` (n,) are NaN where none holds.
    """
    surrogate, bands = context.surrogate, context.surrogate.bands
    if bands is None:
        return None
    alone = [
        bands.by_regression(surrogate.scaled(context.dataset[case].parameters))
        for case in context.evaluation.cases
    ]
    rows = []
    for each in context.dataset.schema.quantities:
        by_model = widths.get(each.name, np.zeros(0))
        by_regression = np.array([of[each.name][1] for of in alone if each.name in of])
        mesh = bands.grid.get(each.name)
        if each.name in widths or len(by_regression) or mesh:
            finite = [values[np.isfinite(values)] for values in (by_model, by_regression)]
            medians = [f"± {np.median(of):.2g}" if len(of) else "none" for of in finite]
            row = {
                "quantity": with_unit(plain(each.name), each.unit),
                f"{LEVEL:.0%} band, model": medians[0],
                f"{LEVEL:.0%} band, by regression on the parameters": medians[1],
                "on an infinitely fine mesh": bands.no_grid.get(each.name, "not studied"),
            }
            if mesh:
                interval = f"{mesh.low:+.1%} to {mesh.high:+.1%} ({mesh.num_designs} designs)"
                row["on an infinitely fine mesh"] = interval
            rows.append(row)
    return PanelTable(rows, words=("quantity",)) if rows else None


SOURCES = {"solved": "#7a7a7a", "predicted": PALETTE[0]}


def sensitivity_panel(context: Context) -> Panel | None:
    """Show Sobol indices; None where they follow from too few designs."""
    found = {
        name: each
        for name, each in dependences(context.surrogate, context.dataset).items()
        if each.solved is not None or each.predicted is not None
    }
    if not found:
        return None
    parameters = [each.name for each in context.dataset.schema.parameters]
    arrays = {"parameters": np.array(parameters, dtype=str)}
    apart, fits = [], []
    for name, each in found.items():
        for source, indices in _by_source(each):
            arrays[f"{name}.{source}.first"] = np.array(indices.first)
            arrays[f"{name}.{source}.total"] = np.array(indices.total)
        if each.solved is not None and each.predicted is not None:
            difference = np.subtract(each.solved.first, each.predicted.first)
            apart.append(float(np.abs(difference).max()))
            fits.append(f"{plain(name)} {each.solved.fit:.2f} and {each.predicted.fit:.2f}")
    picture = Picture(
        "sensitivity.png",
        "Sobol indices: the share of each quantity's variance over the design space that a"
        " parameter explains, alone (bar) and with its interactions (line), for the solved designs"
        " and for the model's predictions, each from a Gaussian process fitted to designs of this"
        " dataset.",
        partial(draw_sensitivity, found, parameters),
        look_for="Blue bars as high as the grey ones mean that the model has learned what each"
        " quantity depends on.",
        score=f"First indices of solved and predicted designs differ by at most {max(apart):.2f}"
        if apart
        else "Indices are known of one of the two only",
    )
    note = (
        "The Gaussian processes explain this share of the variance (R²) of designs left out of the"
        f" fit, solved and predicted: {', '.join(fits)}."
    )
    return Panel(
        "sensitivity",
        "Dependence of the quantities on the parameters",
        [picture],
        note=note if fits else "",
        arrays=arrays,
    )


def _by_source(each: Dependence) -> list[tuple[str, Sensitivity]]:
    """Return the known indices, of solved designs and of predictions."""
    found = {"solved": each.solved, "predicted": each.predicted}
    return [(source, indices) for source, indices in found.items() if indices is not None]


def draw_sensitivity(found: Mapping[str, Dependence], parameters: Sequence[str]) -> Figure:
    """Draw first and total indices of every quantity by parameter."""
    figure = Figure(figsize=(max(6.0, 4.2 * len(found)), 3.6), layout="constrained")
    axes = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
    for axis, (name, each) in zip(axes, found.items(), strict=True):
        for source, indices in _by_source(each):
            places = np.arange(len(parameters)) + (-0.2 if source == "solved" else 0.2)
            axis.bar(places, indices.first, 0.36, color=SOURCES[source], label=source)
            axis.vlines(places, 0, indices.total, color="k", lw=1.5)
        axis.set_title(plain(name), fontsize=9)
        names = list(map(plain, parameters))
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.25, axis="y")
    axes[0].set_ylabel("Sobol index")
    legend_above(figure, axes, 2)
    return figure
