"""Show how well the anchors that err can be told without the truth."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.error_indicators.anchor_state import anchor_state
from courant.analysis.error_indicators.regression import MIN_CASES
from courant.analysis.error_indicators.study import (
    INDICATOR,
    RANDOM,
    TRUTH,
    USUAL,
    IndicatorStudy,
    JudgedState,
    judge,
    study_errors,
)
from courant.report.context import Context
from courant.report.drawing import PALETTE, WIDTH, height_of, place
from courant.report.images.colour_maps import MAGNITUDES
from courant.report.panel import Panel, PanelFigure
from simgen.publish.field_plots import Layer, add_colorbar, draw_field, layer

MOST_CASES = 6
"""Cases of each split that the report looks at: `courant analyse errors` takes all"""
LABELS = {
    INDICATOR: "the indicator",
    USUAL: "which anchors\nusually err",
    RANDOM: "chance",
    TRUTH: "the truth",
}
COLORS = {INDICATOR: PALETTE[0], USUAL: PALETTE[1], RANDOM: PALETTE[2], TRUTH: PALETTE[3]}


def panel(context: Context) -> Panel | None:
    """Show where errors are expected and where they are; None with too few validation cases.

    Also None for an evaluation of the validation split, to which the indicator is fitted.
    """
    surrogate, dataset, shown = context.surrogate, context.dataset, context.shown[0]
    if context.evaluation.split == "validation":
        return None
    if not surrogate.decomposes or len(dataset.cases("validation")) < MIN_CASES:
        return None
    dominant = context.scores.dominant
    if dominant is None or context.scores.addresses is None:
        return None
    judged_on = list(context.evaluation.cases)[:MOST_CASES]
    study = study_errors(surrogate, dataset, judged_on, most=MOST_CASES)
    here = judge(study.indicator, anchor_state(surrogate, shown.case, shown.start_s))
    triangles = layer(shown.case)
    figure = draw(triangles, study, here, dominant)
    assert here.state.errors is not None
    return Panel(
        "error_indicator",
        "Errors estimated without the solution",
        (
            PanelFigure(
                "error_indicator.png",
                figure,
                _caption(study, place(shown.case, triangles)),
                look_for="Where the left picture is dark, the middle one should be dark too.",
                score=(
                    f"The tenth of the anchors ranked first has {study.carried[INDICATOR]:.0%} of"
                    f" the squared error; chance gives {study.carried[RANDOM]:.0%}"
                ),
            ),
        ),
        note=(
            "The indicator ranks the anchors of a prediction by features that the model itself"
            " has: the roughness and strength of the field where an anchor has weight, the distance"
            " of its latent from those of the training, and the errors of similar anchors on"
            " validation cases. Use it to decide where to look first. It does not tell how large"
            " errors are; bands do (docs/bands.md)."
            f" `courant analyse errors {context.run.url}` judges it on all test cases."
        ),
        arrays={
            "expected_error": here.expected,
            "error_address": here.state.errors,
            "carried": np.array([list(each.carried.values()) for each in study.judged]),
        },
    )


def draw(shown: Layer, study: IndicatorStudy, here: JudgedState, dominant: np.ndarray) -> Figure:
    """Draw the expected and the true part of the error at each anchor, and the rankings' success.

    A cell shows the part of its dominant anchor.
    """
    assert here.state.errors is not None
    height = height_of(shown.aspect, 4.2, 2.6, 4.6)
    figure = Figure(figsize=(WIDTH, height + 0.8), layout="constrained")
    expected, true, bars = figure.subplots(1, 3, width_ratios=(1.4, 1.4, 1))
    parts = [100 * each / (each.sum() or 1.0) for each in (here.expected, here.state.errors)]
    limits = (0.0, float(max(part.max() for part in parts)))
    titles = ("expected, without the truth", "true")
    for axis, part, title in zip((expected, true), parts, titles, strict=True):
        artist = draw_field(axis, shown, part[dominant], limits=limits, cmap=MAGNITUDES)
        axis.set_title(title, fontsize=9, loc="left")
        label = "part of the error at the anchor (%)"
        if add_colorbar(figure, artist, axis, label=label, location="bottom", pad=0.02) is None:
            axis.set_ylabel(label)
    _draw_bars(bars, study.carried)
    return figure


def _draw_bars(axis: Axes, carried: dict[str, float]) -> None:
    names = list(carried)
    places = np.arange(len(names))[::-1]
    axis.barh(places, list(carried.values()), color=[COLORS[name] for name in names], height=0.6)
    for where, value in zip(places, carried.values(), strict=True):
        axis.text(value, where, f" {value:.0%}", va="center", fontsize=9)
    axis.set_yticks(places, [LABELS[name] for name in names])
    axis.set(
        xlim=(0, 1.18 * max(carried.values())),
        xlabel="squared error at the tenth\nof anchors ranked first",
    )
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.spines[["top", "right"]].set_visible(False)


def _caption(study: IndicatorStudy, where: str) -> str:
    carried = study.carried
    return (
        "The left picture shows the expected part of each cell's dominant anchor in the squared"
        f" error of the first prediction above{f', in {where}' if where else ''}; the middle"
        " picture shows the true part. The right picture is over"
        f" {len(study.judged)} predictions that the indicator was not fitted to. The tenth of the"
        f" anchors that the indicator ranks first has {carried[INDICATOR]:.0%} of the squared"
        f" error. A ranking by the usual errors of the anchors gives {carried[USUAL]:.0%}, chance"
        f" {carried[RANDOM]:.0%}, and no ranking can give more than {carried[TRUTH]:.0%}."
    )
