"""Show where anchors speak over time, what they read, and how levels move them."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.decomposition.maps import AnchorMaps, map_anchors, telling_anchors
from courant.report.context import Context
from courant.report.drawing import MODEL_COLOR, PALETTE, WIDTH, height_of
from courant.report.panel import Panel, PanelFigure
from courant.report.panels.anchors.decomposition import mark_anchor
from simgen.publish.field_plots import Layer, Line, draw_field, layer

TIMES = 4
"""Steps of a rollout that are shown, from the first to the last"""
DRAWN_POINTS = 6_000
PARTITION = colormaps["tab20"]


def panel(context: Context) -> Panel | None:
    """Show maps of three telling anchors; None for a model without weights."""
    surrogate, shown = context.surrogate, context.shown[0]
    if not surrogate.decomposes or context.scores.dominant is None:
        return None
    scores = context.scores
    chosen = telling_anchors(scores.fields.energies, scores.temporal_variance)
    found = map_anchors(surrogate, shown.case, chosen, shown.start_s)
    plane = layer(shown.case)
    figures = [PanelFigure("anchor_maps.png", draw(plane, found), _caption(found))]
    if found.reading is not None:
        reading = draw_reading(found, plane.axes)
        figures.append(PanelFigure("anchor_reading.png", reading, READING_CAPTION))
    if found.displacements is not None:
        moved = draw_moved(found, plane.axes, scores.spacing_m)
        figures.append(PanelFigure("anchor_moves.png", moved, _moved_caption(found)))
    return Panel(
        "anchor_maps",
        "Where anchors speak, and what they read",
        tuple(figures),
        note=(
            f"`courant analyse maps {context.run.url} --anchor 14` writes these arrays for any"
            " anchors of any case."
        ),
        arrays=found.arrays(),
    )


def draw(plane: Layer, found: AnchorMaps) -> Figure:
    """Draw the partition and the weights of the chosen anchors, one row each, at some steps."""
    steps = np.unique(np.linspace(0, len(found.dominant) - 1, TIMES).round().astype(int))
    rows = 1 + len(found.chosen)
    height = height_of(plane.aspect, WIDTH / max(2, len(steps)), 1.2, 3.6)
    figure = Figure(figsize=(WIDTH, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, len(steps), squeeze=False)
    limits = (0.0, float(np.quantile(found.weights[steps], 0.998)) or 1.0)
    for column, step in enumerate(steps):
        _draw_partition(axes[0, column], plane, found.dominant[step])
        if found.times is not None:
            axes[0, column].set_title(f"t = {found.times[step]:g} s", fontsize=9, loc="left")
        for row, anchor in enumerate(found.chosen, start=1):
            values = found.weights[step, row - 1]
            artist = draw_field(axes[row, column], plane, values, limits=limits, cmap="magma_r")
            if found.places is not None:
                mark_anchor(axes[row, column], found.places[anchor, list(plane.axes)])
    axes[0, 0].set_ylabel("dominant anchor", fontsize=9)
    for row, anchor in enumerate(found.chosen, start=1):
        axes[row, 0].set_ylabel(f"anchor {anchor}", fontsize=9)
    if artist is not None:
        below = axes[1:].ravel().tolist()
        figure.colorbar(artist, ax=below, label="weight", shrink=0.6, pad=0.01)
    return figure


def _draw_partition(axis: Axes, plane: Layer, labels: np.ndarray) -> None:
    """Fill the region of each anchor; neighbouring numbers get colours far apart."""
    if isinstance(plane, Line):
        axis.scatter(plane.x, labels[plane.cell], s=4, color=MODEL_COLOR)
        return
    shape = plane.triangulation
    # A triangle takes the label that two of its corners have, or its first corner's.
    corners = labels[plane.cell][shape.triangles]
    faces = np.where(corners[:, 1] == corners[:, 2], corners[:, 1], corners[:, 0])
    axis.tripcolor(
        shape, facecolors=(faces * 7 % 20).astype(float), cmap=PARTITION, vmin=-0.5, vmax=19.5
    )
    axis.set(aspect="equal", xticks=[], yticks=[])
    axis.set(xlim=(shape.x.min(), shape.x.max()), ylim=(shape.y.min(), shape.y.max()))


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
                cmap="magma_r",
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


READING_CAPTION = (
    "What three anchors read of the input, at the first and the last level of the encoder: each"
    " input point by the attention that it gets, over what it would get if all were read alike. An"
    " anchor (circle) may read points far from its place."
)


def _caption(found: AnchorMaps) -> str:
    chosen = ", ".join(map(str, found.chosen))
    if found.times is None:
        return (
            "The first row shows the domain, coloured by the anchor with the largest weight at each"
            f" point. The rows below show the weights of the three strongest anchors ({chosen});"
            " all weights at a point sum to one."
        )
    return (
        "The first row shows the domain, coloured by the anchor with the largest weight at each"
        f" point, over the rollout. The rows below show the weights of anchors {chosen}; all"
        " weights at a point sum to one. Of the stronger half of the anchors these are the two"
        " whose fields vary most in time, and last the one whose field varies least."
    )


def _moved_caption(found: AnchorMaps) -> str:
    assert found.displacements is not None
    far = np.median(found.displacements[-1])
    return (
        "Gaussian windows move the anchors from level to level, depending on the flow. The left"
        " picture shows their paths. The right picture shows their distance from the start at each"
        f" level, over the spacing (box: half of the anchors). The last level's median is {far:.3g}"
        " m."
    )
