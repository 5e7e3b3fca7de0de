"""Show where the error of the first shown prediction is, and which anchors speak there."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.error_addresses import ErrorAddresses
from courant.report.context import Context
from courant.report.drawing import MODEL_COLOR, WIDTH, height_of, place
from courant.report.images.colour_maps import MAGNITUDES
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.panels.anchors.anchor_table import position
from simgen.publish.field_plots import Layer, add_colorbar, draw_field, layer

NAMED = 8
"""Anchors that are named, the one that carries most first"""


def panel(context: Context) -> Panel | None:
    """Show a map of the error and the anchors that carry it; None for a model without weights."""
    if not context.surrogate.decomposes or (found := context.scores.addresses) is None:
        return None
    case, dominant = context.shown[0].case, context.scores.dominant
    assert dominant is not None
    shown = layer(case)
    figure = draw(shown, found, dominant)
    where = place(case, shown)
    return Panel(
        "error_addresses",
        "Which anchors carry the error",
        (
            PanelFigure(
                "error_addresses.png",
                figure,
                _caption(found, where),
                look_for="Dark regions of the middle picture are where most of the error is.",
                score=(
                    f"The worst tenth of the anchors has {found.carried():.0%} of the squared error"
                ),
            ),
        ),
        (table(found, context.scores.fields.anchors),),
        note=(
            "The squared error at a point is divided among the anchors by their weights there,"
            " which sum to one. The parts sum exactly to the whole, a mean square error of"
            f" {found.total:.3g} in units of the training cases' variance. An anchor with a large"
            " error shows where to look; it need not be the cause."
        ),
        arrays={
            "error_address": found.errors,
            "governed": found.governed,
            "centre": found.centres,
            "squared_error": found.squared,
            "points": case.points,
        },
    )


def table(found: ErrorAddresses, anchors: np.ndarray | None) -> Table:
    """One row for each of the anchors that carry most."""
    columns = (
        Column("anchor"),
        Column("part of the error"),
        Column("part of the volume"),
        Column("error there, over the mean"),
        Column("where (m)", is_number=False),
        *(() if anchors is None else (Column("the anchor itself (m)", is_number=False),)),
    )
    total = found.total or 1.0
    rows = [
        (
            Cell(str(anchor)),
            Cell(f"{found.errors[anchor] / total:.1%}"),
            Cell(f"{found.governed[anchor]:.1%}"),
            Cell(f"{found.densities[anchor] / total:.2g}×"),
            Cell(position(found.centres[anchor])),
            *(() if anchors is None else (Cell(position(anchors[anchor])),)),
        )
        for anchor in found.worst[:NAMED].tolist()
    ]
    return Table(columns, tuple(rows))


def draw(shown: Layer, found: ErrorAddresses, dominant: np.ndarray) -> Figure:
    """Draw the error, the part of each cell's dominant anchor in it, and how concentrated it is."""
    height = height_of(shown.aspect, 4.2, 2.6, 4.6)
    figure = Figure(figsize=(WIDTH, height + 0.3), layout="constrained")
    error, carried, curve = figure.subplots(1, 3, width_ratios=(1.4, 1.4, 1))
    size = np.sqrt(found.squared)
    parts = found.errors / (found.total or 1.0)
    _draw_map(figure, error, shown, size, "|error| (std)")
    _draw_map(figure, carried, shown, 100 * parts[dominant], "part of the error at the anchor (%)")
    _name_worst(error, shown, found)
    _draw_curve(curve, found)
    return figure


def _draw_map(figure: Figure, axis: Axes, shown: Layer, values: np.ndarray, label: str) -> None:
    limits = (0.0, float(np.quantile(values[np.unique(shown.cell)], 0.998)) or 1.0)
    artist = draw_field(axis, shown, values, limits=limits, cmap=MAGNITUDES)
    if add_colorbar(figure, artist, axis, label=label, location="bottom", pad=0.02) is None:
        axis.set_ylabel(label)


def _name_worst(axis: Axes, shown: Layer, found: ErrorAddresses) -> None:
    """Write the numbers of the worst anchors at the centres of the error that they carry."""
    centres = found.centres[:, list(shown.axes)]
    for anchor in found.worst[:NAMED].tolist():
        if np.isfinite(centres[anchor]).all():
            axis.annotate(
                str(anchor),
                tuple(centres[anchor]),
                fontsize=8,
                ha="center",
                va="center",
                color="#12365c",
                bbox={"boxstyle": "round,pad=0.15", "fc": "#ffffffc0", "ec": "none"},
            )


def _draw_curve(axis: Axes, found: ErrorAddresses) -> None:
    total = found.total or 1.0
    order = found.worst
    held = np.concatenate([[0.0], np.cumsum(found.errors[order]) / total])
    volume = np.concatenate([[0.0], np.cumsum(found.governed[order])])
    share = np.linspace(0, 1, len(held))
    axis.plot(share, held, color=MODEL_COLOR, label="of the error")
    axis.plot(share, volume, ":", color="#7a7a7a", label="of the volume")
    axis.set(
        xlabel="share of the anchors, the worst first",
        ylabel="part carried",
        xlim=(0, 1),
        ylim=(0, 1.03),
    )
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=8, loc="lower right")


def _caption(found: ErrorAddresses, where: str) -> str:
    return (
        "The left picture shows the error of the first prediction above"
        f"{f', in {where}' if where else ''}; numbers name the anchors with the largest parts of"
        " it, at the centre of their part. In the middle picture each cell has the part of its"
        " dominant anchor in the whole error, so that regions to improve are dark. The right"
        " picture shows how much of the squared error the worst anchors have; where the line"
        " follows the dotted one, the error is the same everywhere."
    )
