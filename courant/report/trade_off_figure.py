"""Draw what legibility costs: the error of several runs against every score that has an aim."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from courant.analysis.comparison import Comparison
from courant.analysis.decomposition.scores import SCORES, Score
from courant.report.drawing import PALETTE, WIDTH

COLUMNS = 4
ERROR = "nmae"
ABOUT_THE_BEST = 1.02
"""Errors up to this multiple of the lowest one count as no cost"""

_GOOD = "#1a7f37"
_MARKERS = ("o", "D", "s", "^")


def draw_trade_off(found: Comparison) -> Figure | None:
    """Draw a point for each row, with the intervals of both numbers; None without such scores.

    The green corner is what the aims ask for: a good score at an error at most 2 % above the
    lowest.
    """
    shown = [
        each
        for each in SCORES
        if each.aim is not None
        and any({ERROR, each.key} <= row.scores.keys() for row in found.rows)
    ]
    if not shown:
        return None
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    height = 3.2 * rows + 0.22 * len(found.rows)
    figure = Figure(figsize=(WIDTH * columns / COLUMNS, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axis in grid[len(shown) :]:
        axis.set_visible(False)
    errors = [row.scores[ERROR] for row in found.rows if ERROR in row.scores]
    enough = ABOUT_THE_BEST * min(each.mean for each in errors)
    for axis, score in zip(grid, shown, strict=False):
        _draw(axis, score, found, enough)
    # The green reaches to the edge, and moves none.
    low, high = min(each.low for each in errors), max(each.high for each in errors)
    margin = 0.1 * ((high - low) or high or 1.0)
    grid[0].set_ylim(max(0.0, low - margin), high + margin)
    for axis in grid[::columns]:
        axis.set_ylabel("NMAE of the prediction", fontsize=8)
    legend = [
        Line2D([], [], color=_color(number), marker=_marker(number), ls="", label=row.label)
        for number, row in enumerate(found.rows)
    ]
    figure.legend(handles=legend, loc="outside lower left", fontsize=8, frameon=False)
    return figure


def _draw(axis: Axes, score: Score, found: Comparison, enough: float) -> None:
    for number, row in enumerate(found.rows):
        if {ERROR, score.key} <= row.scores.keys():
            place, error = row.scores[score.key], row.scores[ERROR]
            axis.errorbar(
                [place.mean],
                [error.mean],
                xerr=[place.half_width or 0.0],
                yerr=[error.half_width or 0.0],
                fmt=_marker(number),
                color=_color(number),
                ecolor="#999999",
                elinewidth=0.8,
            )
    assert score.aim is not None
    axis.axvline(score.aim, color=_GOOD, ls="--", lw=1)
    axis.axhline(enough, color=_GOOD, ls="--", lw=1)
    axis.margins(x=0.1)
    left, right = axis.get_xlim()
    near, far = (left, score.aim) if score.good == "small" else (score.aim, right)
    axis.fill_between([near, far], 0, enough, color=_GOOD, alpha=0.15, lw=0)
    axis.set_xlim(left, right)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.set_xlabel(f"{score.name}\n({score.aim_text})", fontsize=8)
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)


def _color(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


def _marker(number: int) -> str:
    return _MARKERS[number // len(PALETTE) % len(_MARKERS)]
