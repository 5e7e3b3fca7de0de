"""Figures of what each anchor does: contributions, maps, scores, and its part of the error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.case_dynamics import CaseDynamics
from courant.analysis.case_scores import (
    AnchorMaps,
    CaseScores,
    ErrorAddresses,
    map_anchors,
    representative_anchors,
)
from courant.analysis.comparison import case_arrays
from courant.analysis.scores import (
    SCORES,
    TOP,
    AnchorScore,
    anchor_distances,
    by_energy,
    deletion_curve,
    energy_curve,
    insertion_curve,
    random_deletion,
    random_insertion,
    support_fractions,
)
from courant.data.normalisation import Channel
from courant.field_model import FieldDecomposition
from courant.report.context import Context, Shown, quantities
from courant.report.drawing import (
    MAGNITUDES,
    MODEL_COLOR,
    PALETTE,
    SIGNED,
    VALUES,
    WIDTH,
    Raster,
    height_of,
    place,
    small_png,
)
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.wording import channel_label
from simgen.publish.field_plots import (
    Layer,
    Line,
    Triangles,
    add_colorbar,
    draw_field,
    layer,
    point_spacing,
    section,
    spanning,
    symmetric,
    thinnest_axis,
)

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


def decomposition_panel(context: Context) -> Panel | None:
    """Show the largest contributions to the first prediction; None for a model that has none."""
    if not context.surrogate.decomposes:
        return None
    shown = context.shown[0]
    ranking = rank(context, shown)
    triangles = layer(shown.case)
    cells, corners = np.unique(triangles.cell, return_inverse=True)
    fields = contributions_at(context, shown, cells, ranking.largest)
    sizes = np.linalg.norm(fields / context.deviations(shown), axis=-1)
    figure = draw_decomposition(replace(triangles, cell=corners), sizes, ranking)
    caption = _decomposition_caption(ranking, place(shown.case, triangles))
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


def draw_decomposition(triangles: Layer, sizes: np.ndarray, ranking: Ranking) -> Figure:
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


def _decomposition_caption(ranking: Ranking, where: str) -> str:
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


def component_panel(context: Context) -> Panel | None:
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
                draw_component(drawn, fields, ranking, context.channels),
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


def draw_component(
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


SHARES = (0.25, 0.5, 0.75)
"""Of the domain's thickness, where the sections lie"""
PRESSURE = "pressure"


def section_panel(context: Context) -> Panel | None:
    """Show the decoded pressure of the strongest anchors; None in 1D and 2D."""
    if not context.surrogate.decomposes or context.dataset.schema.dimension < 3:
        return None
    shown = context.shown[0]
    points = shown.case.points.astype(float)
    ranking = rank(context, shown)
    chosen = ranking.largest
    fields = contributions_at(context, shown, np.arange(len(points)), chosen)
    number = shown_channel(context.channels)
    values = fields[..., number]
    magnitudes = np.linalg.norm(fields / context.deviations(shown), axis=-1)
    peaks = magnitudes.argmax(axis=1)
    sizes, axis = point_spacing(shown.case), thinnest_axis(points)
    try:
        planes = [section(points, sizes, axis, each) for each in positions(points, axis)]
        through = [section(points, sizes, axis, float(points[peak, axis])) for peak in peaks]
    except ValueError:
        return None  # A cloud too thin to be cut.
    label = channel_label(context.channels[number])
    figure = draw_section(planes, through, values, points[peaks], ranking, label)
    return Panel(
        "sections",
        "Contributions in three dimensions",
        (
            PanelFigure(
                "sections.png",
                figure,
                _section_caption(context.channels[number], axis, len(chosen)),
                look_for=(
                    "A compact anchor colours few sections, around its peak; one that colours all"
                    " of them acts along the whole thickness."
                ),
                score=_section_score(values),
            ),
        ),
        arrays={
            "anchors_shown": chosen,
            "points": points,
            "contributions": values,
            "peaks": points[peaks],
            "positions": np.array(positions(points, axis)),
        },
    )


def shown_channel(channels: Sequence[Channel]) -> int:
    """Return the number of the pressure, or of the first component where none is modelled."""
    for number, channel in enumerate(channels):
        if PRESSURE in channel.name:
            return number
    return 0


def positions(points: np.ndarray, axis: int) -> list[float]:
    """Return where the sections lie, evenly over the thickness of a cloud, m."""
    low, high = points[:, axis].min(), points[:, axis].max()
    return [float(low + share * (high - low)) for share in SHARES]


