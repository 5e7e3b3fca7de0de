"""The style of all figures, and maps of fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from PIL import Image

from courant.evaluation import record
from simgen.publish.colours import VALUES
from simgen.publish.figures import Layer, Triangles, draw_field

PALETTE = ("#0b5fa5", "#d9822b", "#7a7a7a", "#1a7f37", "#8250df", "#c2185b")
MODEL_COLOR = PALETTE[0]
GOOD_COLOR = "#1a7f37"
LIMIT_COLOR = "#b3261e"
Style = dict[str, Any]  # Keyword arguments of matplotlib
PREDICTORS: dict[str, Style] = {
    name: {"color": color, "marker": marker, "label": "network" if name == record.MODEL else name}
    for name, color, marker in (
        (record.MODEL, MODEL_COLOR, "o"),
        (record.NEAREST_DESIGN, "#d9822b", "D"),
        (record.TRAINING_MEAN, "#7a7a7a", "P"),
        (record.POD_GP, "#1a7f37", "s"),
        (record.POD_RBF, "#8250df", "^"),
        (record.DMD, "#c2185b", "v"),
        (record.PERSISTENCE, "#8a6500", "x"),
    )
}
"""The colour and mark of each predictor, in all figures"""
STYLE: Any = {
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",  # the page's ground is seen, the light or the dark one
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.alpha": 0.25,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 8,
}
"""Settings of matplotlib that all figures are made with"""
ABOVE: Style = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}  # A legend on top of its axes
WIDTH = 13.5  # Inches
FLAT = 0.2  # Height over width of a domain below which its pictures are one above the other


def legend_above(figure: Figure, axes: Sequence[Axes], columns: int = 10) -> None:
    """Draw one legend of all axes, as many names side by side as fit, and at most `columns`."""
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    # A phone shows so many inches of the left of a figure; a legend that is wider is cut.
    width = max(3.3, 0.4 * float(figure.get_figwidth()))
    columns = max(1, min(columns, int(width / (0.6 + 0.07 * max(map(len, handles), default=0)))))
    figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=columns)


def top_limits(values: np.ndarray) -> tuple[float, float]:
    """Return limits from zero that hold all values but the largest fifth of a percent."""
    return 0.0, float(np.quantile(values, 0.998)) or 1.0


@dataclass(frozen=True)
class FieldMap:
    """A field over a layer, as one picture of a grid."""

    plane: Layer
    values: np.ndarray  # (N,) of all cells; integers are the numbers of regions
    title: str = ""
    label: str = ""  # Beside the colour bar
    limits: tuple[float, float] = (0.0, 1.0)
    cmap: str | Colormap = VALUES
    place: np.ndarray | None = None  # (3,) m, where an anchor is marked


def draw_map(figure: Figure, axis: Axes, shown: FieldMap, bar_axes: Any, **style: Any) -> None:
    """Draw one map, with a colour bar beside `bar_axes` unless there are none."""
    plane, values = shown.plane, shown.values
    axis.set_title(shown.title)
    if np.issubdtype(values.dtype, np.integer):
        # Neighbouring numbers get colours far apart.
        shades = (values * 7 % 20).astype(float)
        if isinstance(plane, Triangles):
            # A triangle takes the number that two of its corners have, or its first corner's.
            corners = shades[plane.cell][plane.triangulation.triangles]
            faces = np.where(corners[:, 1] == corners[:, 2], corners[:, 1], corners[:, 0])
            style = {"cmap": "tab20", "vmin": -0.5, "vmax": 19.5}
            axis.tripcolor(plane.triangulation, facecolors=faces, **style)
            across, up = plane.box.T
            axis.set(aspect=plane.stretch, xticks=[], yticks=[], xlim=across, ylim=up)
        else:
            axis.scatter(plane.x, values[plane.cell], s=4, color=MODEL_COLOR)
        return
    artist = draw_field(axis, plane, values, limits=shown.limits, cmap=shown.cmap)
    if shown.place is not None:
        # At its place, or a cross at the nearest edge for one outside. An anchor that is outside
        # by 2 % of the picture's longer side, as on a wall, counts as inside.
        where = shown.place[list(plane.axes)]
        low, high = np.array([axis.get_xlim(), axis.get_ylim()]).T
        nearest = np.clip(where, low, high)
        is_inside = np.abs(nearest - where).max() <= 0.02 * float((high - low).max())
        marker: Style = {"marker": "o" if is_inside else "x", "mfc": "none", "mec": GOOD_COLOR}
        axis.plot(*nearest, ms=6, mew=1.6, clip_on=False, **marker)
    if bar_axes is None:
        return
    if artist is None:
        axis.set_ylabel(shown.label)
        return
    style |= {"ticks": MaxNLocator(4), "format": ScalarFormatter(useOffset=False)}
    if bar_axes is axis and "location" not in style:  # as high as the map, not as its place
        style["cax"] = axis.inset_axes((1.015, 0, 0.025, 1))
    bar = figure.colorbar(artist, ax=bar_axes, pad=0.01, **style)
    bar.ax.tick_params(labelsize=7)
    bar.set_label(shown.label.replace(" (", "\n("), fontsize=7)


def draw_maps(
    rows: Sequence[Sequence[FieldMap]],
    bars: Literal["each", "row", "all"],
    width: float = WIDTH,
    ticks: bool = False,
) -> Figure:
    """Draw a grid of maps; those that share a colour bar have the limits and label of the first."""
    aspect = max(each.plane.aspect for row in rows for each in row)
    columns = max(map(len, rows))
    width = min(width, max(9.0 if aspect < FLAT else 5.8, 4.6 * columns))
    height = float(np.clip(0.84 * width / columns * aspect + 0.4, 1.0, 5.0))
    if ticks:
        height += 0.15
    figure = Figure(figsize=(width, height * len(rows) + 0.4))
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for (row, column), axis in np.ndenumerate(axes):
        if column >= len(rows[row]):
            axis.set_visible(False)
            continue
        group = {"each": axis, "row": axes[row], "all": axes}[bars]
        is_first = axis is np.ravel(group)[0]
        draw_map(figure, axis, rows[row][column], group if is_first else None, shrink=0.85)
        if ticks and axis.images:
            mark_metres(axis, aspect)
    return figure


def mark_metres(axis: Axes, aspect: float) -> None:
    """Draw few ticks at the sides of a map, in m."""
    axis.grid(visible=False)
    axis.tick_params(labelsize=7, pad=1.5)
    axis.tick_params("y", labelrotation=90)  # which takes least width
    axis.xaxis.set(major_locator=MaxNLocator(4), major_formatter="{x:g} m")
    # One at the lower end would be in the way of the first of x.
    few = MaxNLocator(2 if aspect < FLAT else 3, prune="lower")
    axis.yaxis.set(major_locator=few, major_formatter="{x:g}")


PANE_DPI = 150  # of maps that are shown one by one, and enlarged


def cut_panes(figure: Figure, image: Image.Image) -> list[Image.Image]:
    """Return each map of a drawn grid with its title and its own colour bar, all of one size."""
    boxes = np.array([axis.get_tightbbox().extents for axis in figure.axes])  # type: ignore[union-attr]
    boxes += np.array([-2, -2, 2, 2])
    x, low, end, top = (boxes * image.width / figure.bbox.width).round().astype(int).T
    size = int((end - x).max()), int((top - low).max())
    panes = list[Image.Image]()
    # Their left upper corners are alike: a title, and the map below it.
    for box in zip(x, image.height - top, end, image.height - low, strict=True):
        panes.append(Image.new("RGBA", size))
        panes[-1].paste(image.crop(box))
    return panes


NO_FLUID = (200 / 255,) * 3
