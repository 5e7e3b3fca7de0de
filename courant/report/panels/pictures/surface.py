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
from scipy.spatial import cKDTree

from courant.report.context import Context, Shown
from courant.report.drawing import WIDTH
from courant.report.images.colour_maps import SIGNED, VALUES
from courant.report.panel import Panel, PanelFigure
from courant.report.panels.anchors.decomposition import contributions_at, energy_share, rank
from courant.report.panels.anchors.sections import shown_channel
from courant.report.panels.pictures.tiles import draw_tiles, squares
from courant.report.wording import channel_label
from simgen.publish.field_plots import spanning, symmetric

MAX_FACES = 12_000
ANCHORS = 4
"""Whose contributions are drawn, on a quarter of the faces"""
COARSER = 4


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
    contributions, more = _contributions(context, shown, tiles, cell, number)
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
        (
            PanelFigure(
                "surface.png",
                figure,
                caption,
                look_for="Look for faces whose colour does not fit their neighbours'.",
                score=_score(context.truth(shown)[cell, number], values),
                arrays=("points", "values"),
            ),
            *([] if contributions is None else [contributions]),
        ),
        arrays={"points": faces, "values": values, **more},
    )


def _contributions(
    context: Context, shown: Shown, tiles: np.ndarray, cell: np.ndarray, number: int
) -> tuple[PanelFigure | None, dict[str, np.ndarray]]:
    """Draw what the strongest anchors add on the boundary; nothing where none decompose."""
    if not context.surrogate.decomposes:
        return None, {}
    ranking = rank(context, shown)
    chosen = ranking.largest[:ANCHORS]
    coarse = slice(None, None, COARSER)
    cells, of = np.unique(cell[coarse], return_inverse=True)
    fields = contributions_at(context, shown, cells, chosen)[:, of, number]
    larger = tiles[coarse].mean(axis=1, keepdims=True)
    label = channel_label(context.channels[number])
    # Faces that are left out leave their area to the others.
    squared = larger + np.sqrt(COARSER) * (tiles[coarse] - larger)
    figure = PanelFigure(
        "surface_anchors.png",
        draw_contributions(squared, fields, chosen, label),
        f"What the {len(chosen)} strongest anchors add to {label} on the boundary, each with a"
        " colour scale of its own: red is positive, blue is negative.",
        look_for="An anchor that acts locally colours one part of the surface only.",
        score=energy_share(ranking),
        arrays=("anchors_shown", "contributions"),
    )
    return figure, {"anchors_shown": chosen, "contributions": fields}


def draw_contributions(
    tiles: np.ndarray, values: np.ndarray, anchors: np.ndarray, label: str
) -> Figure:
    """Draw values (A, F) of some anchors on squares (F, 4, 3)."""
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    for column, (anchor, field) in enumerate(zip(anchors.tolist(), values, strict=True), start=1):
        axis = figure.add_subplot(1, len(anchors), column, projection="3d")
        norm = Normalize(*symmetric(field))
        draw_tiles(axis, tiles, SIGNED(norm(field))[:, :3], named=False)
        axis.set_title(f"anchor {anchor}", fontsize=9)
        scale = ScalarMappable(norm, SIGNED)
        bar = figure.colorbar(scale, ax=axis, location="bottom", shrink=0.8, pad=0.0)
        bar.set_label(label, fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return figure


def _score(truth: np.ndarray, predicted: np.ndarray) -> str:
    total = float(np.abs(truth).sum()) or 1.0
    return f"NMAE {float(np.abs(predicted - truth).sum()) / total:.3f} on these faces"


def draw(tiles: np.ndarray, values: np.ndarray, labels: np.ndarray | None, label: str) -> Figure:
    """Draw values (F,) on squares (F, 4, 3), and labels (F,) beside them."""
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    columns = 1 if labels is None else 2
    norm = Normalize(*spanning(values))
    axis = figure.add_subplot(1, columns, 1, projection="3d")
    draw_tiles(axis, tiles, colormaps[VALUES](norm(values))[:, :3])
    axis.set_title("prediction", fontsize=9)
    figure.colorbar(ScalarMappable(norm, VALUES), ax=axis, label=label, shrink=0.6, pad=0.12)
    if labels is not None:
        beside = figure.add_subplot(1, columns, 2, projection="3d")
        # Neighbouring numbers get colours far apart.
        beside.set_title("dominant anchor", fontsize=9)
        draw_tiles(beside, tiles, colormaps["tab20"](labels * 7 % 20)[:, :3])
    return figure
