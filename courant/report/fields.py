"""Figures of predicted fields beside the solver's: states, rollouts, streamlines and surfaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.tri as tri
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.spatial import cKDTree

from courant.data.normalisation import Channel
from courant.evaluation.metrics import ALL, ErrorSums
from courant.evaluation.record import MODEL
from courant.problems.transient import read_states, time_tolerance
from courant.report.anchors import contributions_at, energy_share, rank, shown_channel
from courant.report.context import Context, Quantity, Shown, quantities
from courant.report.drawing import ERRORS, SIGNED, VALUES, WIDTH, Raster, height_of, place, webp
from courant.report.panel import Animation, Panel, PanelFigure
from courant.report.wording import channel_label, known_parts, listed, of_split, reference
from simgen.publish.field_plots import (
    Layer,
    Triangles,
    add_colorbar,
    draw_field,
    layer,
    spanning,
    symmetric,
)

#: Of the largest value of the whole case: the least that a scale around zero spans.
LEAST_OF_ALL = 0.05


def prediction_panel(context: Context) -> Panel:
    """Show the last predicted state of a rollout, or the predicted field."""
    figures: list[PanelFigure] = []
    arrays: dict[str, np.ndarray] = {}
    for shown in context.shown:
        truth, predicted = context.truth(shown), context.predict(shown)
        triangles = layer(shown.case)
        names = tuple(f"{shown.slug}_{each}" for each in ("points", "truth", "prediction"))
        figures.append(
            PanelFigure(
                f"prediction_{shown.slug}.png",
                draw_prediction(triangles, truth, predicted, context.channels),
                _caption(context, shown, triangles),
                look_for=(
                    "The second column should look like the first; the third shows where it does"
                    " not."
                ),
                score=_prediction_score(context, shown),
                arrays=names,
            )
        )
        arrays |= dict(zip(names, (shown.case.points, truth, predicted), strict=True))
    is_rollout = context.shown[0].end_s is not None
    title = "Prediction at the last rollout step" if is_rollout else "Prediction"
    note = (
        "Truth is the solver's result. Truth and prediction share a colour scale; the error has "
        "one of its own. "
        f"Columns of the arrays: {', '.join(context.surrogate.channels)}."
    )
    return Panel("prediction", title, tuple(figures), note=note, arrays=arrays)


def draw_prediction(
    triangles: Layer, truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Channel]
) -> Figure:
    """Draw truth, prediction and error (N, C) side by side: vectors' magnitudes, then components.

    The error of a magnitude is the difference of the magnitudes.
    """
    rows = quantities(channels)
    height = height_of(triangles.aspect, 3.9, 1.5, 5.0)
    figure = Figure(figsize=(WIDTH, height * len(rows) + 0.2), layout="constrained")
    axes = figure.subplots(len(rows), 3, squeeze=False)
    drawn = np.unique(triangles.cell)
    for places, quantity in zip(axes, rows, strict=True):
        values, ours = quantity.of(truth), quantity.of(predicted)
        error = ours - values
        limits, colours = scale_of(values, drawn)
        shown = (
            ("truth", values, limits, colours),
            ("prediction", ours, limits, colours),
            ("error", error, symmetric(error[drawn]), ERRORS),
        )
        for axis, (title, field, bounds, cmap) in zip(places, shown, strict=True):
            artist = draw_field(axis, triangles, field, limits=bounds, cmap=cmap)
            axis.set_title(f"{title}, {quantity.label}", fontsize=9, loc="left")
            bar = add_colorbar(figure, artist, axis, shrink=0.85, pad=0.01)
            (axis if bar is None else bar.ax).tick_params(labelsize=7)
    return figure


def scale_of(values: np.ndarray, drawn: np.ndarray) -> tuple[tuple[float, float], str | Colormap]:
    """Choose limits and colours: around zero for both signs without a strong mean."""
    both_signs = values.min() < 0 < values.max()
    if both_signs and abs(values.mean()) < 0.3 * np.abs(values).max():
        low, high = symmetric(values[drawn])
        # A component may vanish on the drawn layer, where rounding would fill the whole scale.
        least = LEAST_OF_ALL * float(np.abs(values).max())
        return (min(low, -least), max(high, least)), SIGNED
    return spanning(values[drawn]), VALUES


def _prediction_score(context: Context, shown: Shown) -> str:
    """Compare the case's error with that of the reference that predicts this case best."""
    overall = context.evaluation.cases[shown.case.id].overall
    best = min(context.evaluation.references, key=lambda name: overall[name].nmae)
    return (
        f"NMAE {overall[MODEL].nmae:.3f} in this case; {reference(best)} has"
        f" {overall[best].nmae:.3f}"
    )


