"""Figures of what each anchor does: contributions, maps, scores, and its part of the error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.case_scores import (
    AnchorMaps,
    CaseScores,
    ErrorAddresses,
    map_anchors,
    representative_anchors,
)
from courant.analysis.scores import (
    SCORES,
    TOP,
    anchor_distances,
    by_energy,
    deletion_curve,
    energy_curve,
    insertion_curve,
    random_deletion,
    support_fractions,
)
from courant.data.normalisation import Channel
from courant.report.context import (
    CLOUD,
    GOOD_COLOR,
    MAGNITUDES,
    MODEL_COLOR,
    PALETTE,
    SIGNED,
    VALUES,
    WIDTH,
    Context,
    Ranking,
    Raster,
    Style,
    axes_grid,
    height_of,
    mark_anchor,
    plotted_fields,
    top_limits,
)
from courant.report.fields import shown_channel
from courant.report.page import Cell, Panel, PanelTable, Picture, channel_label, number, small_png
from simgen.publish.figures import (
    Layer,
    Line,
    Triangles,
    add_colorbar,
    draw_field,
    point_spacing,
    section,
    spanning,
    symmetric,
    thinnest_axis,
)

COLUMNS = 4


def decomposition_panel(context: Context) -> Panel | None:
    """Show the largest contributions to the first prediction; None for a model that has none."""
    if not context.surrogate.decomposes:
        return None
    shown = context.shown[0]
    ranking = shown.ranking
    cells, corners = np.unique(shown.layer.cell, return_inverse=True)
    fields = shown.contributions(cells, ranking.largest)
    sizes = np.linalg.norm(fields / shown.deviations, axis=-1)
    circles = (
        "This model's anchors are abstract: they have no position."
        if ranking.anchors is None
        else "The circle is the position of the anchor; a cross marks one outside the picture."
    )
    picture = Picture(
        "decomposition.png",
        "The first prediction above is exactly an offset u₀ plus one field δₖ for each of the"
        f" {len(ranking.norms)} anchors. Here are the {len(ranking.largest)} of largest norm over"
        f" all cells, as magnitudes over the components in std{shown.inside}. {circles}",
        partial(draw_decomposition, replace(shown.layer, cell=corners), sizes, ranking),
        look_for="Each picture shows what one anchor adds to the prediction, and where.",
        score=ranking.energy_share,
        arrays={
            "norms": ranking.norms,
            "points": shown.case.points[cells],
            "contributions": fields,
        },
    )
    return Panel(
        "decomposition",
        "What each anchor contributes",
        [picture],
        note=f"The sum u₀ + Σ δₖ differs from the prediction by at most {ranking.deviation:.1e}"
        " standard deviations. Contributions in the arrays are in physical units; their components"
        f" are {', '.join(context.surrogate.channels)}.",
        arrays={"offset": ranking.offset, "largest": ranking.largest, **_places(ranking.anchors)},
    )


def _places(anchors: np.ndarray | None) -> dict[str, np.ndarray]:
    return {} if anchors is None else {"anchors": anchors}


def draw_decomposition(triangles: Layer, sizes: np.ndarray, ranking: Ranking) -> Figure:
    """Draw magnitudes (A, M) of the largest contributions at all corners' cells, on one scale."""
    chosen = ranking.largest
    height = height_of(triangles.aspect, 2.9, 1.4, 4.0)
    figure, axes, _ = axes_grid(
        len(chosen), COLUMNS, lambda columns, rows: (WIDTH, height * rows + 0.2)
    )
    limits = top_limits(sizes[:, triangles.cell])
    for axis, anchor, values in zip(axes, chosen.tolist(), sizes, strict=True):
        artist = draw_field(axis, triangles, values, limits=limits, cmap=MAGNITUDES)
        mark_anchor(axis, ranking.anchors, anchor, triangles)
        title = f"anchor {anchor}, norm {ranking.norms[anchor]:.3g}"
        axis.set_title(title, fontsize=9, loc="left")
    label = "|contribution| (std)"
    if add_colorbar(figure, artist, figure.axes, label=label, shrink=0.7, pad=0.01) is None:
        figure.supylabel(label, fontsize=9)
    return figure


