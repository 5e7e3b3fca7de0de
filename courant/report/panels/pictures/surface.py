"""Show the boundary of a 3D domain: the predicted pressure on it, and which anchor speaks where.

Stored boundaries are faces without their corners, so each is drawn as a square of its own area
across its normal.
"""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.spatial import cKDTree

from courant.report.context import Context
from courant.report.drawing import WIDTH
from courant.report.panel import Panel, PanelFigure
from courant.report.panels.anchors.sections import shown_channel
from courant.report.wording import channel_label
from simgen.publish.field_plots import spanning

MAX_FACES = 12_000
LIGHT = np.array([0.4, -0.5, 0.77])
VIEW = {"elev": 28.0, "azim": -55.0}


def panel(context: Context) -> Panel | None:
    """Show the boundary of the first case; None in 1D and 2D, and without a boundary cloud."""
    schema, shown = context.dataset.schema, context.shown[0]
    if schema.dimension < 3 or not schema.boundary:
        return None
    boundary = shown.case.boundary
    every = -(-len(boundary.points) // MAX_FACES)
    chosen = slice(None, None, every)
    faces = boundary.points[chosen].astype(float)
    # Faces that are left out leave their area to the others.
    areas = every * np.asarray(boundary.areas[chosen], float)
    tiles = squares(faces, boundary.normals[chosen].astype(float), areas)
    cell = cKDTree(shown.case.points).query(faces)[1]
    number = shown_channel(context.channels)
    values = context.predict(shown)[cell, number]
    dominant = context.scores.dominant if context.surrogate.decomposes else None
    label = channel_label(context.channels[number])
    figure = draw(tiles, values, None if dominant is None else dominant[cell], label)
    caption = (
        "The boundary of the first case above, each face a square of its area, coloured by the"
        f" predicted {label} in the nearest cell"
        + (
            "."
            if dominant is None
            else "; right: by the anchor with the largest weight there. Faces of one colour listen"
            " to the same anchor."
        )
    )
    return Panel(
        "surface",
        "On the surface",
        (PanelFigure("surface.png", figure, caption),),
        arrays={"points": faces, "values": values},
    )


def squares(centres: np.ndarray, normals: np.ndarray, areas: np.ndarray) -> np.ndarray:
    """Return the corners (F, 4, 3) of squares of areas (F,) across unit normals (F, 3)."""
    helper = np.eye(3)[np.abs(normals).argmin(axis=1)]
    first = np.cross(normals, helper)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normals, first)
    half = 0.5 * np.sqrt(areas)[:, None]
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return np.stack([centres + half * (a * first + b * second) for a, b in signs], axis=1)


def draw(tiles: np.ndarray, values: np.ndarray, labels: np.ndarray | None, label: str) -> Figure:
    """Draw values (F,) on squares (F, 4, 3), and labels (F,) beside them."""
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    columns = 1 if labels is None else 2
    norm = Normalize(*spanning(values))
    axis = figure.add_subplot(1, columns, 1, projection="3d")
    _draw_tiles(axis, tiles, colormaps["viridis"](norm(values))[:, :3])
    axis.set_title("prediction", fontsize=9)
    figure.colorbar(ScalarMappable(norm, "viridis"), ax=axis, label=label, shrink=0.6, pad=0.12)
    if labels is not None:
        beside = figure.add_subplot(1, columns, 2, projection="3d")
        # Neighbouring numbers get colours far apart.
        beside.set_title("dominant anchor", fontsize=9)
        _draw_tiles(beside, tiles, colormaps["tab20"](labels * 7 % 20)[:, :3])
    return figure


def _draw_tiles(axis: Axes3D, tiles: np.ndarray, colors: np.ndarray) -> None:
    normals = np.cross(tiles[:, 1] - tiles[:, 0], tiles[:, 2] - tiles[:, 1])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    shade = 0.65 + 0.35 * np.abs(normals @ LIGHT)
    axis.add_collection3d(Poly3DCollection(tiles, facecolors=colors * shade[:, None], lw=0))
    low, high = tiles.min(axis=(0, 1)), tiles.max(axis=(0, 1))
    axis.set(
        xlim=(low[0], high[0]),
        ylim=(low[1], high[1]),
        zlim=(low[2], high[2]),
        xlabel="x (m)",
        ylabel="y (m)",
        zlabel="z (m)",
    )
    axis.set_box_aspect(np.maximum(high - low, 1e-9), zoom=1.1)
    axis.view_init(**VIEW)
    axis.tick_params(labelsize=6)
