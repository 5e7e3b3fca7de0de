"""Draw which input points anchors read, and how levels move the anchors."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from courant.analysis.error_addresses import AnchorMaps
from courant.report.drawing import MODEL_COLOR, PALETTE, WIDTH, height_of
from courant.report.images.colour_maps import MAGNITUDES
from courant.report.panel import PanelFigure
from courant.report.panels.anchors.decomposition import mark_anchor
from simgen.publish.field_plots import Layer

DRAWN_POINTS = 6_000
READING_CAPTION = (
    "What three anchors read of the input, at the first and the last level of the encoder: each"
    " input point by the attention that it gets, over what it would get if all were read alike. An"
    " anchor (circle) may read points far from its place."
)

MOVED_CAPTION = (
    "Gaussian windows move the anchors from level to level, depending on the flow. The left"
    " picture shows their paths. The right picture shows their distance from the start at each"
    " level, over the spacing (box: half of the anchors)."
)


def reading_figures(found: AnchorMaps, plane: Layer) -> list[PanelFigure]:
    """Show what the chosen anchors read; nothing of a model that does not tell."""
    if found.reading is None:
        return []
    return [
        PanelFigure(
            "anchor_reading.png",
            draw_reading(found, plane.axes),
            READING_CAPTION,
            look_for="Dark points are what the anchor reads of the input.",
            score=_reading_score(found),
            arrays=("reading", "read_points"),
        )
    ]


def moved_figures(found: AnchorMaps, plane: Layer, spacing_m: float) -> list[PanelFigure]:
    """Show how levels move anchors; nothing of a model that does not move them."""
    if found.displacements is None:
        return []
    return [
        PanelFigure(
            "anchor_moves.png",
            draw_moved(found, plane.axes, spacing_m),
            MOVED_CAPTION,
            look_for="Long lines are anchors that the flow pulls away from their start.",
            score=_moved_score(found, spacing_m),
            arrays=("places", "moved"),
        )
    ]


def draw_reading(found: AnchorMaps, axes: tuple[int, int]) -> Figure:
    """Draw the input points by the attention of each chosen anchor, at first and last level."""
    assert found.reading is not None
    levels = sorted({0, len(found.reading) - 1})
    columns, where = len(found.chosen), list(axes)
    points = found.read_points[:, where]
    height = height_of(float(np.ptp(points[:, 1]) / np.ptp(points[:, 0])), 4.2, 1.3, 3.8)
    figure = Figure(figsize=(WIDTH, height * len(levels) + 0.5), layout="constrained")
    grid = figure.subplots(len(levels), columns, squeeze=False)
    stride = -(-len(points) // DRAWN_POINTS)
    for row, level in enumerate(levels):
        for column, anchor in enumerate(found.chosen):
            # Times N, so that one is what reading everything alike would give.
            times = found.reading[level, column] * len(points)
            axis, kept = grid[row, column], np.arange(0, len(points), stride)
            kept = kept[np.argsort(times[kept])]
            artist = axis.scatter(
                *points[kept].T,
                c=np.log10(np.maximum(times[kept], 1e-3)),
                s=5,
                cmap=MAGNITUDES,
                vmin=-1,
                vmax=2,
                lw=0,
            )
            axis.set(aspect="equal", xticks=[], yticks=[])
            axis.set_title(f"anchor {anchor}, level {level}", fontsize=9, loc="left")
            if found.places is not None:
                at = found.places if found.moved is None else found.moved[level]
                mark_anchor(axis, at[anchor, where])
    bar = figure.colorbar(artist, ax=grid.ravel().tolist(), shrink=0.8, pad=0.01)
    bar.set_ticks([-1, 0, 1, 2], labels=["0.1×", "1×", "10×", "100×"])
    bar.set_label("attention, over the mean")
    return figure


def draw_moved(found: AnchorMaps, axes: tuple[int, int], spacing_m: float) -> Figure:
    """Draw the way of each anchor through the levels, and how far each level has moved them."""
    assert found.moved is not None and found.places is not None
    displacements = found.displacements
    assert displacements is not None
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    where, far = figure.subplots(1, 2, width_ratios=(1.6, 1))
    shown = list(axes)
    stride = -(-len(found.points) // DRAWN_POINTS)
    where.plot(*found.points[::stride, shown].T, ".", ms=1.2, color="#c9ced4", zorder=0)
    for start, way in zip(found.places, found.moved.swapaxes(0, 1), strict=True):
        where.plot(*np.vstack([start, way])[:, shown].T, "-", lw=1, color=MODEL_COLOR)
    where.plot(*found.places[:, shown].T, "o", ms=4, mfc="none", mec="#1a7f37", label="start")
    where.plot(*found.moved[-1][:, shown].T, "o", ms=3, color=MODEL_COLOR, label="last level")
    where.set(aspect="equal", xticks=[], yticks=[])
    where.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    levels = np.arange(len(displacements))
    far.boxplot(
        [each / spacing_m for each in displacements], positions=levels, whis=(5, 95), sym=""
    )
    far.set(xlabel="level", ylabel="distance from the start / spacing", ylim=(0, None))
    far.grid(alpha=0.25)
    far.axhline(1, color=PALETTE[2], lw=0.8, ls=":")
    return figure


def _reading_score(found: AnchorMaps) -> str:
    """Return how few points get half of the attention of the shown anchors at the first level."""
    assert found.reading is not None
    ordered = -np.sort(-found.reading[0], axis=-1)
    halves = (np.cumsum(ordered, axis=-1) < 0.5).sum(axis=-1) + 1
    share = float(np.median(halves)) / found.reading.shape[-1]
    return f"At the first level half of an anchor's attention goes to {share:.1%} of the points"


def _moved_score(found: AnchorMaps, spacing_m: float) -> str:
    assert found.displacements is not None
    far = float(np.median(found.displacements[-1]))
    return f"The last level's median distance is {far:.3g} m, {far / spacing_m:.2g} spacings"
