"""Figures of predicted fields beside the solver's: states, rollouts, streamlines and surfaces."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
from courant.report.context import (
    ERRORS,
    SIGNED,
    VALUES,
    WIDTH,
    Context,
    Raster,
    height_of,
    plotted_fields,
)
from courant.report.page import (
    Panel,
    Picture,
    channel_label,
    component_name,
    listed,
    reference,
    webp,
)
from simgen.publish.figures import Layer, Triangles, add_colorbar, draw_field, spanning, symmetric

SEEN = {
    "train": "which the model was trained on",
    "validation": "which the weights were chosen by",
    "test": "never seen in training",
}


def prediction_panel(context: Context) -> Panel:
    """Show the last predicted state of a rollout, or the predicted field."""
    evaluation, normaliser = context.evaluation, context.surrogate.normaliser
    known = {
        "geometry": True,
        "boundary conditions": normaliser.has_boundary,
        "design parameters": bool(normaliser.parameters),
        **{component_name(channel.field): True for channel in normaliser.given},
    }
    pictures = []
    for shown in context.shown:
        overall = evaluation.cases[shown.case.id].overall
        best = min(evaluation.references, key=lambda name: overall[name].nmae)
        how = (
            f"predicted from its {listed([name for name, is_known in known.items() if is_known])}"
            if shown.start_s is None
            else f"predicted from the snapshot at t = {shown.start_s:g} s for t = {shown.end_s:g} s"
        )
        where = f" The picture shows {shown.place}." if shown.place else ""
        pictures.append(
            Picture(
                f"prediction_{shown.slug}.png",
                f"Case {shown.case.id} ({shown.label}) of the {evaluation.split} split,"
                f" {SEEN[evaluation.split]}: {how}.{where}",
                partial(
                    draw_prediction, shown.layer, shown.truth, shown.predicted, context.channels
                ),
                look_for="The second column should look like the first; the third shows where it"
                " does not.",
                score=f"NMAE {overall[MODEL].nmae:.3f} in this case; {reference(best)} has"
                f" {overall[best].nmae:.3f}",
                arrays={
                    f"{shown.slug}_points": shown.case.points,
                    f"{shown.slug}_truth": shown.truth,
                    f"{shown.slug}_prediction": shown.predicted,
                },
            )
        )
    return Panel(
        "prediction",
        "Prediction" if context.shown[0].end_s is None else "Prediction at the last rollout step",
        pictures,
        note="Truth is the solver's result. Truth and prediction share a colour scale; the error"
        f" has one of its own. Columns of the arrays: {', '.join(context.surrogate.channels)}.",
    )


def draw_prediction(
    triangles: Layer, truth: np.ndarray | None, predicted: np.ndarray, channels: Sequence[Channel]
) -> Figure:
    """Draw truth, prediction and error (N, C) side by side, or the prediction: by magnitudes."""
    rows, num_columns = plotted_fields(channels), 1 if truth is None else 3
    height = height_of(triangles.aspect, 3.9 if num_columns == 3 else 6.0, 1.5, 5.0)
    size = (WIDTH if num_columns == 3 else 7.0, height * len(rows) + 0.2)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), num_columns, squeeze=False)
    drawn = np.unique(triangles.cell)
    for places, each in zip(axes, rows, strict=True):
        ours = each.of(predicted)
        values = ours if truth is None else each.of(truth)
        error = ours - values
        limits, colours = scale_of(values, drawn)
        shown = [
            ("truth", values, limits, colours),
            ("prediction", ours, limits, colours),
            ("error", error, symmetric(error[drawn]), ERRORS),
        ]
        shown = shown[1:2] if truth is None else shown
        for axis, (title, field, bounds, cmap) in zip(places, shown, strict=True):
            artist = draw_field(axis, triangles, field, limits=bounds, cmap=cmap)
            axis.set_title(f"{title}, {each.label}", fontsize=9, loc="left")
            bar = add_colorbar(figure, artist, axis, shrink=0.85, pad=0.01)
            (axis if bar is None else bar.ax).tick_params(labelsize=7)
    return figure


def scale_of(values: np.ndarray, drawn: np.ndarray) -> tuple[tuple[float, float], str | Colormap]:
    """Choose limits and colours: around zero for both signs without a strong mean."""
    largest = float(np.abs(values).max())
    if values.min() < 0 < values.max() and abs(values.mean()) < 0.3 * largest:
        low, high = symmetric(values[drawn])
        # A component may vanish on the drawn layer, where rounding would fill the whole scale.
        return (min(low, -0.05 * largest), max(high, 0.05 * largest)), SIGNED
    return spanning(values[drawn]), VALUES


MOST_STEPS = 40


def rollout_panel(context: Context) -> Panel | None:
    """Show an animation of the first case; None for steady problems, and what is a line."""
    surrogate, shown, case = context.surrogate, context.shown[0], context.shown[0].case
    plane, start, step_s = shown.layer, surrogate.problem.start(case), surrogate.step_s
    if step_s is None or start is None or case.time is None or not isinstance(plane, Triangles):
        return None
    plotted = plotted_fields(context.channels)[0]
    steps = min(MOST_STEPS, int((case.time[-1] - start) / step_s + 1e-6))
    times = start + step_s * np.arange(1, steps + 1)
    frames = np.abs(case.time[None] - times[:, None]).argmin(axis=1)
    is_there = np.abs(case.time[frames] - times) <= time_tolerance(case.time)
    frames, times = frames[is_there], times[is_there] - start
    stride = int(frames[1] - frames[0]) if len(frames) > 1 else 1
    every = slice(int(frames[0]), int(frames[-1]) + 1, stride)
    truth = read_states(case, context.channels, every)
    predicted = surrogate.predict_case(case, start_s=start, steps=steps)[is_there]
    nmae = []
    for ours, theirs in zip(predicted, truth, strict=True):
        sums = ErrorSums(surrogate.channels)
        sums.add(ours[None], theirs[None])
        nmae.append(sums.total(ALL)["nmae"])
    horizon = surrogate.problem.num_steps
    arrays = {
        "time": times,
        "points": case.points,
        "truth": plotted.of(truth),
        "prediction": plotted.of(predicted),
        "nmae": np.array(nmae),
    }
    animation = Picture(
        "rollout",
        f"Case {case.id} ({shown.label}){shown.inside}, predicted from one state of the solution,"
        f" {step_s:g} s a step; the model was trained on {horizon} steps. Space plays and stops,"
        " the arrow keys step.",
        partial(draw_rollout, plane, arrays["truth"], arrays["prediction"], plotted.label),
        look_for="Watch whether the prediction keeps in step with the solution, and where the error"
        " begins.",
        score=f"NMAE {nmae[0]:.3f} after the first step, {nmae[-1]:.3f} after the last",
        labels=[
            f"step {step} of {len(times)}, after {time:g} s, NMAE {error:.3f}"
            + ("" if step <= horizon else ", beyond the training")
            for step, (time, error) in enumerate(zip(times, nmae, strict=True), 1)
        ],
    )
    return Panel("rollout", "The rollout, step by step", [animation], arrays=arrays)


def draw_rollout(
    plane: Triangles, truth: np.ndarray, predicted: np.ndarray, label: str
) -> list[bytes]:
    """Draw all steps of values (T, N): the axes once, and then nothing but the fields in them."""
    raster = Raster.of(plane, columns=320)
    drawn = np.unique(plane.cell)
    error = predicted - truth
    of_solution = spanning(truth[:, drawn])
    parts = (
        ("solution", truth, of_solution, VALUES),
        ("prediction", predicted, of_solution, VALUES),
        ("error, prediction less solution", error, symmetric(error[:, drawn]), ERRORS),
    )
    # Flat domains are drawn one above the other.
    is_flat = plane.aspect < 0.6
    size = (
        (7.6, 3 * (6.2 * plane.aspect + 0.42))
        if is_flat
        else (11.0, 3.1 * min(plane.aspect, 2.0) + 0.9)
    )
    figure = Figure(figsize=size, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(3, 1) if is_flat else figure.subplots(1, 3)
    images: list[AxesImage] = []
    for axis, (title, values, limits, cmap) in zip(axes, parts, strict=True):
        image = axis.imshow(
            raster.sample(values[0]),
            vmin=limits[0],
            vmax=limits[1],
            cmap=cmap,
            origin="lower",
            extent=(raster.x[0], raster.x[-1], raster.y[0], raster.y[-1]),
            interpolation="bilinear",
            animated=True,
        )
        axis.set(facecolor="#c8c8c8", xticks=[], yticks=[])
        axis.set_title(title, fontsize=9, loc="left")
        beside = "right" if is_flat else "bottom"
        bar = figure.colorbar(image, ax=axis, pad=0.01, location=beside, shrink=0.9)
        bar.ax.tick_params(labelsize=7)
        bar.set_label(label, fontsize=8)
        images.append(image)
    canvas.draw()
    empty = canvas.copy_from_bbox(figure.bbox)
    frames = []
    for step in range(len(truth)):
        canvas.restore_region(empty)
        for axis, image, (_, values, _, _) in zip(axes, images, parts, strict=True):
            image.set_data(raster.sample(values[step]))
            axis.draw_artist(image)
        frames.append(webp(np.asarray(canvas.buffer_rgba())))
    return frames


ACROSS = 120
"""Columns of the regular grid that streamlines are drawn on"""


def streamlines_panel(context: Context) -> Panel | None:
    """Show solution and prediction of the first case; None without two velocities in the plane."""
    shown = context.shown[0]
    plane = shown.layer
    if not isinstance(plane, Triangles):
        return None
    columns = in_plane(context.channels, plane.axes)
    if columns is None or not len(plane.triangulation.get_masked_triangles()):
        return None
    truth, predicted = shown.truth[:, columns], shown.predicted[:, columns]
    raster = Raster.of(plane, ACROSS)
    sampled = {"solution": raster.sample(truth), "prediction": raster.sample(predicted)}
    limits = spanning(np.linalg.norm(truth[plane.cell], axis=1))
    # The angle between the velocities, over points that are not at rest.
    sizes = np.linalg.norm(truth, axis=1) * np.linalg.norm(predicted, axis=1)
    moving = sizes > 1e-4 * sizes.max()
    cosines = np.clip((truth * predicted).sum(axis=1)[moving] / sizes[moving], -1, 1)
    score = "Nothing moves"
    if len(cosines):
        angle = float(np.degrees(np.median(np.arccos(cosines))))
        score = f"The median angle between predicted and true velocity is {angle:.2g}°"
    picture = Picture(
        "streamlines.png",
        f"Streamlines of the case above{shown.inside}, coloured by speed on one scale.",
        partial(_draw_streamlines, plane, raster, sampled, limits),
        look_for="Compare where lines bend, part and close: a vortex that the prediction lacks"
        " shows here before it does in an error.",
        score=score,
    )
    arrays = {f"{name}_velocity": field for name, field in sampled.items()}
    arrays |= {"x": raster.x, "y": raster.y}
    return Panel("streamlines", "Streamlines", [picture], arrays=arrays)


def _draw_streamlines(
    plane: Triangles, raster: Raster, sampled: dict[str, np.ndarray], limits: tuple[float, float]
) -> Figure:
    """Draw the streamlines of vectors (Y, X, 2) on the raster, grey where there is no fluid."""
    figure = Figure(figsize=(WIDTH, height_of(plane.aspect, 6.4, 2.4, 6.4)), layout="constrained")
    axes = figure.subplots(1, 2)
    shape = plane.triangulation
    fluid = tri.Triangulation(shape.x, shape.y, shape.get_masked_triangles())
    lines: LineCollection
    for axis, (title, field) in zip(axes, sampled.items(), strict=True):
        axis.set_facecolor("#c8c8c8")
        white = np.zeros(len(fluid.triangles))
        axis.tripcolor(fluid, facecolors=white, cmap=ListedColormap(["white"]), rasterized=True)
        u, v = np.moveaxis(np.ma.masked_invalid(field), -1, 0)
        drawn = axis.streamplot(
            *(raster.x, raster.y, u, v),
            color=np.ma.sqrt(u**2 + v**2),
            density=1.6,
            linewidth=0.8,
            arrowsize=0.7,
        )
        lines = drawn.lines
        lines.set_clim(*limits)
        axis.set(aspect="equal", xticks=[], yticks=[])
        axis.set(xlim=(raster.x[0], raster.x[-1]), ylim=(raster.y[0], raster.y[-1]))
        axis.set_title(title, fontsize=9, loc="left")
    figure.colorbar(lines, ax=axes.tolist(), label="speed in the plane (m/s)", shrink=0.8, pad=0.01)
    return figure


def in_plane(channels: Sequence[Channel], axes: tuple[int, int]) -> list[int] | None:
    """Return the numbers of the velocity's components along two axes; None where one is missing."""
    numbers = {channel.name: number for number, channel in enumerate(channels)}
    wanted = [f"velocity.{'xyz'[axis]}" for axis in axes]
    return [numbers[name] for name in wanted] if set(wanted) <= set(numbers) else None