def _caption(context: Context, shown: Shown, triangles: Layer) -> str:
    where = place(shown.case, triangles)
    if shown.start_s is None or shown.end_s is None:
        how = f"predicted from its {listed(known_parts(context.surrogate.normaliser))}"
    else:
        how = f"predicted from the snapshot at t = {shown.start_s:g} s for t = {shown.end_s:g} s"
    split = of_split(context.evaluation.split)
    line = f"Case {shown.case.id} ({shown.label}) {split}: {how}"
    return f"{line}. The picture shows {where}." if where else f"{line}."


LIGHT = np.array([0.4, -0.5, 0.77])
VIEW = {"elev": 28.0, "azim": -55.0}


def squares(centres: np.ndarray, normals: np.ndarray, areas: np.ndarray) -> np.ndarray:
    """Return the corners (F, 4, 3) of squares of areas (F,) across unit normals (F, 3)."""
    helper = np.eye(3)[np.abs(normals).argmin(axis=1)]
    first = np.cross(normals, helper)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normals, first)
    half = 0.5 * np.sqrt(areas)[:, None]
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return np.stack([centres + half * (a * first + b * second) for a, b in signs], axis=1)


def draw_tiles(axis: Axes, tiles: np.ndarray, colors: np.ndarray, named: bool = True) -> None:
    """Draw squares (F, 4, 3) in colours (F, 3), with or without names of the axes."""
    assert isinstance(axis, Axes3D)
    normals = np.cross(tiles[:, 1] - tiles[:, 0], tiles[:, 2] - tiles[:, 1])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    shade = 0.65 + 0.35 * np.abs(normals @ LIGHT)
    axis.add_collection3d(Poly3DCollection(tiles, facecolors=colors * shade[:, None], lw=0))
    low, high = tiles.min(axis=(0, 1)), tiles.max(axis=(0, 1))
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    if named:
        axis.set(xlabel="x (m)", ylabel="y (m)", zlabel="z (m)")
        axis.tick_params(labelsize=6)
    else:
        axis.set_axis_off()
    axis.set_box_aspect(np.maximum(high - low, 1e-9), zoom=1.1 if named else 1.15)
    axis.view_init(**VIEW)


MOST_STEPS = 40
COLUMNS = 320
"""Of the grid that a field is sampled on"""
FLAT = 0.6
"""Domains of a lower aspect (height over width) are drawn one above the other"""


@dataclass(frozen=True)
class Rollout:
    """Solution and prediction of one quantity at T steps, on M cells."""

    times: np.ndarray
    """(T,) s from the start"""
    truth: np.ndarray
    """(T, M)"""
    predicted: np.ndarray
    """(T, M)"""
    nmae: np.ndarray
    """(T,) of all components"""


def rollout_panel(context: Context) -> Panel | None:
    """Show an animation; None for steady problems, and for what is drawn as a line."""
    surrogate, shown = context.surrogate, context.shown[0]
    plane = layer(shown.case)
    if surrogate.step_s is None or shown.case.time is None or not isinstance(plane, Triangles):
        return None
    quantity = quantities(context.channels)[0]
    found = follow(context, quantity)
    frames = draw_rollout(plane, found, quantity)
    horizon = surrogate.problem.num_steps
    labels = tuple(
        f"step {step} of {len(found.times)}, after {time:g} s, NMAE {nmae:.3f}"
        + ("" if step <= horizon else ", beyond the training")
        for step, (time, nmae) in enumerate(zip(found.times, found.nmae, strict=True), 1)
    )
    where = place(shown.case, plane)
    animation = Animation(
        "rollout",
        frames,
        labels,
        look_for=(
            "Watch whether the prediction keeps in step with the solution, and where the error"
            " begins."
        ),
        score=f"NMAE {found.nmae[0]:.3f} after the first step, {found.nmae[-1]:.3f} after the last",
        caption=(
            f"Case {shown.case.id} ({shown.label}){f', in {where}' if where else ''}, predicted"
            f" from one state of the solution, {surrogate.step_s:g} s a step; the model was trained"
            f" on {horizon} steps. Solution and prediction share a colour scale, which is the same"
            " for all steps. Space plays and stops, the arrow keys step."
        ),
    )
    return Panel(
        "rollout",
        "The rollout, step by step",
        animations=(animation,),
        arrays={
            "time": found.times,
            "points": shown.case.points,
            "truth": found.truth,
            "prediction": found.predicted,
            "nmae": found.nmae,
        },
    )


