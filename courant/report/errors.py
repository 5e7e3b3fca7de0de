"""Figures and tables of errors: by component, by case and parameter, over a rollout, and parity."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from courant.data.normalisation import Channel
from courant.evaluation.metrics import ALL, METRICS
from courant.evaluation.record import (
    DMD,
    MODEL,
    NEAREST_DESIGN,
    PERSISTENCE,
    POD_GP,
    POD_RBF,
    TRAINING_MEAN,
    Evaluation,
    Score,
)
from courant.problems.steady import read_solution
from courant.report.context import Context, ranked_cases
from courant.report.drawing import MODEL_COLOR, colors, markers
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.wording import channel_label, component_name, windows, with_unit
from simgen.design_space import Parameter
from simgen.publish.dataset_figures import SPLIT_COLORS

_ROLLOUT_REFERENCES = {
    PERSISTENCE: (
        "Persistence holds the initial state; it is hard to beat at the first step, in "
        "flows that change little, and after each full period of periodic flows."
    ),
    TRAINING_MEAN: "The training mean is the mean state of the training cases at the same points.",
    DMD: (
        "DMD (dynamic mode decomposition) advances the initial state by the linear map that fits "
        "the training cases best."
    ),
    NEAREST_DESIGN: (
        "The nearest design's states are those of the training case with the nearest parameters and"
        " given fields, at the same times and the nearest points, whatever the initial state."
    ),
}
_FIELD_REFERENCES = {
    NEAREST_DESIGN: (
        "The nearest design's field is that of the training case with the nearest "
        "parameters and given fields, at the nearest points."
    ),
    TRAINING_MEAN: "The training mean is one number for each component.",
    POD_GP: (
        "POD (proper orthogonal decomposition) combines the training fields' principal components, "
        "with coefficients by a Gaussian process (GP) or radial basis functions (RBF) of the "
        "design parameters."
    ),
    POD_RBF: "Both POD models know the geometry only by its parameters.",
}


def errors_panel(context: Context) -> Panel:
    """Show one row for each component and one for all; marks show where the model wins or loses."""
    evaluation = context.evaluation
    scores = {
        component: {
            name: evaluation.by_component[name][component] for name in evaluation.predictors
        }
        for component in evaluation.components
    }
    scores[ALL] = evaluation.overall
    columns = [
        Column(f"{metric.label}, {name}")
        for metric in METRICS.values()
        if metric.in_tables
        for name in evaluation.predictors
    ]
    rows = [
        (Cell(component_name(component)), *_cells(by_predictor))
        for component, by_predictor in scores.items()
    ]
    table = Table((Column("component", is_number=False), *columns), tuple(rows))
    return Panel(
        "errors",
        "Errors",
        tables=(table,),
        note=_definitions(evaluation),
        arrays=_errors_arrays(scores),
    )


def mark(ours: float, theirs: list[float]) -> Cell:
    """Mark the model's error: good if below every reference's, bad if below none."""
    if not theirs or not any(ours < other for other in theirs):
        return Cell(f"{ours:.3f}", "bad" if theirs else "")
    return Cell(f"{ours:.3f}", "good" if all(ours < other for other in theirs) else "")


def _cells(by_predictor: dict[str, Score]) -> list[Cell]:
    cells = []
    for metric in (name for name, each in METRICS.items() if each.in_tables):
        values = {name: score[metric] for name, score in by_predictor.items()}
        ours = values.pop(MODEL)
        cells += [mark(ours, list(values.values())), *(Cell(f"{v:.3f}") for v in values.values())]
    return cells


def _definitions(evaluation: Evaluation) -> str:
    is_rollout = evaluation.step_s is not None
    over = "points, steps and windows" if is_rollout else "points and cases"
    fields = {name.rpartition(".")[0] for name in evaluation.components}
    together = (
        " The row of all components is the mean over the fields, because their units differ."
        if len(fields) > 1
        else ""
    )
    known = _ROLLOUT_REFERENCES if is_rollout else _FIELD_REFERENCES
    references = "".join(f" {known[name]}" for name in evaluation.references if name in known)
    sample = "window and step" if is_rollout else "case"
    meanings = " ".join(
        metric.meaning.format(over=over, sample=sample)
        for metric in METRICS.values()
        if metric.in_tables
    )
    return (
        f"{meanings} The paper's tables of its own "
        "cases have the NMAE, which the paper never defines: its normalisation here is our "
        "reading. The paper's evaluation protocol uses relative L2. All points count alike, so "
        "fine cells weigh more than their share of the volume."
        f"{together}{references} Green values are below every reference, red ones below none."
    )


def _errors_arrays(scores: dict[str, dict[str, Score]]) -> dict[str, np.ndarray]:
    """components (C + 1,), predictors (P,) and each measure (C + 1, P)."""
    predictors = list(scores[ALL])
    measured = {
        metric: np.array([[row[name][metric] for name in predictors] for row in scores.values()])
        for metric in METRICS
    }
    return {"components": np.array(list(scores)), "predictors": np.array(predictors), **measured}


CASE_FIGURE = "errors_by_case.png"
CASE_COLUMNS = 4
NAMED_CASES = 60
"""With more cases there is no room for their ids"""

_OF_A_DESIGN = re.compile(r"[0-9a-f]{12}")
Designs = Mapping[str, Mapping[str, float]]


def case_panel(context: Context) -> Panel:
    """Show NMAE of each case beside the references', and where in the design space it is large."""
    evaluation, parameters = context.evaluation, context.dataset.schema.parameters
    caption = f"NMAE of each {evaluation.split} case, the best predicted first."
    figures = [
        PanelFigure(
            CASE_FIGURE,
            draw_cases(evaluation),
            caption,
            look_for="The blue points should lie below all others, and the last not far above.",
            score=_case_score(evaluation),
            arrays=("cases", "predictors", "nmae"),
        )
    ]
    designs = _designs(context)
    if parameters:
        figures.append(
            PanelFigure(
                "errors_by_parameter.png",
                draw_parameters(evaluation, parameters, designs),
                "The model's NMAE against each design parameter; ticks below are training designs. "
                "Where errors rise and ticks are few, more training cases may help.",
                look_for="Find your design on each axis: expect the error of the points around it.",
                score=_span(evaluation),
                arrays=("cases", "nmae", "parameter_names", "parameters"),
            )
        )
    return Panel(
        "errors_by_case",
        "Errors by case and parameter" if parameters else "Errors by case",
        tuple(figures),
        arrays=_case_arrays(evaluation, parameters, designs),
    )