def shown_channel(channels: Sequence[Channel]) -> int:
    """Return the number of the pressure, or of the first component where none is modelled."""
    return next((n for n, channel in enumerate(channels) if "pressure" in channel.name), 0)


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
    column = shown_channel(context.channels)
    label = channel_label(context.channels[column])
    values, truth = shown.predicted[cell, column], shown.truth[cell, column]
    dominant = context.scores.dominant if context.surrogate.decomposes else None
    nmae = float(np.abs(values - truth).sum()) / (float(np.abs(truth).sum()) or 1.0)
    pictures = [
        Picture(
            "surface.png",
            "The boundary of the first case above, each face a square of its area, coloured by the"
            f" predicted {label} in the nearest cell"
            + ("." if dominant is None else "; right: by the dominant anchor there."),
            partial(
                draw_surface, tiles, values, None if dominant is None else dominant[cell], label
            ),
            look_for="Look for faces whose colour does not fit their neighbours'.",
            score=f"NMAE {nmae:.3f} on these faces",
            arrays={"points": faces, "values": values},
        )
    ]
    if context.surrogate.decomposes:
        strongest = shown.ranking.largest[:ANCHORS]
        coarse = tiles[::COARSER]
        middles = coarse.mean(axis=1, keepdims=True)
        cells, of = np.unique(cell[::COARSER], return_inverse=True)
        fields = shown.contributions(cells, strongest)[:, of, column]
        larger = middles + np.sqrt(COARSER) * (coarse - middles)
        pictures.append(
            Picture(
                "surface_anchors.png",
                f"What the {len(strongest)} strongest anchors add to {label} on the boundary, each"
                " with a colour scale of its own.",
                partial(_draw_contributions, larger, fields, strongest, label),
                look_for="An anchor that acts locally colours one part of the surface only.",
                score=shown.ranking.energy_share,
                arrays={"anchors_shown": strongest, "contributions": fields},
            )
        )
    return Panel("surface", "On the surface", pictures)


