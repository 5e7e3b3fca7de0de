"""Decompose a prediction: the anchors that contribute most, and how exact the sum is.

Anchors are ranked as in the paper's figures, by the norm of their contribution over the whole
field: all cells of the case and all modelled components, each in units of its standard deviation
over the training split, so that fields of different units count alike. Contributions are as many
fields as there are anchors, so they are processed in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.field_model import FieldDecomposition
from courant.report.context import Context, Shown
from courant.report.drawing import WIDTH, height_of, place
from courant.report.images.colour_maps import MAGNITUDES
from courant.report.panel import Panel, PanelFigure
from simgen.publish.field_plots import Layer, add_colorbar, draw_field, layer

TOP_ANCHORS = 8
COLUMNS = 4
EDGE = 0.02
"""Share of the picture's longer side: an anchor this little outside, as on a wall, counts as inside
"""
MAX_VALUES = 1 << 24
"""Numbers of contributions in memory at once, 64 MiB; computing them takes a few times as much"""


@dataclass(frozen=True)
class Ranking:
    """The contributions of L anchors to a case's field."""

    norms: np.ndarray
    """(L,) over all cells and components, in standard deviations"""
    offset: np.ndarray
    """(C,) in physical units"""
    anchors: np.ndarray | None
    """(L, 3) m; None for anchors without positions"""
    deviation: float
    """The largest deviation of the sum from the prediction, in standard deviations"""

    @property
    def largest(self) -> np.ndarray:
        """Return the numbers of the anchors that contribute most, in order."""
        return np.argsort(-self.norms, kind="stable")[:TOP_ANCHORS]


def panel(context: Context) -> Panel | None:
    """Show the largest contributions to the first prediction; None for a model that has none."""
    if not context.surrogate.decomposes:
        return None
    shown = context.shown[0]
    ranking = rank(context, shown)
    triangles = layer(shown.case)
    cells, corners = np.unique(triangles.cell, return_inverse=True)
    fields = contributions_at(context, shown, cells, ranking.largest)
    sizes = np.linalg.norm(fields / context.deviations(shown), axis=-1)
    figure = draw(replace(triangles, cell=corners), sizes, ranking)
    caption = _caption(ranking, place(shown.case, triangles))
    overview = PanelFigure(
        "decomposition.png",
        figure,
        caption,
        look_for="Each picture shows what one anchor adds to the prediction, and where.",
        score=energy_share(ranking),
        arrays=("norms", "points", "contributions"),
    )
    arrays = {
        "norms": ranking.norms,
        "offset": ranking.offset,
        "largest": ranking.largest,
        "points": shown.case.points[cells],
        "contributions": fields,
        **({} if ranking.anchors is None else {"anchors": ranking.anchors}),
    }
    return Panel(
        "decomposition",
        "What each anchor contributes",
        (overview,),
        note=(
            f"The sum u₀ + Σ δₖ differs from the prediction by at most {ranking.deviation:.1e}"
            " standard deviations. Contributions in the arrays are in physical units; their"
            f" components are {', '.join(context.surrogate.channels)}."
        ),
        arrays=arrays,
    )


def rank(context: Context, shown: Shown) -> Ranking:
    """Return the ranking of a shown case, which several panels use; it is computed once."""
    name = f"ranking, {shown.slug}"
    if name not in context.kept:
        context.kept[name] = compute_ranking(context, shown)
    ranking: Ranking = context.kept[name]
    return ranking


def compute_ranking(context: Context, shown: Shown) -> Ranking:
    """Compute the norms of all contributions over the field, and their sum's deviation."""
    std, surrogate = context.deviations(shown), context.surrogate
    predicted = context.predict(shown)
    parts = surrogate.decomposition(shown.case, start_s=shown.start_s)
    offset = surrogate.normaliser.at(shown.case.parameters).restore(parts.offset.cpu().numpy())
    squares: np.ndarray | float = 0.0
    deviation = 0.0
    for cells, fields in _chunks(parts):
        squares = squares + np.square(fields).sum(axis=(1, 2))
        summed = offset + (fields * std).sum(axis=0)
        deviation = max(deviation, float((np.abs(summed - predicted[cells]) / std).max()))
    places = None if parts.anchors is None else parts.anchors[0].detach().cpu().numpy()
    anchors = None if places is None else surrogate.places(places)
    return Ranking(np.sqrt(squares), offset, anchors, deviation)