def draw_section(
    planes: Sequence[Triangles],
    through: Sequence[Triangles],
    values: np.ndarray,
    peaks: np.ndarray,
    ranking: Ranking,
    label: str,
) -> Figure:
    """Draw values (A, M) of the strongest anchors, one a row, at the planes and through its peak.

    A colour scale is that of a row.
    """
    rows, columns = len(values), len(planes) + 1
    height = height_of(planes[0].aspect, 3.1, 1.2, 3.4)
    figure = Figure(figsize=(WIDTH, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for row, (field, peak) in enumerate(zip(values, peaks, strict=True)):
        limits = symmetric(field)
        for axis, plane in zip(axes[row], (*planes, through[row]), strict=True):
            artist = draw_field(axis, plane, field, limits=limits, cmap=SIGNED)
            axis.set_title(plane.plane, fontsize=8, loc="left")
        assert artist is not None  # Planes are never lines.
        _mark_peak(axes[row, -1], peak, through[row])
        anchor = ranking.largest[row]
        axes[row, 0].set_ylabel(f"anchor {anchor}", fontsize=10)
        bar = figure.colorbar(artist, ax=axes[row].tolist(), shrink=0.85, pad=0.01)
        bar.ax.tick_params(labelsize=7)
        bar.set_label(label, fontsize=8)
    return figure


def _mark_peak(axis: Axes, peak: np.ndarray, plane: Triangles) -> None:
    axis.plot(*peak[list(plane.axes)], "+", ms=9, mew=1.6, color="#1a7f37", clip_on=False)
    axis.set_title(f"{plane.plane}, through its peak", fontsize=8, loc="left")


def _section_score(values: np.ndarray) -> str:
    """Return how much the shown contributions (A, M) cancel each other."""
    summed = float(np.abs(values.sum(axis=0)).sum())
    times = float(np.abs(values).sum()) / (summed or 1.0)
    return f"Taken one by one, these contributions are {times:.2g} times as large as their sum"


def _section_caption(channel: Channel, axis: int, number: int) -> str:
    name = channel_label(channel)
    return (
        f"Contributions of the {number} strongest anchors to {name} of the first prediction above,"
        f" one in each row: at three sections across {'xyz'[axis]}, evenly spaced, and at the one"
        " through the place where the anchor's whole contribution is largest (cross). Red is"
        " positive, blue is negative; each row has a colour scale of its own."
    )


READING_DRAWN_POINTS = 6_000
READING_CAPTION = (
    "What three anchors read of the input, at the first and the last level of the encoder: each"
    " input point by the attention that it gets, over what it would get if all were read alike. An"
    " anchor (circle) may read points far from its place."
)

MOVED_CAPTION = (
    "Gaussian windows move the anchors from level to level, depending on the flow. The left"
    " picture shows their paths. The right picture shows their distance from the start at each"
    " level, over the spacing (box: half of the anchors)."
)


def reading_figures(found: AnchorMaps, plane: Layer) -> list[PanelFigure]:
    """Show what the chosen anchors read; nothing of a model that does not tell."""
    if found.reading is None:
        return []
    return [
        PanelFigure(
            "anchor_reading.png",
            draw_reading(found, plane.axes),
            READING_CAPTION,
            look_for="Dark points are what the anchor reads of the input.",
            score=_reading_score(found),
            arrays=("reading", "read_points"),
        )
    ]


def moved_figures(found: AnchorMaps, plane: Layer, spacing_m: float) -> list[PanelFigure]:
    """Show how levels move anchors; nothing of a model that does not move them."""
    if found.displacements is None:
        return []
    return [
        PanelFigure(
            "anchor_moves.png",
            draw_moved(found, plane.axes, spacing_m),
            MOVED_CAPTION,
            look_for="Long lines are anchors that the flow pulls away from their start.",
            score=_moved_score(found, spacing_m),
            arrays=("places", "moved"),
        )
    ]


def draw_reading(found: AnchorMaps, axes: tuple[int, int]) -> Figure:
    """Draw the input points by the attention of each chosen anchor, at first and last level."""
    assert found.reading is not None
    levels = sorted({0, len(found.reading) - 1})
    columns, where = len(found.chosen), list(axes)
    points = found.read_points[:, where]
    height = height_of(float(np.ptp(points[:, 1]) / np.ptp(points[:, 0])), 4.2, 1.3, 3.8)
    figure = Figure(figsize=(WIDTH, height * len(levels) + 0.5), layout="constrained")
    grid = figure.subplots(len(levels), columns, squeeze=False)
    stride = -(-len(points) // READING_DRAWN_POINTS)
    for row, level in enumerate(levels):
        for column, anchor in enumerate(found.chosen):
            # Times N, so that one is what reading everything alike would give.
            times = found.reading[level, column] * len(points)
            axis, kept = grid[row, column], np.arange(0, len(points), stride)
            kept = kept[np.argsort(times[kept])]
            artist = axis.scatter(
                *points[kept].T,
                c=np.log10(np.maximum(times[kept], 1e-3)),
                s=5,
                cmap=MAGNITUDES,
                vmin=-1,
                vmax=2,
                lw=0,
            )
            axis.set(aspect="equal", xticks=[], yticks=[])
            axis.set_title(f"anchor {anchor}, level {level}", fontsize=9, loc="left")
            if found.places is not None:
                at = found.places if found.moved is None else found.moved[level]
                mark_anchor(axis, at[anchor, where])
    bar = figure.colorbar(artist, ax=grid.ravel().tolist(), shrink=0.8, pad=0.01)
    bar.set_ticks([-1, 0, 1, 2], labels=["0.1×", "1×", "10×", "100×"])
    bar.set_label("attention, over the mean")
    return figure


def draw_moved(found: AnchorMaps, axes: tuple[int, int], spacing_m: float) -> Figure:
    """Draw the way of each anchor through the levels, and how far each level has moved them."""
    assert found.moved is not None and found.places is not None
    displacements = found.displacements
    assert displacements is not None
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    where, far = figure.subplots(1, 2, width_ratios=(1.6, 1))
    shown = list(axes)
    stride = -(-len(found.points) // READING_DRAWN_POINTS)
    where.plot(*found.points[::stride, shown].T, ".", ms=1.2, color="#c9ced4", zorder=0)
    for start, way in zip(found.places, found.moved.swapaxes(0, 1), strict=True):
        where.plot(*np.vstack([start, way])[:, shown].T, "-", lw=1, color=MODEL_COLOR)
    where.plot(*found.places[:, shown].T, "o", ms=4, mfc="none", mec="#1a7f37", label="start")
    where.plot(*found.moved[-1][:, shown].T, "o", ms=3, color=MODEL_COLOR, label="last level")
    where.set(aspect="equal", xticks=[], yticks=[])
    where.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    levels = np.arange(len(displacements))
    far.boxplot(
        [each / spacing_m for each in displacements], positions=levels, whis=(5, 95), sym=""
    )
    far.set(xlabel="level", ylabel="distance from the start / spacing", ylim=(0, None))
    far.grid(alpha=0.25)
    far.axhline(1, color=PALETTE[2], lw=0.8, ls=":")
    return figure


def _reading_score(found: AnchorMaps) -> str:
    """Return how few points get half of the attention of the shown anchors at the first level."""
    assert found.reading is not None
    ordered = -np.sort(-found.reading[0], axis=-1)
    halves = (np.cumsum(ordered, axis=-1) < 0.5).sum(axis=-1) + 1
    share = float(np.median(halves)) / found.reading.shape[-1]
    return f"At the first level half of an anchor's attention goes to {share:.1%} of the points"


def _moved_score(found: AnchorMaps, spacing_m: float) -> str:
    assert found.displacements is not None
    far = float(np.median(found.displacements[-1]))
    return f"The last level's median distance is {far:.3g} m, {far / spacing_m:.2g} spacings"


TIMES = 4
"""Steps of a rollout that are shown, from the first to the last"""
MAPS_DRAWN_POINTS = 6_000
PARTITION = colormaps["tab20"]


def maps_panel(context: Context) -> Panel | None:
    """Show maps of three telling anchors; None for a model without weights."""
    surrogate, shown = context.surrogate, context.shown[0]
    if not surrogate.decomposes or context.scores.dominant is None:
        return None
    scores = context.scores
    chosen = representative_anchors(scores.fields.energies, scores.temporal_variance)
    found = map_anchors(surrogate, shown.case, chosen, shown.start_s)
    plane = layer(shown.case)
    quantity = quantities(context.channels)[0]
    predicted = surrogate.predict_case(shown.case, start_s=shown.start_s)
    flow = quantity.of(predicted.reshape(-1, *predicted.shape[-2:]))
    figures = [
        PanelFigure(
            "anchor_maps.png",
            draw_maps(plane, found, flow, quantity.label),
            _maps_caption(found),
            look_for=(
                "Compare the dark regions of an anchor with the flow above: an anchor whose region"
                " moves with the flow follows it."
                if found.times is not None
                else "Compare the dark regions of an anchor with the flow above: they are where"
                " this anchor decides the prediction."
            ),
            score=_maps_score(scores),
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


def draw_maps(plane: Layer, found: AnchorMaps, flow: np.ndarray, label: str) -> Figure:
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


def _maps_score(scores: CaseScores) -> str:
    """Return how far regions are in one piece; where that says nothing, the anchors in use."""
    assert scores.dominant is not None
    used = len(np.unique(scores.dominant))
    line = f"{used} of {scores.fields.num_anchors} anchors are dominant somewhere"
    contiguity = scores.scores.get("contiguity")
    if contiguity is None:
        return line
    return f"{line}; {contiguity:.0%} of the volume is in the largest piece of its region"


def _maps_caption(found: AnchorMaps) -> str:
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


def anchor_table_panel(context: Context) -> Panel | None:
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
        tables=(table_of_anchors(found, properties, icons),),
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


def table_of_anchors(
    found: CaseScores, properties: list[AnchorProperty], icons: list[bytes] | None
) -> Table:
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


SCORED_POINTS = 4000
"""Cells that are drawn as the domain behind the anchors"""
MARKS = {True: "good", False: "bad", None: ""}


def anchor_scores_panel(context: Context) -> Panel | None:
    """Show scores, where fields lie, and how few carry the prediction; None without fields."""
    if not context.surrogate.decomposes:
        return None
    case = context.shown[0].case
    found = context.scores
    figure = PanelFigure(
        "anchor_scores.png",
        draw_scores(found, layer(case).axes),
        _scores_caption(found),
        look_for=(
            "Short lines on the left are fields that lie at their anchors; a steep blue curve in"
            " the middle is a prediction that few anchors carry."
        ),
        score=_headline(found),
    )
    return Panel(
        "anchor_scores",
        "How local, economical and steady the anchors are",
        (figure,),
        (table_of_scores(found),),
        note=(
            "Controls divide the same field in other ways: among anchors at random, by nearest"
            " anchor, and by POD (proper orthogonal decomposition) of the case's own snapshots. A"
            " score means little unless it is better than that of the random partition. The"
            f" numbers are for case {found.case}; `courant analyse"
            f" {context.run.url}` scores all test cases. docs/analysis.md defines every score."
        ),
        arrays={**case_arrays(found), "energy_curve": energy_curve(found.fields.energies)},
    )


def table_of_scores(found: CaseScores) -> Table:
    """One row for each score that the case has, one column for each control."""
    controls = found.control_scores
    columns = (
        Column("score", is_number=False),
        Column("model"),
        *(Column(name) for name in controls),
        Column("range", is_number=False),
        Column("good is", is_number=False),
    )
    rows = [
        (
            Cell(each.name),
            _value(each, found.scores[each.key]),
            *(Cell(_number(scores.get(each.key))) for scores in controls.values()),
            Cell(each.range),
            Cell(each.aim_text),
        )
        for each in SCORES
        if each.key in found.scores
    ]
    return Table(columns, tuple(rows))


def draw_scores(found: CaseScores, axes: tuple[int, int]) -> Figure:
    """Draw anchors with their fields' centroids, the energy curve, and the two error curves."""
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    where, energy, errors = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
    _draw_places(where, found, axes)
    _draw_energy(energy, found)
    _draw_curves(errors, found)
    return figure


def _draw_places(axis: Axes, found: CaseScores, axes: tuple[int, int]) -> None:
    """Draw a line from each anchor to its field's centroid, thicker for more energy."""
    fields, shown = found.fields, list(axes)
    stride = -(-len(fields.points) // SCORED_POINTS)
    axis.plot(*fields.points[::stride, shown].T, ".", ms=1.5, color="#c9ced4", zorder=0)
    centres = fields.centroids
    sizes = 8 + 160 * fields.energies / max(float(fields.energies.max()), 1e-300)
    if fields.anchors is not None:
        for anchor, centre in zip(fields.anchors, centres, strict=True):
            ends = np.stack([anchor, centre])[:, shown]
            axis.plot(*ends.T, "-", lw=0.7, color="#7a7a7a", zorder=1)
        axis.plot(*fields.anchors[:, shown].T, "o", ms=4, mfc="none", mec="#1a7f37", label="anchor")
    axis.scatter(
        centres[:, shown[0]],
        centres[:, shown[1]],
        s=sizes,
        color=MODEL_COLOR,
        alpha=0.7,
        lw=0,
        zorder=2,
        label="centroid of its field",
    )
    low, high = fields.points[:, shown].min(axis=0), fields.points[:, shown].max(axis=0)
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    names = ["xyz"[each] for each in shown]
    axis.set(xlabel=f"{names[0]} (m)", ylabel=f"{names[1]} (m)")
    axis.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


def _draw_energy(axis: Axes, found: CaseScores) -> None:
    decompositions = {"model": found.fields, **found.controls}
    for color, (name, fields) in zip(PALETTE, decompositions.items(), strict=False):
        curve = energy_curve(fields.energies)
        axis.plot(np.arange(len(curve)), curve, color=color, label=name)
    axis.set(xlabel="number of the strongest fields", ylabel="share of the energy", ylim=(0, 1.03))
    axis.set_xlim(0, found.fields.num_anchors)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, frameon=False, loc="lower right")


def _draw_curves(axis: Axes, found: CaseScores) -> None:
    """Draw the error of adding fields one by one, and of leaving them out."""
    gram = found.fields.gram
    axis.set(xlabel="number of anchors", ylabel="relative squared error")
    if gram.sum() <= 0:
        return
    order, steps = by_energy(gram), np.arange(len(gram) + 1)
    curves = (
        ("with only the strongest", insertion_curve(gram, order), "-", 0),
        ("with only any (mean)", random_insertion(gram), ":", 0),
        ("without the strongest", deletion_curve(gram, order), "-", 1),
        ("without any (mean)", random_deletion(gram), ":", 1),
    )
    for name, curve, style, color in curves:
        axis.plot(steps, curve, style, color=PALETTE[color], label=name)
    axis.set(xlim=(0, len(gram)), ylim=(0, None))
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _value(score: AnchorScore, value: float) -> Cell:
    return Cell(_number(value), MARKS[score.reached(value)])  # type: ignore[arg-type]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _headline(found: CaseScores) -> str:
    share = f"The strongest {TOP} fields have {found.scores['top_share']:.0%} of the energy"
    distance = found.scores.get("anchor_distance")
    if distance is None:
        return share
    return f"{share}; the median field is {distance:.2g} spacings from its anchor"


def _scores_caption(found: CaseScores) -> str:
    places = (
        "The left picture joins each anchor to the centroid of the field that it contributes; short"
        " lines mean that a field lies where its anchor is. "
        if found.fields.anchors is not None
        else "The left picture has the centroids of the fields; these anchors have no positions. "
    )
    return (
        f"{places}A larger dot has more energy. The middle picture shows the energy in the"
        " strongest fields, beside the controls. The right picture shows the error of a prediction"
        " made from some of the fields; the faster the blue line falls and the orange one rises,"
        " the fewer anchors the prediction depends on. Dotted lines are for random order."
    )


NAMED = 8
"""Anchors that are named, the one that carries most first"""


def addresses_panel(context: Context) -> Panel | None:
    """Show a map of the error and the anchors that carry it; None for a model without weights."""
    if not context.surrogate.decomposes or (found := context.scores.addresses) is None:
        return None
    case, dominant = context.shown[0].case, context.scores.dominant
    assert dominant is not None
    shown = layer(case)
    figure = draw_addresses(shown, found, dominant)
    where = place(case, shown)
    return Panel(
        "error_addresses",
        "Which anchors carry the error",
        (
            PanelFigure(
                "error_addresses.png",
                figure,
                _addresses_caption(found, where),
                look_for="Dark regions of the middle picture are where most of the error is.",
                score=(
                    f"The worst tenth of the anchors has {found.carried():.0%} of the squared error"
                ),
            ),
        ),
        (table_of_addresses(found, context.scores.fields.anchors),),
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


def table_of_addresses(found: ErrorAddresses, anchors: np.ndarray | None) -> Table:
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


def draw_addresses(shown: Layer, found: ErrorAddresses, dominant: np.ndarray) -> Figure:
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


def _addresses_caption(found: ErrorAddresses, where: str) -> str:
    return (
        "The left picture shows the error of the first prediction above"
        f"{f', in {where}' if where else ''}; numbers name the anchors with the largest parts of"
        " it, at the centre of their part. In the middle picture each cell has the part of its"
        " dominant anchor in the whole error, so that regions to improve are dark. The right"
        " picture shows how much of the squared error the worst anchors have; where the line"
        " follows the dotted one, the error is the same everywhere."
    )