def squares(centres: np.ndarray, normals: np.ndarray, areas: np.ndarray) -> np.ndarray:
    """Return the corners (F, 4, 3) of squares of areas (F,) across unit normals (F, 3)."""
    helper = np.eye(3)[np.abs(normals).argmin(axis=1)]
    first = np.cross(normals, helper)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normals, first)
    half = 0.5 * np.sqrt(areas)[:, None]
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return np.stack([centres + half * (a * first + b * second) for a, b in signs], axis=1)


def _draw_tiles(axis: Axes, tiles: np.ndarray, colors: np.ndarray, is_named: bool = True) -> None:
    """Draw squares (F, 4, 3) in colours (F, 3), with or without names of the axes."""
    assert isinstance(axis, Axes3D)
    normals = np.cross(tiles[:, 1] - tiles[:, 0], tiles[:, 2] - tiles[:, 1])
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    shade = 0.65 + 0.35 * np.abs(normals @ np.array([0.4, -0.5, 0.77]))
    axis.add_collection3d(Poly3DCollection(tiles, facecolors=colors * shade[:, None], lw=0))
    low, high = tiles.min(axis=(0, 1)), tiles.max(axis=(0, 1))
    axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    if is_named:
        axis.set(xlabel="x (m)", ylabel="y (m)", zlabel="z (m)")
        axis.tick_params(labelsize=6)
    else:
        axis.set_axis_off()
    axis.set_box_aspect(np.maximum(high - low, 1e-9), zoom=1.1 if is_named else 1.15)
    axis.view_init(elev=28.0, azim=-55.0)