def follow(context: Context, quantity: Quantity) -> Rollout:
    """Predict the first shown case from where training windows begin, to its end at most."""
    surrogate, case = context.surrogate, context.shown[0].case
    start, step_s = surrogate.problem.start(case), surrogate.step_s
    assert start is not None and step_s is not None and case.time is not None
    steps = min(MOST_STEPS, int((case.time[-1] - start) / step_s + 1e-6))
    times = start + step_s * np.arange(1, steps + 1)
    frames = np.abs(case.time[None] - times[:, None]).argmin(axis=1)
    is_there = np.abs(case.time[frames] - times) <= time_tolerance(case.time)
    frames, times = frames[is_there], times[is_there]
    stride = int(frames[1] - frames[0]) if len(frames) > 1 else 1
    every = slice(int(frames[0]), int(frames[-1]) + 1, stride)
    truth = read_states(case, context.channels, every)
    predicted = surrogate.predict_case(case, start_s=start, steps=steps)[is_there]
    errors = []
    for ours, theirs in zip(predicted, truth, strict=True):
        sums = ErrorSums(surrogate.channels)
        sums.add(ours[None], theirs[None])
        errors.append(sums.total(ALL)["nmae"])
    return Rollout(times - start, quantity.of(truth), quantity.of(predicted), np.array(errors))


def draw_rollout(plane: Triangles, found: Rollout, quantity: Quantity) -> tuple[bytes, ...]:
    """Draw all steps: the axes once, and then nothing but the fields in them."""
    raster = Raster.of(plane, COLUMNS)
    drawn = np.unique(plane.cell)
    error = found.predicted - found.truth
    scales = (
        (found.truth, spanning(found.truth[:, drawn]), VALUES),
        (found.predicted, spanning(found.truth[:, drawn]), VALUES),
        (error, symmetric(error[:, drawn]), ERRORS),
    )
    titles = ("solution", "prediction", "error, prediction less solution")
    flat = plane.aspect < FLAT
    figure = (
        Figure(figsize=(7.6, 3 * (6.2 * plane.aspect + 0.42)), layout="constrained")
        if flat
        else Figure(figsize=(11.0, 3.1 * min(plane.aspect, 2.0) + 0.9), layout="constrained")
    )
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(3, 1) if flat else figure.subplots(1, 3)
    images: list[AxesImage] = []
    for axis, title, (values, limits, cmap) in zip(axes, titles, scales, strict=True):
        extent = (raster.x[0], raster.x[-1], raster.y[0], raster.y[-1])
        image = axis.imshow(
            raster.sample(values[0]),
            vmin=limits[0],
            vmax=limits[1],
            cmap=cmap,
            origin="lower",
            extent=extent,
            interpolation="bilinear",
            animated=True,
        )
        axis.set(facecolor="#c8c8c8", xticks=[], yticks=[])
        axis.set_title(title, fontsize=9, loc="left")
        bar = figure.colorbar(
            image, ax=axis, pad=0.01, location="right" if flat else "bottom", shrink=0.9
        )
        bar.ax.tick_params(labelsize=7)
        bar.set_label(quantity.label, fontsize=8)
        images.append(image)
    canvas.draw()
    empty = canvas.copy_from_bbox(figure.bbox)
    frames = []
    for step in range(len(found.times)):
        canvas.restore_region(empty)
        for axis, image, (values, _, _) in zip(axes, images, scales, strict=True):
            image.set_data(raster.sample(values[step]))
            axis.draw_artist(image)
        frames.append(webp(np.asarray(canvas.buffer_rgba())))
    return tuple(frames)


ACROSS = 120
"""Columns of the regular grid that streamlines are drawn on"""
VELOCITY = "velocity"


