"""Show the components of the strongest contributions to each shown prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from courant.data.normalisation import Channel
from courant.report.context import Context
from courant.report.drawing import WIDTH, height_of, place
from courant.report.images.colour_maps import SIGNED
from courant.report.panel import Panel, PanelFigure
from courant.report.panels.anchors.decomposition import (
    Ranking,
    contributions_at,
    energy_share,
    mark_anchor,
    rank,
)
from courant.report.wording import channel_label
from simgen.publish.field_plots import Layer, add_colorbar, draw_field, layer, symmetric


def panel(context: Context) -> Panel | None:
    """Show components of the strongest contributions; None for a model that does not decompose."""
    if not context.surrogate.decomposes:
        return None
    figures: list[PanelFigure] = []
    arrays: dict[str, np.ndarray] = {}
    for shown in context.shown:
        ranking, triangles = rank(context, shown), layer(shown.case)
        cells, corners = np.unique(triangles.cell, return_inverse=True)
        fields = contributions_at(context, shown, cells, ranking.largest)
        names = tuple(f"{shown.slug}_{each}" for each in ("anchors", "points", "contributions"))
        drawn = replace(triangles, cell=corners)
        figures.append(
            PanelFigure(
                f"component_fields_{shown.slug}.png",
                draw(drawn, fields, ranking, context.channels),
                f"The strongest anchors of case {shown.case.id} ({shown.label}), one in each row:"
                " the components of what each adds to the prediction. A column has one colour"
                " scale, white is zero; positive and negative parts of several anchors may cancel."
                f"{_plane(place(shown.case, triangles))}",
                look_for="Rows with colour in one place only are anchors that act locally.",
                score=energy_share(ranking),
                arrays=names,
            )
        )
        values = (ranking.largest, shown.case.points[cells], fields)
        arrays |= dict(zip(names, values, strict=True))
    return Panel(
        "component_fields",
        "What the strongest anchors contribute, by component",
        tuple(figures),
        note=f"Columns of the contributions: {', '.join(context.surrogate.channels)}.",
        arrays=arrays,
    )


def draw(
    triangles: Layer, fields: np.ndarray, ranking: Ranking, channels: Sequence[Channel]
) -> Figure:
    """Draw contributions (A, M, C) at all corners' cells, one row for each anchor."""
    rows, columns = len(fields), len(channels)
    width = min(WIDTH, 4.6 * columns)
    height = height_of(triangles.aspect, width / columns, 1.1, 3.4)
    figure = Figure(figsize=(width, height * rows + 0.7), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for column, channel in enumerate(channels):
        limits = symmetric(fields[:, triangles.cell, column])
        for row, anchor in enumerate(ranking.largest.tolist()):
            axis = axes[row, column]
            values = fields[row, :, column]
            artist = draw_field(axis, triangles, values, limits=limits, cmap=SIGNED)
            if ranking.anchors is not None:
                mark_anchor(axis, ranking.anchors[anchor, list(triangles.axes)])
        label = channel_label(channel)
        below = axes[:, column].tolist()
        style = {"label": label, "location": "bottom", "pad": 0.005, "aspect": 40}
        if add_colorbar(figure, artist, below, **style) is None:
            axes[0, column].set_title(label, fontsize=9, loc="left")
    for axis, anchor in zip(axes[:, 0], ranking.largest.tolist(), strict=True):
        axis.set_ylabel(f"anchor {anchor}", fontsize=9)
    return figure


def _plane(where: str) -> str:
    return f" The picture shows {where}." if where else ""