def draw_surface(
    tiles: np.ndarray, values: np.ndarray, labels: np.ndarray | None, label: str
) -> Figure:
    """Draw values (F,) on squares (F, 4, 3), and labels (F,) beside them."""
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    columns = 1 if labels is None else 2
    norm = Normalize(*spanning(values))
    axis = figure.add_subplot(1, columns, 1, projection="3d")
    _draw_tiles(axis, tiles, colormaps[VALUES](norm(values))[:, :3])
    axis.set_title("prediction", fontsize=9)
    figure.colorbar(ScalarMappable(norm, VALUES), ax=axis, label=label, shrink=0.6, pad=0.12)
    if labels is not None:
        beside = figure.add_subplot(1, columns, 2, projection="3d")
        beside.set_title("dominant anchor", fontsize=9)
        # Neighbouring numbers get colours far apart.
        _draw_tiles(beside, tiles, colormaps["tab20"](labels * 7 % 20)[:, :3])
    return figure


def _draw_contributions(
    tiles: np.ndarray, values: np.ndarray, anchors: np.ndarray, label: str
) -> Figure:
    """Draw values (A, F) of some anchors on squares (F, 4, 3)."""
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    for column, (anchor, field) in enumerate(zip(anchors.tolist(), values, strict=True), start=1):
        axis = figure.add_subplot(1, len(anchors), column, projection="3d")
        norm = Normalize(*symmetric(field))
        _draw_tiles(axis, tiles, SIGNED(norm(field))[:, :3], is_named=False)
        axis.set_title(f"anchor {anchor}", fontsize=9)
        scale = ScalarMappable(norm, SIGNED)
        bar = figure.colorbar(scale, ax=axis, location="bottom", shrink=0.8, pad=0.0)
        bar.set_label(label, fontsize=8)
        bar.ax.tick_params(labelsize=7)
    return figure