def _case_score(evaluation: Evaluation) -> str:
    """Count the cases in which the model is better than every reference."""
    cases = evaluation.cases.values()
    won = sum(
        case.overall[MODEL].nmae < min(case.overall[name].nmae for name in evaluation.references)
        for case in cases
    )
    return f"The model is better than every reference in {won} of {len(cases)} cases"


def _span(evaluation: Evaluation) -> str:
    values = [case.overall[MODEL].nmae for case in evaluation.cases.values()]
    return f"NMAE from {min(values):.3f} to {max(values):.3f}"


def draw_cases(evaluation: Evaluation) -> Figure:
    """Draw NMAE of every case, the model beside its references."""
    cases, predictors = ranked_cases(evaluation), evaluation.predictors
    width = float(np.clip(0.35 * len(cases) + 2, 6.0, 16.0))
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    axis = figure.subplots()
    color, marker = colors(predictors), markers(predictors)
    for name in predictors:
        values = [evaluation.cases[case].overall[name].nmae for case in cases]
        axis.plot(values, marker[name], ms=6, color=color[name], label=name)
    axis.set(xlabel="case", ylabel="NMAE", ylim=(0, None), xlim=(-0.6, len(cases) - 0.4))
    if len(cases) <= NAMED_CASES:
        axis.set_xticks(
            range(len(cases)), short_ids(cases), rotation=90, fontsize=7, family="monospace"
        )
    axis.grid(alpha=0.25, axis="y")
    figure.legend(loc="outside upper center", ncols=len(predictors), frameon=False)
    return figure