def streamlines_panel(context: Context) -> Panel | None:
    """Show solution and prediction of the first case; None without two velocities in the plane."""
    shown = context.shown[0]
    plane = layer(shown.case)
    if not isinstance(plane, Triangles):
        return None
    channels = in_plane(context.channels, plane.axes)
    if channels is None or not len(plane.triangulation.get_masked_triangles()):
        return None
    figure = Figure(figsize=(WIDTH, height_of(plane.aspect, 6.4, 2.4, 6.4)), layout="constrained")
    axes = figure.subplots(1, 2)
    fields = [each[:, channels] for each in (context.truth(shown), context.predict(shown))]
    speeds = np.linalg.norm(fields[0][plane.cell], axis=1)
    raster, arrays = Raster.of(plane, ACROSS), dict[str, np.ndarray]()
    for axis, title, field in zip(axes, ("solution", "prediction"), fields, strict=True):
        sampled = raster.sample(field)
        _mark_bodies(axis, plane)
        lines = draw_streamlines(axis, raster.x, raster.y, sampled, spanning(speeds))
        axis.set_title(title, fontsize=9, loc="left")
        arrays |= {f"{title}_velocity": sampled}
    figure.colorbar(lines, ax=axes.tolist(), label="speed in the plane (m/s)", shrink=0.8, pad=0.01)
    where = place(shown.case, plane)
    caption = (
        f"Streamlines{f' in {where}' if where else ''} of the case above, coloured by speed on one"
        " scale."
    )
    return Panel(
        "streamlines",
        "Streamlines",
        (
            PanelFigure(
                "streamlines.png",
                figure,
                caption,
                look_for=(
                    "Compare where lines bend, part and close: a vortex that the prediction lacks"
                    " shows here before it does in an error."
                ),
                score=_streamlines_score(*fields),
            ),
        ),
        arrays={**arrays, "x": raster.x, "y": raster.y},
    )


def _streamlines_score(truth: np.ndarray, predicted: np.ndarray) -> str:
    """Return the median angle between velocities (N, 2), over points that are not at rest."""
    sizes = np.linalg.norm(truth, axis=1) * np.linalg.norm(predicted, axis=1)
    moving = sizes > 1e-4 * sizes.max()
    cosines = (truth * predicted).sum(axis=1)[moving] / sizes[moving]
    if not len(cosines):
        return "Nothing moves"
    angle = float(np.degrees(np.median(np.arccos(np.clip(cosines, -1, 1)))))
    return f"The median angle between predicted and true velocity is {angle:.2g}°"


def in_plane(channels: Sequence[Channel], axes: tuple[int, int]) -> list[int] | None:
    """Return the numbers of the velocity's components along two axes; None where one is missing."""
    numbers = {channel.name: number for number, channel in enumerate(channels)}
    wanted = [f"{VELOCITY}.{'xyz'[axis]}" for axis in axes]
    return [numbers[name] for name in wanted] if set(wanted) <= set(numbers) else None


def _mark_bodies(axis: Axes, plane: Triangles) -> None:
    """Draw in grey where there is no fluid."""
    axis.set_facecolor("#c8c8c8")
    shape = plane.triangulation
    fluid = np.zeros(len(shape.get_masked_triangles()))
    visible = tri.Triangulation(shape.x, shape.y, shape.get_masked_triangles())
    axis.tripcolor(visible, facecolors=fluid, cmap=ListedColormap(["white"]), rasterized=True)


def draw_streamlines(
    axis: Axes, x: np.ndarray, y: np.ndarray, sampled: np.ndarray, limits: tuple[float, float]
) -> LineCollection:
    """Draw streamlines of vectors (Y, X, 2) on a grid, and return them for a colour bar."""
    masked = np.ma.masked_invalid(sampled)
    speed = np.ma.sqrt((masked**2).sum(axis=-1))
    found = axis.streamplot(
        x, y, masked[..., 0], masked[..., 1], color=speed, density=1.6, linewidth=0.8, arrowsize=0.7
    )
    found.lines.set_clim(*limits)
    axis.set(aspect="equal", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]), xticks=[], yticks=[])
    return found.lines


MAX_FACES = 12_000
ANCHORS = 4
"""Whose contributions are drawn, on a quarter of the faces"""
COARSER = 4


def surface_panel(context: Context) -> Panel | None:
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
    figure = draw_surface(tiles, values, None if dominant is None else dominant[cell], label)
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
                score=_surface_score(context.truth(shown)[cell, number], values),
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


def _surface_score(truth: np.ndarray, predicted: np.ndarray) -> str:
    total = float(np.abs(truth).sum()) or 1.0
    return f"NMAE {float(np.abs(predicted - truth).sum()) / total:.3f} on these faces"


def draw_surface(
    tiles: np.ndarray, values: np.ndarray, labels: np.ndarray | None, label: str
) -> Figure:
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
