"""Figures of predicted fields beside the solver's: states, rollouts, streamlines and surfaces."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from PIL import Image
from scipy.spatial import cKDTree

from courant.data.normalisation import Channel, Normaliser
from courant.evaluation.metrics import ALL, ErrorSums
from courant.evaluation.record import MODEL
from courant.problems.problem import read_states
from courant.problems.transient import time_tolerance
from courant.report import drawing
from courant.report import page as pages
from courant.report.context import Context, plotted_fields
from courant.report.drawing import FieldMap, Raster, draw_maps
from courant.report.page import Panel, Picture, channel_label, component_name, webp
from simgen.publish.colours import ERRORS, SIGNED, VALUES
from simgen.publish.figures import Layer, Triangles, spanning, symmetric


def prediction_panel(context: Context) -> Panel:
    """Show the last predicted state of a rollout, or the predicted field."""
    evaluation, normaliser = context.evaluation, context.surrogate.normaliser
    known = {
        "geometry": True,
        "boundary conditions": normaliser.has_boundary,
        "design parameters": bool(normaliser.parameters),
        **{component_name(channel.field): True for channel in normaliser.given},
    }
    pictures, arrays = [], dict[str, np.ndarray]()
    for shown in context.shown:
        slug = shown.label.replace(" ", "_")
        overall = evaluation.cases[shown.case.id].overall
        best = min(evaluation.references, key=lambda name: overall[name].nmae)
        given = pages.listed([name for name, is_known in known.items() if is_known])
        how = (
            f"predicted from its {given}"
            if shown.start_s is None
            else f"predicted from the snapshot at t = {shown.start_s:g} s for t = {shown.end_s:g} s"
        )
        pictures.append(
            Picture(
                f"prediction_{slug}.png",
                f"Case {shown.case.id} ({shown.label}) of the {evaluation.split} split, {how}"
                f"{shown.inside}.",
                draw_prediction(shown.layer, shown.truth, shown.predicted, normaliser),
                look_for="The second column should look like the first; the third shows where it"
                " does not.",
                score=f"NMAE {overall[MODEL].nmae:.3f} in this case; {pages.reference(best)} has"
                f" {overall[best].nmae:.3f}",
            )
        )
        arrays[f"{slug}_points"] = shown.case.points
        arrays[f"{slug}_truth"] = shown.truth
        arrays[f"{slug}_prediction"] = shown.predicted
    return Panel(
        "prediction",
        "Prediction" if context.shown[0].end_s is None else "Prediction at the last rollout step",
        pictures,
        note="Truth is the solver's result. Truth and prediction share a colour scale; the error"
        f" has one of its own. Columns of the arrays: {', '.join(context.surrogate.channels)}.",
        arrays=arrays,
    )


@rc_context(rc=drawing.STYLE)
def draw_prediction(
    plane: Layer, truth: np.ndarray | None, predicted: np.ndarray, normaliser: Normaliser
) -> Figure:
    """Draw truth, prediction and error (N, C) side by side, or the prediction: by magnitudes."""
    drawn, rows = np.unique(plane.cell), []
    for each in plotted_fields(normaliser):
        ours = each.of(predicted)
        values = ours if truth is None else each.of(truth)
        limits, cmap = scale_of(values, drawn, each.signed)
        bounds = symmetric((ours - values)[drawn])
        row = [
            FieldMap(plane, values, f"truth, {each.label}", "", limits, cmap),
            FieldMap(plane, ours, f"prediction, {each.label}", "", limits, cmap),
            FieldMap(plane, ours - values, f"error, {each.label}", "", bounds, ERRORS),
        ]
        rows.append(row[1:2] if truth is None else row)
    return draw_maps(rows, "each")


def scale_of(
    values: np.ndarray, drawn: np.ndarray, signed: bool
) -> tuple[tuple[float, float], str | Colormap]:
    """Return limits and colours of values (N,), of which the cells `drawn` are seen."""
    if not signed:
        return spanning(values[drawn]), VALUES
    low, high = symmetric(values[drawn])
    # A component may vanish on the drawn layer, where rounding would fill the whole scale.
    largest = 0.05 * float(np.abs(values).max())
    return (min(low, -largest), max(high, largest)), SIGNED


MOST_STEPS = 40


def rollout_panel(context: Context) -> Panel | None:
    """Show an animation of the first case; None for steady problems, and what is a line."""
    surrogate, shown, case = context.surrogate, context.shown[0], context.shown[0].case
    plane, start, step_s = shown.layer, surrogate.problem.start(case), surrogate.step_s
    if step_s is None or start is None or case.time is None or not isinstance(plane, Triangles):
        return None
    plotted = plotted_fields(context.surrogate.normaliser)[0]
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
        _animate(plane, arrays["truth"], arrays["prediction"], plotted.label),
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


def _animate(plane: Triangles, truth: np.ndarray, predicted: np.ndarray, label: str) -> list[bytes]:
    """Draw all steps of values (T, N): the axes once, and then nothing but the fields in them."""
    drawn, error = np.unique(plane.cell), predicted - truth
    limits, bounds = spanning(truth[:, drawn]), symmetric(error[:, drawn])
    maps = [
        FieldMap(plane, truth[0], "solution", label, limits),
        FieldMap(plane, predicted[0], "prediction", label, limits),
        FieldMap(plane, error[0], "error, prediction less solution", label, bounds, ERRORS),
    ]
    # Flat domains are drawn one above the other.
    is_flat = plane.aspect < 0.6
    figure = draw_maps([[each] for each in maps] if is_flat else [maps], "each")
    canvas, frames = FigureCanvasAgg(figure), []
    fields = [axis.collections[0] for axis in figure.axes[:3]]
    for each in fields:
        each.set_animated(True)
    canvas.draw()
    empty = canvas.copy_from_bbox(figure.bbox)
    for states in zip(truth, predicted, error, strict=True):
        canvas.restore_region(empty)
        for artist, values in zip(fields, states, strict=True):
            artist.set_array(values[plane.cell])
            figure.draw_artist(artist)
        frames.append(webp(Image.fromarray(np.asarray(canvas.buffer_rgba()))))
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
    raster, limits = (Raster.of(plane, ACROSS), spanning(np.linalg.norm(truth[plane.cell], axis=1)))
    # The angle between the velocities, over points that are not at rest.
    sizes = np.linalg.norm(truth, axis=1) * np.linalg.norm(predicted, axis=1)
    moving = sizes > 1e-4 * sizes.max()
    cosines = np.clip((truth * predicted).sum(axis=1)[moving] / sizes[moving], -1, 1)
    score = "Nothing moves"
    if len(cosines):
        angle = float(np.degrees(np.median(np.arccos(cosines))))
        score = f"The median angle between predicted and true velocity is {angle:.2g}°"
    arrays = {"x": raster.x, "y": raster.y}
    height = float(np.clip(0.5 * drawing.WIDTH * plane.aspect + 0.3, 2.4, 6.4))
    figure = Figure(figsize=(drawing.WIDTH, height))
    axes = figure.subplots(1, 2)
    lines: LineCollection
    for axis, (title, field) in zip(
        axes, {"solution": truth, "prediction": predicted}.items(), strict=True
    ):
        u, v = (raster.sample(each) for each in field.T)
        arrays[f"{title}_velocity"] = np.stack([u.filled(np.nan), v.filled(np.nan)], axis=-1)
        speed = np.ma.sqrt(u**2 + v**2)
        lines = axis.streamplot(raster.x, raster.y, u, v, color=speed, linewidth=0.8).lines
        lines.set_clim(*limits)
        # Grey where there is no fluid.
        extent = (raster.x[0], raster.x[-1], raster.y[0], raster.y[-1])
        solid = np.ma.getmaskarray(u).astype(float)
        axis.imshow(solid, "Greys", vmax=4, extent=extent, origin="lower", zorder=0)
        axis.set(aspect="equal", xticks=[], yticks=[], title=title)
    figure.colorbar(lines, ax=axes, label="speed in the plane (m/s)", shrink=0.8, pad=0.01)
    picture = Picture(
        "streamlines.png",
        f"Streamlines of the case above{shown.inside}, coloured by speed on one scale.",
        figure,
        look_for="Compare where lines bend, part and close: a vortex that the prediction lacks"
        " shows here before it does in an error.",
        score=score,
    )
    return Panel("streamlines", "Streamlines", [picture], arrays=arrays)


def in_plane(channels: Sequence[Channel], axes: tuple[int, int]) -> list[int] | None:
    """Return the numbers of the velocity's components along two axes; None where one is missing."""
    numbers = {channel.name: number for number, channel in enumerate(channels)}
    wanted = [f"velocity.{'xyz'[axis]}" for axis in axes]
    return [numbers[name] for name in wanted] if set(wanted) <= set(numbers) else None


