"""Show contributions in a 3D domain: at three sections, and through the peak of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.data.normalisation import Channel
from courant.report.context import Context
from courant.report.drawing import WIDTH, height_of
from courant.report.images.colour_maps import SIGNED
from courant.report.panel import Panel, PanelFigure
from courant.report.panels.anchors.decomposition import Ranking, contributions_at, rank
from courant.report.wording import channel_label
from simgen.publish.field_plots import (
    Triangles,
    draw_field,
    point_spacing,
    section,
    symmetric,
    thinnest_axis,
)

SHARES = (0.25, 0.5, 0.75)
"""Of the domain's thickness, where the sections lie"""
PRESSURE = "pressure"


def panel(context: Context) -> Panel | None:
    """Show the decoded pressure of the strongest anchors; None in 1D and 2D."""
    if not context.surrogate.decomposes or context.dataset.schema.dimension < 3:
        return None
    shown = context.shown[0]
    points = shown.case.points.astype(float)
    ranking = rank(context, shown)
    chosen = ranking.largest
    fields = contributions_at(context, shown, np.arange(len(points)), chosen)
    number = shown_channel(context.channels)
    values = fields[..., number]
    magnitudes = np.linalg.norm(fields / context.deviations(shown), axis=-1)
    peaks = magnitudes.argmax(axis=1)
    sizes, axis = point_spacing(shown.case), thinnest_axis(points)
    try:
        planes = [section(points, sizes, axis, each) for each in positions(points, axis)]
        through = [section(points, sizes, axis, float(points[peak, axis])) for peak in peaks]
    except ValueError:
        return None  # A cloud too thin to be cut.
    label = channel_label(context.channels[number])
    figure = draw(planes, through, values, points[peaks], ranking, label)
    return Panel(
        "sections",
        "Contributions in three dimensions",
        (
            PanelFigure(
                "sections.png",
                figure,
                _caption(context.channels[number], axis, len(chosen)),
                look_for=(
                    "A compact anchor colours few sections, around its peak; one that colours all"
                    " of them acts along the whole thickness."
                ),
                score=_score(values),
            ),
        ),
        arrays={
            "anchors_shown": chosen,
            "points": points,
            "contributions": values,
            "peaks": points[peaks],
            "positions": np.array(positions(points, axis)),
        },
    )


def shown_channel(channels: Sequence[Channel]) -> int:
    """Return the number of the pressure, or of the first component where none is modelled."""
    for number, channel in enumerate(channels):
        if PRESSURE in channel.name:
            return number
    return 0


def positions(points: np.ndarray, axis: int) -> list[float]:
    """Return where the sections lie, evenly over the thickness of a cloud, m."""
    low, high = points[:, axis].min(), points[:, axis].max()
    return [float(low + share * (high - low)) for share in SHARES]


def draw(
    planes: Sequence[Triangles],
    through: Sequence[Triangles],
    values: np.ndarray,
    peaks: np.ndarray,
    ranking: Ranking,
    label: str,
) -> Figure:
    """Draw values (A, M) of the strongest anchors, one a row, at the planes and through its peak.

    A colour scale is that of a row.
    """
    rows, columns = len(values), len(planes) + 1
    height = height_of(planes[0].aspect, 3.1, 1.2, 3.4)
    figure = Figure(figsize=(WIDTH, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for row, (field, peak) in enumerate(zip(values, peaks, strict=True)):
        limits = symmetric(field)
        for axis, plane in zip(axes[row], (*planes, through[row]), strict=True):
            artist = draw_field(axis, plane, field, limits=limits, cmap=SIGNED)
            axis.set_title(plane.plane, fontsize=8, loc="left")
        assert artist is not None  # Planes are never lines.
        _mark_peak(axes[row, -1], peak, through[row])
        anchor = ranking.largest[row]
        axes[row, 0].set_ylabel(f"anchor {anchor}", fontsize=10)
        bar = figure.colorbar(artist, ax=axes[row].tolist(), shrink=0.85, pad=0.01)
        bar.ax.tick_params(labelsize=7)
        bar.set_label(label, fontsize=8)
    return figure


def _mark_peak(axis: Axes, peak: np.ndarray, plane: Triangles) -> None:
    axis.plot(*peak[list(plane.axes)], "+", ms=9, mew=1.6, color="#1a7f37", clip_on=False)
    axis.set_title(f"{plane.plane}, through its peak", fontsize=8, loc="left")


def _score(values: np.ndarray) -> str:
    """Return how much the shown contributions (A, M) cancel each other."""
    summed = float(np.abs(values.sum(axis=0)).sum())
    times = float(np.abs(values).sum()) / (summed or 1.0)
    return f"Taken one by one, these contributions are {times:.2g} times as large as their sum"


def _caption(channel: Channel, axis: int, number: int) -> str:
    name = channel_label(channel)
    return (
        f"Contributions of the {number} strongest anchors to {name} of the first prediction above,"
        f" one in each row: at three sections across {'xyz'[axis]}, evenly spaced, and at the one"
        " through the place where the anchor's whole contribution is largest (cross). Red is"
        " positive, blue is negative; each row has a colour scale of its own."
    )
