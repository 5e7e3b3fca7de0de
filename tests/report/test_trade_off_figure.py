"""What legibility costs: one axis for each score with an aim, and the corner where both are met."""

from __future__ import annotations

import pytest

from courant.analysis.comparison import Comparison, Row
from courant.evaluation.interval import Interval
from courant.report.trade_off_figure import draw_trade_off


def row(label: str, **scores: float) -> Row:
    return Row(label, (f"runs/{label}",), {key: Interval.of([v]) for key, v in scores.items()})


def test_every_score_with_an_aim_has_an_axis_on_which_the_aim_is_seen() -> None:
    figure = draw_trade_off(
        Comparison(
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
    assert [each.get_text() for each in legend.get_texts()] == ["plain", "windows"]


def test_without_a_score_that_has_an_aim_there_is_no_figure() -> None:
    """Anchors without places, of a single seed."""
    assert draw_trade_off(Comparison((row("abstract", nmae=0.2, gini=0.5),))) is None
