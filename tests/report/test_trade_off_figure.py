"""What legibility costs: one axis for each score with an aim, and the corner where both are met."""

from __future__ import annotations

import pytest

from courant.analysis.comparison import RunComparison, ScoreRow
from courant.evaluation.ledger import Interval
from courant.report.sweep_page import draw_trade_off


def row(label: str, family: str = "", **scores: float) -> ScoreRow:
    known = {key: Interval.of([value]) for key, value in scores.items()}
    return ScoreRow(label, (f"runs/{label}",), known, family)


def test_every_score_with_an_aim_has_an_axis_on_which_the_aim_is_seen() -> None:
    figure = draw_trade_off(
        RunComparison(
            (
                row("plain", nmae=0.20, anchor_distance=2.0, own_anchor_nearest=0.0, gini=0.5),
                row("windows", nmae=0.21, anchor_distance=0.6, own_anchor_nearest=0.2),
            )
        )
    )
    assert figure is not None
    axes = [axis for axis in figure.axes if axis.get_visible()]
    names = [axis.get_xlabel().partition("\n")[0] for axis in axes]
    assert names == ["anchor to centroid / spacing", "own anchor is nearest"]
    for axis, aim in zip(axes, (0.4, 0.6), strict=True):
        low, high = axis.get_xlim()
        assert low < aim < high
        bottom, top = axis.get_ylim()
        assert bottom < 0.20 < 1.02 * 0.20 < 0.21 < top
        (corner,) = [each.get_paths()[0].get_extents() for each in axis.collections[-1:]]
        assert corner.ymax == pytest.approx(1.02 * 0.20)
        assert aim in (pytest.approx(corner.xmin), pytest.approx(corner.xmax))
    (legend,) = figure.legends
    assert [each.get_text() for each in legend.get_texts()] == ["plain (1)", "windows (1)"]


def test_errors_of_several_families_are_over_the_lowest_of_each() -> None:
    rows = [
        row(label, family, nmae=error * unit, anchor_distance=1.0)
        for family, unit in (("pipe", 1.0), ("pump", 10.0))
        for label, error in (("plain", 0.2), ("windows", 0.3))
    ]
    figure = draw_trade_off(RunComparison(tuple(rows)))
    assert figure is not None
    axis = next(axis for axis in figure.axes if axis.get_visible())
    points = [(line.get_marker(), line.get_color(), line.get_ydata()[0]) for line in axis.lines[:4]]
    markers, colors, heights = zip(*points, strict=True)
    assert heights == pytest.approx((1.0, 1.5, 1.0, 1.5))
    assert markers[0] == markers[1] != markers[2] == markers[3]
    assert colors[0] == colors[2] != colors[1] == colors[3]
    assert axis.get_ylabel() == "NMAE over the family's lowest"
    (legend,) = figure.legends
    names = [each.get_text() for each in legend.get_texts()]
    assert names == ["plain", "windows", "pipe", "pump"]


def test_without_a_score_that_has_an_aim_there_is_no_figure() -> None:
    """Anchors without places, of a single seed."""
    assert draw_trade_off(RunComparison((row("abstract", nmae=0.2, gini=0.5),))) is None
