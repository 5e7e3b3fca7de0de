"""Draw what legibility costs: the error of several runs against every score that has an aim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from courant.analysis.comparison import Comparison, Row
from courant.analysis.scores import SCORES, Score
from courant.evaluation.interval import Interval
from courant.report.drawing import PALETTE, WIDTH

COLUMNS = 4
ERROR = "nmae"
ABOUT_THE_BEST = 1.02
"""Errors up to this multiple of the lowest one count as no cost"""

_GOOD = "#1a7f37"
_NEUTRAL = "#1d1f21"
_MARKERS = ("o", "D", "s", "^")

Mark = tuple[str, str]
"""Colour and marker"""


@dataclass(frozen=True)
class _Drawn:
    """A row with an error, as the figure shows it."""

    row: Row
    error: Interval
    mark: Mark


def draw_trade_off(found: Comparison) -> Figure | None:
    """Draw a point for each row, with the intervals of both numbers; None without such scores.

    The green corner is what the aims ask for: a good score at an error at most 2 % above the
    lowest. Errors of several families are divided by the lowest of each.
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
    marks = _marks(found)
    scored = [
        (row, mark) for row, mark in zip(found.rows, marks, strict=True) if ERROR in row.scores
    ]
    best = {
        family: min(row.scores[ERROR].mean for row, _ in scored if row.family == family)
        for family in {row.family for row, _ in scored}
    }
    # Errors of different flows have nothing in common but their ratio to the best.
    several = len(best) > 1
    drawn = [
        _Drawn(row, _over(row.scores[ERROR], best[row.family] if several else 1.0), mark)
        for row, mark in scored
    ]
    enough = ABOUT_THE_BEST * (1.0 if several else min(best.values()))
    for axis, score in zip(grid, shown, strict=False):
        _draw(axis, score, drawn)
        _draw_aim(axis, score, enough)
    # The green reaches to the edge, and moves none.
    low = min(each.error.low for each in drawn)
    high = max(each.error.high for each in drawn)
    margin = 0.1 * ((high - low) or high or 1.0)
    grid[0].set_ylim(max(0.0, low - margin), high + margin)
    for axis in grid[::columns]:
        label = "NMAE over the family's lowest" if several else "NMAE of the prediction"
        axis.set_ylabel(label, fontsize=8)
    figure.legend(
        handles=_legend(found, marks), loc="outside lower left", fontsize=8, frameon=False, ncols=2
    )
    return figure


def _marks(found: Comparison) -> list[Mark]:
    """Return the colour and the marker of each row; of several families, one marker for each."""
    labels = list(dict.fromkeys(row.label for row in found.rows))
    several = len(found.families) > 1
    marks = []
    for row in found.rows:
        number = labels.index(row.label)
        shape = found.families.index(row.family) if several else number // len(PALETTE)
        marks.append((PALETTE[number % len(PALETTE)], _MARKERS[shape % len(_MARKERS)]))
    return marks


def _legend(found: Comparison, marks: Sequence[Mark]) -> list[Line2D]:
    """Name each row; of several families, each colour and each marker."""
    if len(found.families) == 1:
        named = [(*mark, found.heading(row)) for row, mark in zip(found.rows, marks, strict=True)]
    else:
        colors = {row.label: color for row, (color, _) in zip(found.rows, marks, strict=True)}
        shapes = {row.family: shape for row, (_, shape) in zip(found.rows, marks, strict=True)}
        named = [(color, _MARKERS[0], label) for label, color in colors.items()]
        named += [(_NEUTRAL, shape, family) for family, shape in shapes.items()]
    return [
        Line2D([], [], color=color, marker=marker, ls="", label=label)
        for color, marker, label in named
    ]


def _over(error: Interval, unit: float) -> Interval:
    half = None if error.half_width is None else error.half_width / unit
    return Interval(error.mean / unit, half, error.count)


def _draw(axis: Axes, score: Score, drawn: Sequence[_Drawn]) -> None:
    for each in drawn:
        if (place := each.row.scores.get(score.key)) is None:
            continue
        color, marker = each.mark
        axis.errorbar(
            [place.mean],
            [each.error.mean],
            xerr=[place.half_width or 0.0],
            yerr=[each.error.half_width or 0.0],
            fmt=marker,
            color=color,
            ecolor="#999999",
            elinewidth=0.8,
        )


def _draw_aim(axis: Axes, score: Score, enough: float) -> None:
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
