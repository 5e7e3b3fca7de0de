"""Score the decomposition of the first shown prediction, beside controls of the same field."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.case_scores import CaseScores
from courant.analysis.comparison import case_arrays
from courant.analysis.scores import (
    SCORES,
    TOP,
    Score,
    by_energy,
    deletion_curve,
    energy_curve,
    insertion_curve,
    random_deletion,
    random_insertion,
)
from courant.report.context import Context
from courant.report.drawing import MODEL_COLOR, PALETTE, WIDTH
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from simgen.publish.field_plots import layer

DRAWN_POINTS = 4000
"""Cells that are drawn as the domain behind the anchors"""
MARKS = {True: "good", False: "bad", None: ""}


def panel(context: Context) -> Panel | None:
    """Show scores, where fields lie, and how few carry the prediction; None without fields."""
    if not context.surrogate.decomposes:
        return None
    case = context.shown[0].case
    found = context.scores
    figure = PanelFigure(
        "anchor_scores.png",
        draw(found, layer(case).axes),
        _caption(found),
        look_for=(
            "Short lines on the left are fields that lie at their anchors; a steep blue curve in"
            " the middle is a prediction that few anchors carry."
        ),
        score=_score(found),
    )
    return Panel(
        "anchor_scores",
        "How local, economical and steady the anchors are",
        (figure,),
        (table(found),),
        note=(
            "Controls divide the same field in other ways: among anchors at random, by nearest"
            " anchor, and by POD (proper orthogonal decomposition) of the case's own snapshots. A"
            " score means little unless it is better than that of the random partition. The"
            f" numbers are for case {found.case}; `courant analyse"
            f" {context.run.url}` scores all test cases. docs/analysis.md defines every score."
        ),
        arrays={**case_arrays(found), "energy_curve": energy_curve(found.fields.energies)},
    )


def table(found: CaseScores) -> Table:
    """One row for each score that the case has, one column for each control."""
    controls = found.control_scores
    columns = (
        Column("score", is_number=False),
        Column("model"),
        *(Column(name) for name in controls),
        Column("range", is_number=False),
        Column("good is", is_number=False),
    )
    rows = [
        (
            Cell(each.name),
            _value(each, found.scores[each.key]),
            *(Cell(_number(scores.get(each.key))) for scores in controls.values()),
            Cell(each.range),
            Cell(each.aim_text),
        )
        for each in SCORES
        if each.key in found.scores
    ]
    return Table(columns, tuple(rows))


def draw(found: CaseScores, axes: tuple[int, int]) -> Figure:
    """Draw anchors with their fields' centroids, the energy curve, and the two error curves."""
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    where, energy, errors = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
    _draw_places(where, found, axes)
    _draw_energy(energy, found)
    _draw_curves(errors, found)
    return figure


def _draw_places(axis: Axes, found: CaseScores, axes: tuple[int, int]) -> None:
    """Draw a line from each anchor to its field's centroid, thicker for more energy."""
    fields, shown = found.fields, list(axes)
    stride = -(-len(fields.points) // DRAWN_POINTS)
    axis.plot(*fields.points[::stride, shown].T, ".", ms=1.5, color="#c9ced4", zorder=0)
    centres = fields.centroids
    sizes = 8 + 160 * fields.energies / max(float(fields.energies.max()), 1e-300)
    if fields.anchors is not None:
        for anchor, centre in zip(fields.anchors, centres, strict=True):
            ends = np.stack([anchor, centre])[:, shown]
            axis.plot(*ends.T, "-", lw=0.7, color="#7a7a7a", zorder=1)
        axis.plot(*fields.anchors[:, shown].T, "o", ms=4, mfc="none", mec="#1a7f37", label="anchor")
    axis.scatter(
        centres[:, shown[0]],
        centres[:, shown[1]],
        s=sizes,
        color=MODEL_COLOR,
        alpha=0.7,
        lw=0,
        zorder=2,
        label="centroid of its field",
    )
    low, high = fields.points[:, shown].min(axis=0), fields.points[:, shown].max(axis=0)
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    names = ["xyz"[each] for each in shown]
    axis.set(xlabel=f"{names[0]} (m)", ylabel=f"{names[1]} (m)")
    axis.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


def _draw_energy(axis: Axes, found: CaseScores) -> None:
    decompositions = {"model": found.fields, **found.controls}
    for color, (name, fields) in zip(PALETTE, decompositions.items(), strict=False):
        curve = energy_curve(fields.energies)
        axis.plot(np.arange(len(curve)), curve, color=color, label=name)
    axis.set(xlabel="number of the strongest fields", ylabel="share of the energy", ylim=(0, 1.03))
    axis.set_xlim(0, found.fields.num_anchors)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, frameon=False, loc="lower right")


def _draw_curves(axis: Axes, found: CaseScores) -> None:
    """Draw the error of adding fields one by one, and of leaving them out."""
    gram = found.fields.gram
    axis.set(xlabel="number of anchors", ylabel="relative squared error")
    if gram.sum() <= 0:
        return
    order, steps = by_energy(gram), np.arange(len(gram) + 1)
    curves = (
        ("with only the strongest", insertion_curve(gram, order), "-", 0),
        ("with only any (mean)", random_insertion(gram), ":", 0),
        ("without the strongest", deletion_curve(gram, order), "-", 1),
        ("without any (mean)", random_deletion(gram), ":", 1),
    )
    for name, curve, style, color in curves:
        axis.plot(steps, curve, style, color=PALETTE[color], label=name)
    axis.set(xlim=(0, len(gram)), ylim=(0, None))
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _value(score: Score, value: float) -> Cell:
    return Cell(_number(value), MARKS[score.reached(value)])  # type: ignore[arg-type]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _score(found: CaseScores) -> str:
    share = f"The strongest {TOP} fields have {found.scores['top_share']:.0%} of the energy"
    distance = found.scores.get("anchor_distance")
    if distance is None:
        return share
    return f"{share}; the median field is {distance:.2g} spacings from its anchor"


def _caption(found: CaseScores) -> str:
    places = (
        "The left picture joins each anchor to the centroid of the field that it contributes; short"
        " lines mean that a field lies where its anchor is. "
        if found.fields.anchors is not None
        else "The left picture has the centroids of the fields; these anchors have no positions. "
    )
    return (
        f"{places}A larger dot has more energy. The middle picture shows the energy in the"
        " strongest fields, beside the controls. The right picture shows the error of a prediction"
        " made from some of the fields; the faster the blue line falls and the orange one rises,"
        " the fewer anchors the prediction depends on. Dotted lines are for random order."
    )