def shown_channel(channels: Sequence[Channel]) -> int:
    """Return the number of the pressure, or of the first component where none is modelled."""
    return next((n for n, channel in enumerate(channels) if "pressure" in channel.name), 0)


MAX_FACES = 12_000


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
    nmae = float(np.abs(values - truth).sum()) / (float(np.abs(truth).sum()) or 1.0)
    scale = ScalarMappable(Normalize(*spanning(values)), VALUES)
    drawn = {"prediction": scale.to_rgba(values)}
    dominant = context.scores.dominant if context.surrogate.decomposes else None
    if dominant is not None:
        # Neighbouring numbers get colours far apart.
        drawn["dominant anchor"] = colormaps["tab20"](dominant[cell] * 7 % 20)
    figure = Figure(figsize=(drawing.WIDTH, 4.6))
    axes = figure.subplots(1, len(drawn), squeeze=False, subplot_kw={"projection": "3d"})[0]
    low, high = tiles.min(axis=(0, 1)), tiles.max(axis=(0, 1))
    for axis, (title, colors) in zip(axes, drawn.items(), strict=True):
        axis.add_collection3d(Poly3DCollection(tiles, facecolors=colors, shade=True, lw=0))
        axis.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
        axis.set(xlabel="x (m)", ylabel="y (m)", zlabel="z (m)", title=title)
        axis.tick_params(labelsize=6)
        axis.set_box_aspect(np.maximum(high - low, 1e-9), zoom=1.1)
        axis.view_init(elev=28.0, azim=-55.0)
    figure.colorbar(scale, ax=axes[0], label=label, location="bottom", shrink=0.7, pad=0.05)
    picture = Picture(
        "surface.png",
        "The boundary of the first case above, each face a square of its area, coloured by the"
        f" predicted {label} in the nearest cell"
        + ("." if dominant is None else "; right: by the dominant anchor there."),
        figure,
        look_for="Look for faces whose colour does not fit their neighbours'.",
        score=f"NMAE {nmae:.3f} on these faces",
    )
    arrays = {"points": faces, "values": values}
    return Panel("surface", "On the surface", [picture], arrays=arrays)


def squares(centres: np.ndarray, normals: np.ndarray, areas: np.ndarray) -> np.ndarray:
    """Return the corners (F, 4, 3) of squares of areas (F,) across unit normals (F, 3)."""
    helper = np.eye(3)[np.abs(normals).argmin(axis=1)]
    first = np.cross(normals, helper)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(normals, first)
    half = 0.5 * np.sqrt(areas)[:, None]
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return np.stack([centres + half * (a * first + b * second) for a, b in signs], axis=1)