def contributions_at(
    context: Context, shown: Shown, cells: np.ndarray, anchors: np.ndarray
) -> np.ndarray:
    """Return (A, M, C): contributions of some anchors at some cells, in physical units."""
    parts = context.surrogate.decomposition(shown.case, start_s=shown.start_s, cells=cells)
    found = [fields[anchors] for _, fields in _chunks(parts)]
    return np.concatenate(found, axis=1) * context.deviations(shown)


def draw(triangles: Layer, sizes: np.ndarray, ranking: Ranking) -> Figure:
    """Draw magnitudes (A, M) of the largest contributions at all corners' cells, on one scale."""
    chosen = ranking.largest
    columns = min(COLUMNS, len(chosen))
    rows = -(-len(chosen) // columns)
    height = height_of(triangles.aspect, 2.9, 1.4, 4.0)
    figure = Figure(figsize=(WIDTH, height * rows + 0.2), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    limits = (0.0, float(np.quantile(sizes[:, triangles.cell], 0.998)) or 1.0)
    for axis in axes[len(chosen) :]:
        axis.set_visible(False)
    for axis, anchor, values in zip(axes, chosen.tolist(), sizes, strict=False):
        artist = draw_field(axis, triangles, values, limits=limits, cmap=MAGNITUDES)
        if ranking.anchors is not None:
            mark_anchor(axis, ranking.anchors[anchor, list(triangles.axes)])
        title = f"anchor {anchor}, norm {ranking.norms[anchor]:.3g}"
        axis.set_title(title, fontsize=9, loc="left")
    label = "|contribution| (std)"
    if add_colorbar(figure, artist, axes.tolist(), label=label, shrink=0.7, pad=0.01) is None:
        figure.supylabel(label, fontsize=9)
    return figure


def mark_anchor(axis: Axes, where: np.ndarray) -> None:
    """Draw a circle at the anchor's position, or a cross at the nearest edge for one outside."""
    low, high = np.array([axis.get_xlim(), axis.get_ylim()]).T
    shown = np.clip(where, low, high)
    is_inside = np.allclose(shown, where, rtol=0, atol=EDGE * float((high - low).max()))
    marker = "o" if is_inside else "x"
    axis.plot(*shown, marker, ms=6, mfc="none", mec="#1a7f37", mew=1.6, clip_on=False)


def _chunks(parts: FieldDecomposition) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield some query points at a time with the last contributions there (L, m, C), in std.

    All of one encoding.
    """
    with torch.inference_mode():
        size = max(1, MAX_VALUES // next(parts.chunks(1)).contributions.numel())
        for part in parts.chunks(size):
            yield part.queries, part.contributions[0, -1].float().cpu().numpy()


def energy_share(ranking: Ranking) -> str:
    """Say how much of all fields' energy the strongest have."""
    energies = np.square(ranking.norms)
    share = energies[ranking.largest].sum() / (float(energies.sum()) or 1.0)
    number = len(ranking.largest)
    return f"These {number} of {len(energies)} anchors have {share:.0%} of the fields' energy"


def _caption(ranking: Ranking, where: str) -> str:
    shown = f"the {len(ranking.largest)} of largest norm"
    if ranking.anchors is None:
        places = "This model's anchors are abstract: they have no position."
    else:
        seen = ", seen across the layer" if where else ""
        places = (
            f"The circle is the position of the anchor{seen}; a cross marks an anchor outside the"
            " picture."
        )
    return (
        "The first prediction above is exactly an offset u₀ plus one field δₖ for each of the "
        f"{len(ranking.norms)} anchors. The picture shows {shown}, as magnitudes over the "
        f"components{f', in {where}' if where else ''}. The norm is over all cells and all "
        "modelled components, each component in units of its standard deviation over the training "
        f"cases. {places}"
    )
