"""Show streamlines of the solved and the predicted velocity, in the plane or in a section."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.tri as tri
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from courant.data.normalisation import Channel
from courant.report.context import Context
from courant.report.drawing import WIDTH, height_of, place
from courant.report.images.raster import Raster
from courant.report.panel import Panel, PanelFigure
from simgen.publish.field_plots import Triangles, layer, spanning

ACROSS = 120
"""Columns of the regular grid that streamlines are drawn on"""
VELOCITY = "velocity"


def panel(context: Context) -> Panel | None:
    """Show solution and prediction of the first case; None without two velocities in the plane."""
    shown = context.shown[0]
    plane = layer(shown.case)
    if not isinstance(plane, Triangles):
        return None
    channels = in_plane(context.channels, plane.axes)
    if channels is None or not len(plane.triangulation.get_masked_triangles()):
        return None
    figure = Figure(figsize=(WIDTH, height_of(plane.aspect, 6.4, 2.4, 6.4)), layout="constrained")
    axes = figure.subplots(1, 2)
    fields = [each[:, channels] for each in (context.truth(shown), context.predict(shown))]
    speeds = np.linalg.norm(fields[0][plane.cell], axis=1)
    raster, arrays = Raster.of(plane, ACROSS), dict[str, np.ndarray]()
    for axis, title, field in zip(axes, ("solution", "prediction"), fields, strict=True):
        sampled = raster.sample(field)
        _mark_bodies(axis, plane)
        lines = draw(axis, raster.x, raster.y, sampled, spanning(speeds))
        axis.set_title(title, fontsize=9, loc="left")
        arrays |= {f"{title}_velocity": sampled}
    figure.colorbar(lines, ax=axes.tolist(), label="speed in the plane (m/s)", shrink=0.8, pad=0.01)
    where = place(shown.case, plane)
    caption = (
        f"Streamlines{f' in {where}' if where else ''} of the case above, coloured by speed on one"
        " scale."
    )
    return Panel(
        "streamlines",
        "Streamlines",
        (
            PanelFigure(
                "streamlines.png",
                figure,
                caption,
                look_for=(
                    "Compare where lines bend, part and close: a vortex that the prediction lacks"
                    " shows here before it does in an error."
                ),
                score=_score(*fields),
            ),
        ),
        arrays={**arrays, "x": raster.x, "y": raster.y},
    )


def _score(truth: np.ndarray, predicted: np.ndarray) -> str:
    """Return the median angle between velocities (N, 2), over points that are not at rest."""
    sizes = np.linalg.norm(truth, axis=1) * np.linalg.norm(predicted, axis=1)
    moving = sizes > 1e-4 * sizes.max()
    cosines = (truth * predicted).sum(axis=1)[moving] / sizes[moving]
    if not len(cosines):
        return "Nothing moves"
    angle = float(np.degrees(np.median(np.arccos(np.clip(cosines, -1, 1)))))
    return f"The median angle between predicted and true velocity is {angle:.2g}°"


def in_plane(channels: Sequence[Channel], axes: tuple[int, int]) -> list[int] | None:
    """Return the numbers of the velocity's components along two axes; None where one is missing."""
    numbers = {channel.name: number for number, channel in enumerate(channels)}
    wanted = [f"{VELOCITY}.{'xyz'[axis]}" for axis in axes]
    return [numbers[name] for name in wanted] if set(wanted) <= set(numbers) else None


def _mark_bodies(axis: Axes, plane: Triangles) -> None:
    """Draw in grey where there is no fluid."""
    axis.set_facecolor("#c8c8c8")
    shape = plane.triangulation
    fluid = np.zeros(len(shape.get_masked_triangles()))
    visible = tri.Triangulation(shape.x, shape.y, shape.get_masked_triangles())
    axis.tripcolor(visible, facecolors=fluid, cmap=ListedColormap(["white"]), rasterized=True)


def draw(
    axis: Axes, x: np.ndarray, y: np.ndarray, sampled: np.ndarray, limits: tuple[float, float]
) -> LineCollection:
    """Draw streamlines of vectors (Y, X, 2) on a grid, and return them for a colour bar."""
    masked = np.ma.masked_invalid(sampled)
    speed = np.ma.sqrt((masked**2).sum(axis=-1))
    found = axis.streamplot(
        x, y, masked[..., 0], masked[..., 1], color=speed, density=1.6, linewidth=0.8, arrowsize=0.7
    )
    found.lines.set_clim(*limits)
    axis.set(aspect="equal", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), xticks=[], yticks=[])
    return found.lines
