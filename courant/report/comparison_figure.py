"""Draw the scores of several runs side by side, one small axis for each score."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from courant.analysis.comparison import Comparison
from courant.analysis.scores import SCORES
from courant.report.drawing import PALETTE, WIDTH

COLUMNS = 4


def draw_comparison(found: Comparison) -> Figure:
    """Draw a bar for each row, with its interval, and the aim as a line where a score has one."""
    shown = [each for each in SCORES if each.key in found.keys]
    rows = -(-len(shown) // COLUMNS)
    height = 0.75 + 0.3 * len(found.rows)
    figure = Figure(figsize=(WIDTH, height * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    places = np.arange(len(found.rows))[::-1]
    for axis in grid.ravel()[len(shown) :]:
        axis.set_visible(False)
    for number, (axis, score) in enumerate(zip(grid.ravel(), shown, strict=False)):
        intervals = [row.scores.get(score.key) for row in found.rows]
        means = [np.nan if each is None else each.mean for each in intervals]
        widths = [0.0 if each is None else each.half_width or 0.0 for each in intervals]
        colors = [PALETTE[row % len(PALETTE)] for row in range(len(means))]
        axis.barh(places, means, xerr=widths, color=colors, height=0.7, ecolor="#333333")
        # Rows without the score keep their place.
        axis.set_ylim(-0.6, len(places) - 0.4)
        if score.aim is not None:
            axis.axvline(score.aim, color="#1a7f37", ls="--", lw=1)
        labels = [row.label for row in found.rows] if number % COLUMNS == 0 else []
        axis.set_yticks(places if labels else [], labels, fontsize=8)
        good = "" if score.good == "neither" else f"\n({score.good} is good)"
        axis.set_title(f"{score.name}{good}", fontsize=8, loc="left")
        axis.tick_params(axis="x", labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