def component_panel(context: Context) -> Panel | None:
    """Show components of the strongest contributions; None for a model that does not decompose."""
    if not context.surrogate.decomposes:
        return None
    pictures = []
    for shown in context.shown:
        ranking = shown.ranking
        cells, corners = np.unique(shown.layer.cell, return_inverse=True)
        fields = shown.contributions(cells, ranking.largest)
        pictures.append(
            Picture(
                f"component_fields_{shown.slug}.png",
                f"The strongest anchors of case {shown.case.id} ({shown.label}), one in each row:"
                f" the components of what each adds to the prediction{shown.inside}. A column has"
                " one colour scale; parts of several anchors may cancel.",
                partial(
                    draw_component,
                    replace(shown.layer, cell=corners),
                    fields,
                    ranking,
                    context.channels,
                ),
                look_for="Rows with colour in one place only are anchors that act locally.",
                score=ranking.energy_share,
                arrays={
                    f"{shown.slug}_anchors": ranking.largest,
                    f"{shown.slug}_points": shown.case.points[cells],
                    f"{shown.slug}_contributions": fields,
                },
            )
        )
    return Panel(
        "component_fields",
        "What the strongest anchors contribute, by component",
        pictures,
        note=f"Columns of the contributions: {', '.join(context.surrogate.channels)}.",
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
        for axis, anchor, values in zip(axes[:, column], ranking.largest, fields, strict=True):
            field = values[:, column]
            artist = draw_field(axis, triangles, field, limits=limits, cmap=SIGNED)
            mark_anchor(axis, ranking.anchors, anchor, triangles)
        label = channel_label(channel)
        below = axes[:, column].tolist()
        style = {"label": label, "location": "bottom", "pad": 0.005, "aspect": 40}
        if add_colorbar(figure, artist, below, **style) is None:
            axes[0, column].set_title(label, fontsize=9, loc="left")
    for axis, anchor in zip(axes[:, 0], ranking.largest, strict=True):
        axis.set_ylabel(f"anchor {anchor}", fontsize=9)
    return figure


def section_panel(context: Context) -> Panel | None:
    """Show the decoded pressure of the strongest anchors; None in 1D and 2D."""
    if not context.surrogate.decomposes or context.dataset.schema.dimension < 3:
        return None
    shown = context.shown[0]
    points, chosen = shown.case.points.astype(float), shown.ranking.largest
    fields = shown.contributions(np.arange(len(points)), chosen)
    column = shown_channel(context.channels)
    values, label = fields[..., column], channel_label(context.channels[column])
    peaks = points[np.linalg.norm(fields / shown.deviations, axis=-1).argmax(axis=1)]
    sizes, axis = point_spacing(shown.case), thinnest_axis(points)
    try:
        planes = [section(points, sizes, axis, each) for each in positions(points, axis)]
        through = [section(points, sizes, axis, float(peak[axis])) for peak in peaks]
    except ValueError:
        return None  # A cloud too thin to be cut.
    summed = float(np.abs(values.sum(axis=0)).sum()) or 1.0
    picture = Picture(
        "sections.png",
        f"Contributions of the {len(chosen)} strongest anchors to {label} of the first prediction,"
        f" one in each row with its own scale: at three sections across {'xyz'[axis]}, and where"
        " the anchor's whole contribution is largest (cross).",
        partial(draw_section, planes, through, values, peaks, chosen, label),
        look_for="A compact anchor colours few sections, around its peak; one that colours all of"
        " them acts along the whole thickness.",
        score="Taken one by one, these contributions are"
        f" {float(np.abs(values).sum()) / summed:.2g} times as large as their sum",
    )
    arrays = {
        "anchors_shown": chosen,
        "points": points,
        "contributions": values,
        "peaks": peaks,
        "positions": np.array(positions(points, axis)),
    }
    return Panel("sections", "Contributions in three dimensions", [picture], arrays=arrays)


def positions(points: np.ndarray, axis: int) -> list[float]:
    """Return where the sections lie, evenly over the thickness of a cloud, m."""
    low, high = points[:, axis].min(), points[:, axis].max()
    return [float(low + share * (high - low)) for share in (0.25, 0.5, 0.75)]


def draw_section(
    planes: Sequence[Triangles],
    through: Sequence[Triangles],
    values: np.ndarray,
    peaks: np.ndarray,
    anchors: np.ndarray,
    label: str,
) -> Figure:
    """Draw values (A, M) of the strongest anchors, a row each, at planes and through its peak."""
    rows, columns = len(values), len(planes) + 1
    height = height_of(planes[0].aspect, 3.1, 1.2, 3.4)
    figure = Figure(figsize=(WIDTH, height * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, field, own, peak, anchor in zip(grid, values, through, peaks, anchors, strict=True):
        limits = symmetric(field)
        for axis, plane in zip(axes, (*planes, own), strict=True):
            artist = draw_field(axis, plane, field, limits=limits, cmap=SIGNED)
            axis.set_title(plane.plane, fontsize=8, loc="left")
        assert artist is not None  # Planes are never lines.
        axes[-1].plot(*peak[list(own.axes)], "+", ms=9, mew=1.6, color=GOOD_COLOR, clip_on=False)
        axes[-1].set_title(f"{own.plane}, through its peak", fontsize=8, loc="left")
        axes[0].set_ylabel(f"anchor {anchor}", fontsize=10)
        bar = figure.colorbar(artist, ax=axes.tolist(), shrink=0.85, pad=0.01)
        bar.ax.tick_params(labelsize=7)
        bar.set_label(label, fontsize=8)
    return figure


DRAWN_POINTS = 6_000


def maps_panel(context: Context) -> Panel | None:
    """Show maps of three anchors; None for a model without weights."""
    surrogate, shown = context.surrogate, context.shown[0]
    if not surrogate.decomposes or (dominant := context.scores.dominant) is None:
        return None
    scores, plane = context.scores, shown.layer
    chosen = representative_anchors(scores.fields.energies, scores.temporal_variance)
    found = map_anchors(surrogate, shown.case, chosen, shown.start_s)
    plotted = plotted_fields(context.channels)[0]
    predicted = surrogate.predict_case(shown.case, start_s=shown.start_s)
    flow = plotted.of(predicted.reshape(-1, *predicted.shape[-2:]))
    arrays = {**found.arrays(), "flow": flow}
    is_steady = found.times is None
    contiguity = scores.scores.get("contiguity")
    used = f"{len(np.unique(dominant))} of {scores.fields.num_anchors}"
    pictures = [
        Picture(
            "anchor_maps.png",
            f"First row: the prediction{'' if is_steady else ' over the rollout'}. Second: the"
            " domain, coloured by the dominant anchor of each point. Below: the weights of anchors"
            f" {', '.join(map(str, found.chosen))}. "
            + (
                "They are the three strongest."
                if is_steady
                else "Of the stronger half of the anchors these are the two whose fields vary most"
                " in time, and last the one whose field varies least."
            ),
            partial(draw_maps, plane, found, flow, plotted.label),
            look_for="Compare the dark regions of an anchor with the flow above: "
            + (
                "they are where this anchor decides the prediction."
                if is_steady
                else "an anchor whose region moves with the flow follows it."
            ),
            score=f"{used} anchors are dominant somewhere"
            + (
                ""
                if contiguity is None
                else f"; {contiguity:.0%} of the volume is in the largest piece of its region"
            ),
            arrays={name: arrays.pop(name) for name in ("dominant", "weights", "flow")},
        )
    ]
    if found.reading is not None:
        # How few points get half of the attention of an anchor.
        ordered = -np.sort(-found.reading[0], axis=-1)
        halves = (np.cumsum(ordered, axis=-1) < 0.5).sum(axis=-1) + 1
        share = float(np.median(halves)) / found.reading.shape[-1]
        pictures.append(
            Picture(
                "anchor_reading.png",
                "What three anchors (circles) read of the input, at the first and the last level of"
                " the encoder: each input point by its attention, over the mean.",
                partial(draw_reading, found, plane),
                look_for="Dark points are what the anchor reads of the input.",
                score="At the first level half of an anchor's attention goes to"
                f" {share:.1%} of the points",
                arrays={name: arrays.pop(name) for name in ("reading", "read_points")},
            )
        )
    if found.displacements is not None:
        far = float(np.median(found.displacements[-1]))
        pictures.append(
            Picture(
                "anchor_moves.png",
                "Gaussian windows move the anchors from level to level, depending on the flow."
                " Left: their paths. Right: their distance from the start at each level, over the"
                " spacing (box: half of the anchors).",
                partial(draw_moved, found, plane.axes, scores.spacing_m),
                look_for="Long lines are anchors that the flow pulls away from their start.",
                score=f"The last level's median distance is {far:.3g} m,"
                f" {far / scores.spacing_m:.2g} spacings",
                arrays={name: arrays.pop(name) for name in ("places", "moved")},
            )
        )
    return Panel(
        "anchor_maps",
        "Where anchors have weight, and what they read",
        pictures,
        note=f"`courant analyse maps {context.run.url} --anchor 14` writes these arrays for any"
        " anchors of any case.",
        arrays=arrays,
    )


def draw_maps(plane: Layer, found: AnchorMaps, flow: np.ndarray, label: str) -> Figure:
    """Draw flow (T, M), partition and the chosen anchors' weights, a row each, at four steps."""
    steps = np.unique(np.linspace(0, len(found.dominant) - 1, 4).round().astype(int))
    rows = 2 + len(found.chosen)
    height = height_of(plane.aspect, WIDTH / max(2, len(steps)), 1.2, 3.6)
    figure = Figure(figsize=(WIDTH, height * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, len(steps), squeeze=False)
    limits = top_limits(found.weights[steps])
    speeds = spanning(flow[steps][:, np.unique(plane.cell)])
    for column, step in enumerate(steps):
        speed = draw_field(axes[0, column], plane, flow[step], limits=speeds, cmap=VALUES)
        _draw_partition(axes[1, column], plane, found.dominant[step])
        if found.times is not None:
            axes[0, column].set_title(f"t = {found.times[step]:g} s", fontsize=9, loc="left")
        for row, anchor in enumerate(found.chosen, start=2):
            values = found.weights[step, row - 2]
            artist = draw_field(axes[row, column], plane, values, limits=limits, cmap=MAGNITUDES)
            mark_anchor(axes[row, column], found.places, anchor, plane)
    names = ("prediction", "dominant anchor", *(f"anchor {anchor}" for anchor in found.chosen))
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.set_ylabel(name, fontsize=9)
    add_colorbar(figure, speed, axes[0].tolist(), label=label, shrink=0.9, pad=0.01)
    add_colorbar(figure, artist, axes[2:].ravel().tolist(), label="weight", shrink=0.6, pad=0.01)
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
    numbers = (faces * 7 % 20).astype(float)
    axis.tripcolor(shape, facecolors=numbers, cmap=colormaps["tab20"], vmin=-0.5, vmax=19.5)
    axis.set(aspect="equal", xticks=[], yticks=[])
    axis.set(xlim=(shape.x.min(), shape.x.max()), ylim=(shape.y.min(), shape.y.max()))


def draw_reading(found: AnchorMaps, plane: Layer) -> Figure:
    """Draw the input points by the attention of each chosen anchor, at first and last level."""
    assert found.reading is not None
    levels = sorted({0, len(found.reading) - 1})
    points = found.read_points[:, list(plane.axes)]
    height = height_of(float(np.ptp(points[:, 1]) / np.ptp(points[:, 0])), 4.2, 1.3, 3.8)
    figure = Figure(figsize=(WIDTH, height * len(levels) + 0.5), layout="constrained")
    grid = figure.subplots(len(levels), len(found.chosen), squeeze=False)
    stride = -(-len(points) // DRAWN_POINTS)
    for row, level in zip(grid, levels, strict=True):
        for axis, anchor, attention in zip(row, found.chosen, found.reading[level], strict=True):
            # Times N, so that one is what reading everything alike would give.
            times = attention * len(points)
            kept = np.arange(0, len(points), stride)
            kept = kept[np.argsort(times[kept])]
            shade = np.log10(np.maximum(times[kept], 1e-3))
            artist = axis.scatter(
                *points[kept].T, c=shade, s=5, cmap=MAGNITUDES, vmin=-1, vmax=2, lw=0
            )
            axis.set(aspect="equal", xticks=[], yticks=[])
            axis.set_title(f"anchor {anchor}, level {level}", fontsize=9, loc="left")
            mark_anchor(
                axis, found.places if found.moved is None else found.moved[level], anchor, plane
            )
    bar = figure.colorbar(artist, ax=grid.ravel().tolist(), shrink=0.8, pad=0.01)
    bar.set_ticks([-1, 0, 1, 2], labels=["0.1×", "1×", "10×", "100×"])
    bar.set_label("attention, over the mean")
    return figure


def draw_moved(found: AnchorMaps, axes: tuple[int, int], spacing_m: float) -> Figure:
    """Draw the way of each anchor through the levels, and how far each level has moved them."""
    assert found.moved is not None and found.places is not None
    assert found.displacements is not None
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    where, far = figure.subplots(1, 2, width_ratios=(1.6, 1))
    shown = list(axes)
    stride = -(-len(found.points) // DRAWN_POINTS)
    where.plot(*found.points[::stride, shown].T, ".", ms=1.2, **CLOUD)
    for start, way in zip(found.places, found.moved.swapaxes(0, 1), strict=True):
        where.plot(*np.vstack([start, way])[:, shown].T, "-", lw=1, color=MODEL_COLOR)
    where.plot(*found.places[:, shown].T, "o", ms=4, mfc="none", mec=GOOD_COLOR, label="start")
    where.plot(*found.moved[-1][:, shown].T, "o", ms=3, color=MODEL_COLOR, label="last level")
    where.set(aspect="equal", xticks=[], yticks=[])
    where.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    levels = np.arange(len(found.displacements))
    spacings = [each / spacing_m for each in found.displacements]
    far.boxplot(spacings, positions=levels, whis=(5, 95), sym="")
    far.set(xlabel="level", ylabel="distance from the start / spacing", ylim=(0, None))
    far.grid(alpha=0.25)
    far.axhline(1, color=PALETTE[2], lw=0.8, ls=":")
    return figure


def anchor_table_panel(context: Context) -> Panel | None:
    """Show a row for each anchor; None for models that do not decompose."""
    if not context.surrogate.decomposes:
        return None
    found, plane, dynamics = context.scores, context.shown[0].layer, context.dynamics
    fields, errors = found.fields, found.addresses
    # Of each number: its column, its key in the arrays, its values (L,), NaN where an anchor has
    # none, and its format.
    numbers: list[tuple[str, str, np.ndarray | None, str]] = [
        ("share of the energy", "energy", _shares(fields.energies), "{:.1%}"),
        ("90 % of it in", "support", support_fractions(fields), "{:.1%}"),
        ("field is away by (m)", "distance", anchor_distances(fields), "{:.3g}"),
        ("varies in time", "temporal_variance", found.temporal_variance, "{:.1%}"),
        ("frequency (Hz)", "frequency", None if dynamics is None else dynamics.anchor_hz, "{:.3g}"),
    ]
    if errors is not None:
        numbers += [
            ("part of the volume", "weight", errors.governed, "{:.1%}"),
            ("part of the error", "error", _shares(errors.errors), "{:.1%}"),
            (
                "error there, over the mean",
                "error_ratio",
                errors.densities / (errors.total or 1.0),
                "{:.2f}×",
            ),
        ]
    known = [
        (column, key, values, style) for column, key, values, style in numbers if values is not None
    ]
    icons = draw_icons(plane, fields.magnitudes) if isinstance(plane, Triangles) else None
    rows = []
    for anchor in range(fields.num_anchors):
        row: dict[str, str | Cell] = {"anchor": str(anchor)}
        if icons is not None:
            row["its field"] = Cell("", picture=icons[anchor])
        if fields.anchors is not None:
            row["place (m)"] = position(fields.anchors[anchor])
        for column, _, values, style in known:
            row[column] = style.format(values[anchor]) if np.isfinite(values[anchor]) else "–"
        rows.append(row)
    notes = {
        "A click on a column's head sorts the rows by it. Each picture has a colour scale of its"
        " own. 90 % of a field's energy lies in the given part of the volume.": True,
        "A field may lie away from its anchor; here anchors tile the domain at distances of about"
        f" {found.spacing_m:.3g} m.": fields.anchors is not None,
        "A steady field varies by 0 % in the predicted steps, one that swings around zero by"
        " 100 %.": found.temporal_variance is not None,
        "The frequency is that of the anchor's latent in a long rollout; the solution's is"
        f" {dynamics.reference_hz if dynamics else 0:.3g} Hz.": dynamics is not None,
    }
    return Panel(
        "anchor_table",
        "All anchors, one by one",
        tables=[PanelTable(rows, words=("its field", "place (m)"), sortable=True)],
        note=" ".join(text for text, is_shown in notes.items() if is_shown),
        arrays={
            **{key: values for _, key, values, _ in known},
            "centroids": fields.centroids,
            **_places(fields.anchors),
        },
    )


def _shares(values: np.ndarray) -> np.ndarray:
    return values / (float(values.sum()) or 1.0)


def draw_icons(plane: Triangles, magnitudes: np.ndarray) -> list[bytes]:
    """Draw the magnitudes (L, M) of all fields in the plane, each on its own scale."""
    raster = Raster.of(plane, columns=96)
    return [
        small_png(raster.color(each, top_limits(each[plane.cell]), MAGNITUDES))
        for each in magnitudes
    ]


def position(place: np.ndarray) -> str:
    """Format `3.2, -1, 0`; empty where it is not known."""
    if not np.isfinite(place).all():
        return ""
    return ", ".join(f"{round(float(each), 6) + 0.0:.3g}" for each in place)


def anchor_scores_panel(context: Context) -> Panel | None:
    """Show scores, where fields lie, and how few the prediction needs; None without fields."""
    if not context.surrogate.decomposes:
        return None
    found = context.scores
    distance = found.scores.get("anchor_distance")
    left = (
        "Left: the centroids of the fields; these anchors have no positions."
        if found.fields.anchors is None
        else "Left: a line from each anchor to the centroid of its field."
    )
    picture = Picture(
        "anchor_scores.png",
        f"{left} A larger dot has more energy. Middle: the energy in the strongest fields, beside"
        " the controls. Right: the error of a prediction from some of the fields; dotted lines are"
        " for random order.",
        partial(draw_scores, found, context.shown[0].layer.axes),
        look_for="Short lines on the left are fields that lie at their anchors; a steep blue curve"
        " on the right is a prediction that depends on few anchors.",
        score=f"The strongest {TOP} fields have {found.scores['top_share']:.0%} of the energy"
        + (
            ""
            if distance is None
            else f"; the median field is {distance:.2g} spacings from its anchor"
        ),
    )
    rows: list[dict[str, str | Cell]] = [
        {
            "score": each.name,
            "model": Cell.judged(number(value), each.reached(value)),
            **{name: number(of.get(each.key)) for name, of in found.control_scores.items()},
            "range": each.range,
            "good is": each.aim_text,
        }
        for each in SCORES
        if (value := found.scores.get(each.key)) is not None
    ]
    return Panel(
        "anchor_scores",
        "How local, economical and steady the anchors are",
        [picture],
        [PanelTable(rows, words=("score", "range", "good is"))],
        note="Controls divide the same field in other ways: among anchors at random, by nearest"
        " anchor, and by POD (proper orthogonal decomposition) of the case's own snapshots. A score"
        " means little unless it is better than that of the random partition. The numbers are for"
        f" case {found.case}; `courant analyse {context.run.url}` scores all test cases."
        " docs/analysis.md defines every score.",
        arrays={**found.arrays(), "energy_curve": energy_curve(found.fields.energies)},
    )


def draw_scores(found: CaseScores, axes: tuple[int, int]) -> Figure:
    """Draw anchors with their fields' centroids, the energy curve, and the two error curves."""
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    where, energy, errors = figure.subplots(1, 3, width_ratios=(1.3, 1, 1))
    _draw_places(where, found, axes)
    for color, (name, each) in zip(
        PALETTE, {"model": found.fields, **found.controls}.items(), strict=False
    ):
        curve = energy_curve(each.energies)
        energy.plot(np.arange(len(curve)), curve, color=color, label=name)
    energy.set(xlabel="number of the strongest fields", ylabel="share of the energy")
    energy.set(xlim=(0, found.fields.num_anchors), ylim=(0, 1.03))
    energy.grid(alpha=0.25)
    energy.legend(fontsize=8, frameon=False, loc="lower right")
    errors.set(xlabel="number of anchors", ylabel="relative squared error")
    gram = found.fields.gram
    if gram.sum() <= 0:
        return figure
    order, steps = by_energy(gram), np.arange(len(gram) + 1)
    curves = (
        ("with only the strongest", insertion_curve(gram, order), "-", 0),
        ("with only any (mean)", random_deletion(gram)[::-1], ":", 0),
        ("without the strongest", deletion_curve(gram, order), "-", 1),
        ("without any (mean)", random_deletion(gram), ":", 1),
    )
    for name, curve, style, place in curves:
        errors.plot(steps, curve, style, color=PALETTE[place], label=name)
    errors.set(xlim=(0, len(gram)), ylim=(0, None))
    errors.grid(alpha=0.25)
    errors.legend(fontsize=8, frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _draw_places(axis: Axes, found: CaseScores, axes: tuple[int, int]) -> None:
    """Draw a line from each anchor to its field's centroid, with a larger dot for more energy."""
    fields, shown = found.fields, list(axes)
    stride = -(-len(fields.points) // 4000)
    axis.plot(*fields.points[::stride, shown].T, ".", ms=1.5, **CLOUD)
    centres = fields.centroids[:, shown]
    sizes = 8 + 160 * fields.energies / max(float(fields.energies.max()), 1e-300)
    if fields.anchors is not None:
        anchors = fields.anchors[:, shown]
        for ends in np.stack([anchors, centres], axis=1):
            axis.plot(*ends.T, "-", lw=0.7, color="#7a7a7a", zorder=1)
        axis.plot(*anchors.T, "o", ms=4, mfc="none", mec=GOOD_COLOR, label="anchor")
    dots: Style = {"s": sizes, "color": MODEL_COLOR, "alpha": 0.7, "lw": 0, "zorder": 2}
    axis.scatter(*centres.T, label="centroid of its field", **dots)
    low, high = fields.points[:, shown].min(axis=0), fields.points[:, shown].max(axis=0)
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    across, up = ("xyz"[each] for each in shown)
    axis.set(xlabel=f"{across} (m)", ylabel=f"{up} (m)")
    axis.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)


NAMED = 8
"""Anchors that are named, the one with the largest part of the error first"""


def addresses_panel(context: Context) -> Panel | None:
    """Show a map of the error and of its parts by anchor; None for a model without weights."""
    if not context.surrogate.decomposes or (found := context.scores.addresses) is None:
        return None
    shown, scores, total = context.shown[0], context.scores, found.total or 1.0
    assert scores.dominant is not None
    picture = Picture(
        "error_addresses.png",
        f"Left: the error of the first prediction{shown.inside}, with the anchors of the largest"
        " parts of it. Middle: the part of each cell's dominant anchor in the whole error. Right:"
        " how much of the squared error, and of the volume, the worst anchors have.",
        partial(draw_addresses, shown.layer, found, scores.dominant),
        look_for="Dark regions of the middle picture are where most of the error is.",
        score=f"The worst tenth of the anchors has {found.worst_part():.0%} of the squared error",
    )
    worst, anchors = found.worst[:NAMED].tolist(), scores.fields.anchors
    rows = [
        {
            "anchor": str(anchor),
            "part of the error": f"{found.errors[anchor] / total:.1%}",
            "part of the volume": f"{found.governed[anchor]:.1%}",
            "error there, over the mean": f"{found.densities[anchor] / total:.2g}×",
            "where (m)": position(found.centres[anchor]),
            **({} if anchors is None else {"the anchor itself (m)": position(anchors[anchor])}),
        }
        for anchor in worst
    ]
    return Panel(
        "error_addresses",
        "Which anchors the error is attributed to",
        [picture],
        [PanelTable(rows, words=("where (m)", "the anchor itself (m)"))],
        note="The squared error at a point is divided among the anchors by their weights there."
        " The parts sum exactly to the whole, a mean square error of"
        f" {found.total:.3g} in units of the training cases' variance. An anchor with a large error"
        " shows where to look; it need not be the cause.",
        arrays={
            "error_address": found.errors,
            "governed": found.governed,
            "centre": found.centres,
            "squared_error": found.squared,
            "points": shown.case.points,
        },
    )


def draw_addresses(shown: Layer, found: ErrorAddresses, dominant: np.ndarray) -> Figure:
    """Draw the error, the part of each cell's dominant anchor in it, and how concentrated it is."""
    height = height_of(shown.aspect, 4.2, 2.6, 4.6)
    figure = Figure(figsize=(WIDTH, height + 0.3), layout="constrained")
    axes = figure.subplots(1, 3, width_ratios=(1.4, 1.4, 1))
    error, _, curve = axes
    parts = found.errors / (found.total or 1.0)
    maps = {
        "|error| (std)": np.sqrt(found.squared),
        "part of the error at the anchor (%)": 100 * parts[dominant],
    }
    for axis, (label, values) in zip(axes, maps.items(), strict=False):
        limits = top_limits(values[np.unique(shown.cell)])
        artist = draw_field(axis, shown, values, limits=limits, cmap=MAGNITUDES)
        if add_colorbar(figure, artist, axis, label=label, location="bottom", pad=0.02) is None:
            axis.set_ylabel(label)
    box = {"boxstyle": "round,pad=0.15", "fc": "#ffffffc0", "ec": "none"}
    style = {"fontsize": 8, "ha": "center", "va": "center", "color": "#12365c", "bbox": box}
    for anchor in found.worst[:NAMED].tolist():
        centre = found.centres[anchor, list(shown.axes)]
        if np.isfinite(centre).all():
            error.annotate(str(anchor), tuple(centre), **style)
    share = np.linspace(0, 1, len(parts) + 1)
    held = np.concatenate([[0.0], np.cumsum(parts[found.worst])])
    volume = np.concatenate([[0.0], np.cumsum(found.governed[found.worst])])
    curve.plot(share, held, color=MODEL_COLOR, label="of the error")
    curve.plot(share, volume, ":", color="#7a7a7a", label="of the volume")
    curve.set(xlabel="share of the anchors, the worst first", ylabel="part", xlim=(0, 1))
    curve.set_ylim(0, 1.03)
    curve.grid(alpha=0.25)
    curve.legend(frameon=False, fontsize=8, loc="lower right")
    return figure
