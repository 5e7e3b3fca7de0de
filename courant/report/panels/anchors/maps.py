"""Show where anchors speak over time, what they read, and how levels move them."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.case_scores import CaseScores
from courant.analysis.error_addresses import AnchorMaps, map_anchors, telling_anchors
from courant.report.context import Context
from courant.report.drawing import MODEL_COLOR, WIDTH, height_of
from courant.report.images.colour_maps import MAGNITUDES, VALUES
from courant.report.panel import Panel, PanelFigure
from courant.report.panels.anchors.decomposition import mark_anchor
from courant.report.panels.anchors.reading import moved_figures, reading_figures
from courant.report.panels.prediction import quantities
from simgen.publish.field_plots import Layer, Line, add_colorbar, draw_field, layer, spanning

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
    quantity = quantities(context.channels)[0]
    predicted = surrogate.predict_case(shown.case, start_s=shown.start_s)
    flow = quantity.of(predicted.reshape(-1, *predicted.shape[-2:]))
    figures = [
        PanelFigure(
            "anchor_maps.png",
            draw(plane, found, flow, quantity.label),
            _caption(found),
            look_for=(
                "Compare the dark regions of an anchor with the flow above: an anchor whose region"
                " moves with the flow follows it."
                if found.times is not None
                else "Compare the dark regions of an anchor with the flow above: they are where"
                " this anchor decides the prediction."
            ),
            score=_score(scores),
            arrays=("dominant", "weights", "flow"),
        )
    ]
    figures += [*reading_figures(found, plane), *moved_figures(found, plane, scores.spacing_m)]
    return Panel(
        "anchor_maps",
        "Where anchors speak, and what they read",
        tuple(figures),
        note=(
            f"`courant analyse maps {context.run.url} --anchor 14` writes these arrays for any"
            " anchors of any case."
        ),
        arrays={**found.arrays(), "flow": flow},
    )


def draw(plane: Layer, found: AnchorMaps, flow: np.ndarray, label: str) -> Figure:
    """Draw the flow (T, M), the partition and the weights of the chosen anchors, one row each."""
    steps = np.unique(np.linspace(0, len(found.dominant) - 1, TIMES).round().astype(int))
    rows = 2 + len(found.chosen)
    height = height_of(plane.aspect, WIDTH / max(2, len(steps)), 1.2, 3.6)
    figure = Figure(figsize=(WIDTH, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, len(steps), squeeze=False)
    limits = (0.0, float(np.quantile(found.weights[steps], 0.998)) or 1.0)
    speeds = spanning(flow[steps][:, np.unique(plane.cell)])
    for column, step in enumerate(steps):
        speed = draw_field(axes[0, column], plane, flow[step], limits=speeds, cmap=VALUES)
        _draw_partition(axes[1, column], plane, found.dominant[step])
        if found.times is not None:
            axes[0, column].set_title(f"t = {found.times[step]:g} s", fontsize=9, loc="left")
        for row, anchor in enumerate(found.chosen, start=2):
            values = found.weights[step, row - 2]
            artist = draw_field(axes[row, column], plane, values, limits=limits, cmap=MAGNITUDES)
            if found.places is not None:
                mark_anchor(axes[row, column], found.places[anchor, list(plane.axes)])
    axes[0, 0].set_ylabel("prediction", fontsize=9)
    axes[1, 0].set_ylabel("dominant anchor", fontsize=9)
    for row, anchor in enumerate(found.chosen, start=2):
        axes[row, 0].set_ylabel(f"anchor {anchor}", fontsize=9)
    add_colorbar(figure, speed, axes[0].tolist(), label=label, shrink=0.9, pad=0.01)
    if artist is not None:
        below = axes[2:].ravel().tolist()
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


def _score(scores: CaseScores) -> str:
    """Return how far regions are in one piece; where that says nothing, the anchors in use."""
    assert scores.dominant is not None
    used = len(np.unique(scores.dominant))
    line = f"{used} of {scores.fields.num_anchors} anchors are dominant somewhere"
    contiguity = scores.scores.get("contiguity")
    if contiguity is None:
        return line
    return f"{line}; {contiguity:.0%} of the volume is in the largest piece of its region"


def _caption(found: AnchorMaps) -> str:
    chosen = ", ".join(map(str, found.chosen))
    if found.times is None:
        return (
            "The first row shows the prediction, the second the domain, coloured by the anchor with"
            " the largest weight at each point. The rows below show the weights of the three"
            f" strongest anchors ({chosen});"
            " all weights at a point sum to one."
        )
    return (
        "The first row shows the prediction over the rollout, the second the domain, coloured by"
        " the anchor with the largest weight at each point. The rows below show the weights of"
        f" anchors {chosen}; all"
        " weights at a point sum to one. Of the stronger half of the anchors these are the two"
        " whose fields vary most in time, and last the one whose field varies least."
    )