def short_ids(cases: Sequence[str]) -> list[str]:
    """Shorten ids, of which the imported ones are names, as far as they stay different."""
    if len(cases) > 1 and not all(_OF_A_DESIGN.fullmatch(case) for case in cases):
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
    evaluation: Evaluation, parameters: Sequence[Parameter], designs: Designs
) -> Figure:
    """Draw the model's NMAE against each design parameter, training designs as ticks."""
    columns = min(CASE_COLUMNS, len(parameters))
    rows = -(-len(parameters) // columns)
    figure = Figure(figsize=(max(5.0, 3.2 * columns), 2.8 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    cases = evaluation.cases
    nmae = [cases[case].overall[MODEL].nmae for case in cases]
    training = [designs[case] for case in designs if case not in cases]
    for axis, parameter in zip(axes, parameters, strict=False):
        values = [designs[case][parameter.name] for case in cases]
        axis.plot(values, nmae, "o", ms=5, color=MODEL_COLOR)
        ticks = [design[parameter.name] for design in training]
        color = SPLIT_COLORS["train"]
        axis.plot(ticks, np.zeros(len(ticks)), "|", ms=9, color=color, alpha=0.5, clip_on=False)
        axis.set(xlabel=with_unit(parameter.name, parameter.unit), ylim=(0, None))
        axis.grid(alpha=0.25)
    for axis in axes[::columns]:
        axis.set_ylabel("NMAE")
    for axis in axes[len(parameters) :]:
        axis.set_axis_off()
    return figure


def _designs(context: Context) -> Designs:
    """Return parameters of the evaluated cases and of the training cases."""
    wanted = dict.fromkeys([*context.evaluation.cases, *context.dataset.cases("train")])
    return {case: context.dataset[case].parameters for case in wanted}


def _case_arrays(
    evaluation: Evaluation, parameters: Sequence[Parameter], designs: Designs
) -> dict[str, np.ndarray]:
    """n cases, P predictors: each metric (n, P), parameters (n, D), their names."""
    cases, predictors = ranked_cases(evaluation), evaluation.predictors
    scores = [[evaluation.cases[case].overall[name] for name in predictors] for case in cases]
    return {
        "cases": np.array(cases),
        "predictors": np.array(predictors),
        **{name: np.array([[score[name] for score in row] for row in scores]) for name in METRICS},
        "parameter_names": np.array([each.name for each in parameters]),
        "parameters": np.array(
            [[designs[case][each.name] for each in parameters] for case in cases]
        ),
    }


GROWTH_FIGURE = "error_growth.png"
GROWTH_COLUMNS = 3


def growth_panel(context: Context) -> Panel:
    """Show NMAE against time for the model and its references, and both measures at each step."""
    evaluation = context.evaluation
    caption = (
        f"NMAE over {windows(evaluation)}, against the time since the state that the prediction"
        " starts from."
    )
    first, last = (evaluation.nmae[MODEL][ALL][step] for step in (0, -1))
    figure = PanelFigure(
        GROWTH_FIGURE,
        draw_growth(evaluation),
        caption,
        look_for="The model is worth its cost where its line is below all others.",
        score=f"NMAE {first:.3f} at the first step, {last:.3f} at the last",
        arrays=("time_s", "components", "predictors", "nmae"),
    )
    names = (ALL, *evaluation.components)
    arrays = {
        "time_s": _time(evaluation),
        "components": np.array(names),
        "predictors": np.array(evaluation.predictors),
        "nmae": np.array(
            [[evaluation.nmae[p][name] for name in names] for p in evaluation.predictors]
        ),
        "relative_l2": np.array(
            [[evaluation.relative_l2[p][name] for name in names] for p in evaluation.predictors]
        ),
    }
    note = (
        "The table takes all components together. Green values are below every reference, red ones"
        " below none."
    )
    return Panel(
        "errors_over_rollout",
        "Errors over the rollout",
        (figure,),
        (_table(evaluation),),
        note,
        arrays=arrays,
    )


def draw_growth(evaluation: Evaluation) -> Figure:
    """Draw NMAE against rollout time: all components together, and each where there are several."""
    names = (ALL, *evaluation.components) if len(evaluation.components) > 1 else (ALL,)
    columns = min(GROWTH_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.4 * columns, 3.1 * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    time, color = _time(evaluation), colors(evaluation.predictors)
    for axis, name in zip(axes, names, strict=False):
        for predictor in evaluation.predictors:
            values = evaluation.nmae[predictor][name]
            axis.plot(time, values, "o-", ms=4, color=color[predictor], label=predictor)
        axis.set(xlabel="rollout time (s)", title=component_name(name), ylim=(0, None))
        axis.grid(alpha=0.25)
    for axis in axes[::columns]:
        axis.set_ylabel("NMAE")
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=len(color), frameon=False)
    return figure


def _time(evaluation: Evaluation) -> np.ndarray:
    return (evaluation.step_s or 0.0) * np.arange(1, evaluation.num_steps + 1)


def _table(evaluation: Evaluation) -> Table:
    measures = {"NMAE": evaluation.nmae, "relative L2": evaluation.relative_l2}
    heads = [f"{measure}, {name}" for measure in measures for name in evaluation.predictors]
    rows = []
    for step, time in enumerate(_time(evaluation).tolist()):
        cells = [Cell(str(step + 1)), Cell(f"{time:g}")]
        for errors in measures.values():
            theirs = [errors[name][ALL][step] for name in evaluation.references]
            cells += [mark(errors[MODEL][ALL][step], theirs), *(Cell(f"{v:.3f}") for v in theirs)]
        rows.append(tuple(cells))
    return Table(tuple(map(Column, ("step", "time (s)", *heads))), tuple(rows))


NUM_POINTS = 5_000
"""Points of each case, drawn at random"""
BINS = 120
PARITY_COLUMNS = 4


def parity_panel(context: Context) -> Panel:
    """Show one picture for each component, darker where there are more points."""
    truth, predicted = _pairs(context)
    caption = (
        f"Predicted against true values at up to {NUM_POINTS:,} random points of each "
        f"{context.evaluation.split} case, darker where there are more points. On the line a"
        " prediction is perfect."
    )
    return Panel(
        "parity",
        "Predicted against true values",
        (
            PanelFigure(
                "parity.png",
                draw_parity(truth, predicted, context.channels),
                caption,
                look_for="A narrow band on the line is accurate; a flat one misses the extremes.",
                score=_parity_score(truth, predicted, context.channels),
            ),
        ),
        arrays={"truth": truth, "prediction": predicted},
    )


def _parity_score(truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Channel]) -> str:
    """Return R2 of each component (n, C)."""
    spread = np.square(truth - truth.mean(axis=0)).sum(axis=0)
    missed = np.square(predicted - truth).sum(axis=0)
    found = 1 - missed / np.where(spread > 0, spread, np.nan)
    parts = [
        f"{component_name(channel.name)} {value:.3f}"
        for channel, value in zip(channels, found, strict=True)
        if np.isfinite(value)
    ]
    return f"R² {', '.join(parts)}" if parts else "No component varies"


def draw_parity(truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Channel]) -> Figure:
    """Draw predicted against true values (n, C) as densities."""
    columns = min(PARITY_COLUMNS, len(channels))
    rows = -(-len(channels) // columns)
    figure = Figure(figsize=(3.4 * columns, 3.9 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for number, (axis, channel) in enumerate(zip(axes, channels, strict=False)):
        bounds = _bounds(truth[:, number], predicted[:, number])
        axis.hist2d(
            truth[:, number],
            predicted[:, number],
            bins=BINS,
            range=(bounds, bounds),
            cmap="Blues",
            norm=LogNorm(vmin=1),
        )
        axis.plot(bounds, bounds, color="#b3261e", lw=0.8)
        axis.set_title(channel_label(channel), fontsize=9)
        axis.set(box_aspect=1, xlabel="truth")
    for axis in axes[::columns]:
        axis.set_ylabel("prediction")
    for axis in axes[len(channels) :]:
        axis.set_axis_off()
    return figure


def _bounds(truth: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """Return both axes' limits, without the outermost thousandth of the values."""
    low, high = np.quantile(np.concatenate([truth, predicted]), (0.0005, 0.9995))
    return float(low), float(high if high > low else low + 1)


def _pairs(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return true and predicted values (n, C) at random points of the cases."""
    generator = np.random.default_rng(0)
    truth, predicted = [], []
    for name in context.evaluation.cases:
        case = context.dataset[name]
        chosen = generator.permutation(case.num_points)[:NUM_POINTS]
        truth.append(read_solution(case, context.surrogate.normaliser)[chosen])
        predicted.append(context.surrogate.predict_case(case)[chosen])
    return np.concatenate(truth), np.concatenate(predicted)
