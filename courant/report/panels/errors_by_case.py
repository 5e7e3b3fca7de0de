"""Show errors case by case, and against each design parameter."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from courant.evaluation.evaluation import MODEL, Evaluation
from courant.evaluation.metrics import METRICS
from courant.report.context import Context, ranked_cases
from courant.report.drawing import MODEL_COLOR, colors, markers
from courant.report.panel import Panel, PanelFigure
from courant.report.wording import with_unit
from simgen.design_space import Parameter
from simgen.publish.dataset_figures import SPLIT_COLORS

FIGURE = "errors_by_case.png"
COLUMNS = 4
NAMED_CASES = 60
"""With more cases there is no room for their ids"""

_OF_A_DESIGN = re.compile(r"[0-9a-f]{12}")
Designs = Mapping[str, Mapping[str, float]]


def panel(context: Context) -> Panel:
    """Show NMAE of each case beside the references', and where in the design space it is large."""
    evaluation, parameters = context.evaluation, context.dataset.schema.parameters
    caption = f"NMAE of each {evaluation.split} case, the best predicted first."
    figures = [
        PanelFigure(
            FIGURE,
            draw_cases(evaluation),
            caption,
            look_for="The blue points should lie below all others, and the last not far above.",
            score=_score(evaluation),
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
        arrays=_arrays(evaluation, parameters, designs),
    )


def _score(evaluation: Evaluation) -> str:
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
    columns = min(COLUMNS, len(parameters))
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


def _arrays(
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
