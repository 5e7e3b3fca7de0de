"""List every anchor of the first shown case: where it is, what its field is like, how it errs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from courant.analysis.case_dynamics import CaseDynamics
from courant.analysis.case_scores import CaseScores
from courant.analysis.scores import anchor_distances, support_fractions
from courant.report.context import Context
from courant.report.images.colour_maps import MAGNITUDES
from courant.report.images.embedding import small_png
from courant.report.images.raster import Raster
from courant.report.panel import Cell, Column, Panel, Table
from simgen.publish.field_plots import Triangles, layer

ICON_WIDTH = 96
"""Pixels of the picture of each field"""


@dataclass(frozen=True)
class AnchorProperty:
    """A number of each of the L anchors, with its place in table and arrays."""

    key: str
    column: str
    values: np.ndarray
    """(L,); NaN where an anchor has no such number"""
    show: Callable[[float], str]


def panel(context: Context) -> Panel | None:
    """Show a row for each anchor; None for models that do not decompose."""
    if not context.surrogate.decomposes:
        return None
    found, case = context.scores, context.shown[0].case
    properties = properties_of(found, context.dynamics)
    plane = layer(case)
    icons = draw_icons(plane, found.fields.magnitudes) if isinstance(plane, Triangles) else None
    where = {} if found.fields.anchors is None else {"anchors": found.fields.anchors}
    return Panel(
        "anchor_table",
        "All anchors, one by one",
        tables=(table(found, properties, icons),),
        note=_note(found, context.dynamics, icons is not None),
        arrays={
            **{each.key: each.values for each in properties},
            "centroids": found.fields.centroids,
            **where,
        },
    )


def properties_of(found: CaseScores, dynamics: CaseDynamics | None) -> list[AnchorProperty]:
    """Return what is known of each anchor."""
    fields, energies = found.fields, found.fields.energies
    known = [
        AnchorProperty("energy", "share of the energy", _shares(energies), _percent),
        AnchorProperty("support", "90 % of it in", support_fractions(fields), _percent),
    ]
    if (distances := anchor_distances(fields)) is not None:
        known.append(AnchorProperty("distance", "field is away by (m)", distances, _digits))
    if found.temporal_variance is not None:
        known.append(
            AnchorProperty("temporal_variance", "varies in time", found.temporal_variance, _percent)
        )
    if dynamics is not None:
        known.append(AnchorProperty("frequency", "frequency (Hz)", dynamics.anchor_hz, _digits))
    if (errors := found.addresses) is not None:
        ratio = errors.densities / (errors.total or 1.0)
        known += [
            AnchorProperty("weight", "part of the volume", errors.governed, _percent),
            AnchorProperty("error", "part of the error", _shares(errors.errors), _percent),
            AnchorProperty("error_ratio", "error there, over the mean", ratio, _times),
        ]
    return known


def table(found: CaseScores, properties: list[AnchorProperty], icons: list[bytes] | None) -> Table:
    """One row for each anchor, by number."""
    anchors = found.fields.anchors
    columns = (
        Column("anchor"),
        *(() if icons is None else (Column("its field", is_number=False),)),
        *(() if anchors is None else (Column("place (m)", is_number=False),)),
        *(Column(each.column) for each in properties),
    )
    rows = [
        (
            Cell(str(anchor)),
            *(() if icons is None else (Cell("", picture=icons[anchor]),)),
            *(() if anchors is None else (Cell(position(anchors[anchor])),)),
            *(Cell(_shown(each, anchor)) for each in properties),
        )
        for anchor in range(found.fields.num_anchors)
    ]
    return Table(columns, tuple(rows), sortable=True)


def draw_icons(plane: Triangles, magnitudes: np.ndarray) -> list[bytes]:
    """Draw the magnitudes (L, M) of all fields in the plane, each on its own scale."""
    raster = Raster.of(plane, ICON_WIDTH)
    tops = [float(np.quantile(each[plane.cell], 0.998)) or 1.0 for each in magnitudes]
    return [
        small_png(raster.color(each, (0.0, top), MAGNITUDES))
        for each, top in zip(magnitudes, tops, strict=True)
    ]


def position(place: np.ndarray) -> str:
    """Format `3.2, -1, 0`; empty where it is not known."""
    if not np.isfinite(place).all():
        return ""
    return ", ".join(f"{round(float(each), 6) + 0.0:.3g}" for each in place)


def _shown(each: AnchorProperty, anchor: int) -> str:
    value = float(each.values[anchor])
    return each.show(value) if math.isfinite(value) else "–"


def _shares(values: np.ndarray) -> np.ndarray:
    return values / (float(values.sum()) or 1.0)


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _digits(value: float) -> str:
    return f"{value:.3g}"


def _times(value: float) -> str:
    return f"{value:.2f}×"


def _note(found: CaseScores, dynamics: CaseDynamics | None, has_icons: bool) -> str:
    parts = ["A click on a column's head sorts the rows by it."]
    if has_icons:
        parts.append(
            "The picture of a field has a colour scale of its own, and lies in the plane of the"
            " other pictures: compare strengths by the share of the energy."
        )
    parts.append(
        "90 % of a field's energy lies in the given part of the volume: a small one is a field at"
        " one place."
    )
    if found.fields.anchors is not None:
        parts.append(
            "A field may lie away from its anchor; here anchors tile the domain at distances of"
            f" about {found.spacing_m:.3g} m."
        )
    if found.temporal_variance is not None:
        parts.append(
            "A field that stands still varies by 0 % in the predicted steps, one that swings"
            " around zero by 100 %."
        )
    if dynamics is not None:
        parts.append(
            "The frequency is that of the anchor's latent in a long rollout; the solution's is"
            f" {dynamics.reference_hz:.3g} Hz."
        )
    return " ".join(parts)
