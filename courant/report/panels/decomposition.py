"""The prediction taken apart: the anchors that contribute most, and how exact the sum is.

Anchors are ranked as in the paper's figures, by the norm of their contribution over the whole
field: all cells of the case and all modelled components, each in units of its standard deviation
over the training split, so that fields of different units count alike. Contributions are as many
fields as there are anchors: they are gone through in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.prediction.surrogate import CaseDecomposition
from courant.report.context import Context, Shown
from courant.report.drawing import WIDTH, height_of
from courant.report.panel import Panel, PanelFigure
from courant.report.wording import place
from simgen.field_plots import Triangles, draw_field, layer

TOP_ANCHORS = 8
COLUMNS = 4
EDGE = 0.02
"""Of the picture's longer side: an anchor so little outside, as on a wall, counts as inside"""
MAX_VALUES = 1 << 24
"""Numbers that contributions may take at once, 64 MiB; making them takes a few times as much"""


@dataclass(frozen=True)
class Ranking:
    """What each of L anchors contributes to a case's field."""

    norms: np.ndarray
    """(L,) over all cells and components, in standard deviations"""
    offset: np.ndarray
    """(C,) in physical units"""
    anchors: np.ndarray | None
    """(L, 3) m; None for anchors without positions"""
    deviation: float
    """Of the sum from the prediction, the largest, in standard deviations"""

    @property
    def largest(self) -> np.ndarray:
        """Numbers of the anchors that contribute most, in order."""
        return np.argsort(-self.norms, kind="stable")[:TOP_ANCHORS]


def panel(context: Context) -> Panel | None:
    """The largest contributions to the first prediction; None for a model that has none."""
    if not context.surrogate.decomposes:
        return None
    shown = context.shown[0]
    ranking = rank(context, shown)
    triangles = layer(shown.case)
    cells, corners = np.unique(triangles.cell, return_inverse=True)
    fields = contributions_at(context, shown, cells, ranking.largest)
    sizes = np.linalg.norm(fields / context.surrogate.normaliser.std, axis=-1)
    figure = draw(replace(triangles, cell=corners), sizes, ranking)
    caption = _caption(ranking, place(shown.case, triangles))
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
        (PanelFigure("decomposition.png", figure, caption),),
        note=f"The sum u₀ + Σ δₖ differs from the prediction by at most {ranking.deviation:.1e} "
        "standard deviations. Contributions in the arrays are in physical units, their components "
        f"{', '.join(context.surrogate.channels)}.",
        arrays=arrays,
    )


def rank(context: Context, shown: Shown) -> Ranking:
    """Norms of all contributions over the whole field, and the deviation of their sum."""
    std = np.asarray(context.surrogate.normaliser.std)
    predicted = context.predict(shown)
    squares: np.ndarray | float = 0.0
    deviation = 0.0
    for cells, parts, fields in _parts(context, shown, np.arange(shown.case.num_points)):
        squares = squares + np.square(fields / std).sum(axis=(1, 2))
        summed = parts.offset + fields.sum(axis=0)
        deviation = max(deviation, float((np.abs(summed - predicted[cells]) / std).max()))
    return Ranking(np.sqrt(squares), parts.offset, parts.anchors, deviation)


def contributions_at(context: Context, shown: Shown, cells: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """(A, M, C): contributions of some anchors at some cells, in physical units."""
    parts = [fields[anchors] for _, _, fields in _parts(context, shown, cells)]
    return np.concatenate(parts, axis=1)


def draw(triangles: Triangles, sizes: np.ndarray, ranking: Ranking) -> Figure:
    """Magnitudes (A, M) of the largest contributions at all corners' cells, on one scale."""
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
        artist = draw_field(axis, triangles, values, limits=limits, cmap="magma_r")
        if ranking.anchors is not None:
            _mark(axis, ranking.anchors[anchor, list(triangles.axes)])
        title = f"anchor {anchor}, norm {ranking.norms[anchor]:.3g}"
        axis.set_title(title, fontsize=9, loc="left")
    figure.colorbar(artist, ax=axes.tolist(), label="|contribution| (std)", shrink=0.7, pad=0.01)
    return figure


def _mark(axis: Axes, where: np.ndarray) -> None:
    """A circle at the anchor's place, or a cross at the edge nearest to one outside."""
    low, high = np.array([axis.get_xlim(), axis.get_ylim()]).T
    shown = np.clip(where, low, high)
    is_inside = np.allclose(shown, where, rtol=0, atol=EDGE * float((high - low).max()))
    marker = "o" if is_inside else "x"
    axis.plot(*shown, marker, ms=6, mfc="none", mec="#1a7f37", mew=1.6, clip_on=False)


def _parts(
    context: Context, shown: Shown, cells: np.ndarray
) -> Iterator[tuple[np.ndarray, CaseDecomposition, np.ndarray]]:
    """Some cells at a time, their decomposition, and its last contributions (L, m, C)."""

    def decompose(part: np.ndarray) -> CaseDecomposition:
        return context.surrogate.decompose_case(shown.case, start_s=shown.start_s, cells=part)

    size = max(1, MAX_VALUES // decompose(cells[:1]).contributions.size)
    for start in range(0, len(cells), size):
        part = cells[start : start + size]
        decomposed = decompose(part)
        fields = decomposed.contributions
        yield part, decomposed, fields.reshape(-1, *fields.shape[-3:])[-1]


def _caption(ranking: Ranking, where: str) -> str:
    shown = f"the {len(ranking.largest)} of largest norm"
    if ranking.anchors is None:
        places = "This model's anchors are abstract: they have no place."
    else:
        seen = ", seen across the layer" if where else ""
        places = f"The circle is the place of the anchor{seen}; a cross, of one outside the picture."
    return (
        f"The first prediction above is exactly an offset u₀ plus one field δₖ for each of the "
        f"{len(ranking.norms)} anchors. Shown are {shown}, as magnitudes over the components"
        f"{f', in {where}' if where else ''}. The norm is over the whole field, all cells and all "
        "modelled components, each component in units of its standard deviation over the training "
        f"cases. {places}"
    )
