"""Figures of predicted fields beside the solver's: states, rollouts, streamlines and surfaces."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from PIL import Image

from courant.data.normalisation import Channel
from courant.evaluation.metrics import ALL, ErrorSums
from courant.report import drawing
from courant.report import page as pages
from courant.report.context import Context, PlottedField, in_plane
from courant.report.page import Panel, Picture, channel_label, webp
from simgen.cell_mesh import CellMesh
from simgen.point_cloud import point_tree
from simgen.publish import figures
from simgen.publish.colours import ERRORS, SIGNED, VALUES
from simgen.publish.figures import Layer, Raster, Triangles, draw_field, spanning, symmetric


def prediction_panel(context: Context) -> Panel:
    """Show the last predicted state of a rollout, or the predicted field."""
    evaluation, plotted = context.evaluation, context.plotted
    pictures, arrays = list[Picture](), dict[str, np.ndarray]()
    # The lead picture has the first case's magnitude already; of the worst, magnitudes are enough.
    first, sizes = plotted[len(plotted) > 1 :], [each for each in plotted if len(each.vector) < 2]
    for shown, drawn in zip(context.shown, (first, sizes, sizes), strict=False):
        slug = shown.label.replace(" ", "_")
        overall, own = evaluation.unseen[shown.case.id].overall, context.by
        best = min(overall.keys() - {own}, key=lambda name: overall[name].nmae, default="")
        others = f"; {pages.called(best)} has {overall[best].nmae:.3f}" if best else ""
        how, score = "", f"NMAE of {pages.called(own)} {shown.nmae:.3f} in this case{others}"
        if shown.start_s is not None:
            how = f", from the snapshot at t = {shown.start_s:g} s for t = {shown.end_s:g} s"
            score = f"NMAE {shown.nmae:.3f} at this time"
            score += f"; over all windows of the case {overall[own].nmae:.3f}{others}"
        pictures.append(
            Picture(
                f"prediction_{slug}.png",
                f"Case {shown.case.id} ({shown.label}) of the"
                f" {evaluation.split_of(shown.case.id)} split{how}{shown.inside}.",
                draw_prediction(shown.layer, shown.truth, shown.predicted, drawn, shown.by),
                panes=True,
                look_for=f"Both should be alike{'; these are not' * (shown.label == 'far off')}.",
                score=score,
            )
        )
        arrays[f"{slug}_points"] = shown.case.points
        arrays[f"{slug}_truth"] = shown.truth
        arrays[f"{slug}_prediction"] = shown.predicted
    shown, across = context.shown[0], 3 - sum(context.shown[0].layer.axes)
    for each in plotted if context.dataset.schema.dimension == 3 else ():
        if each.is_seen(shown.truth, shown.layer.drawn) or not isinstance(shown.layer, Triangles):
            continue
        column = context.channels[each.columns[0]].name
        beside = shown.layer.position + 0.25 * float(np.ptp(shown.case.points[:, across]))
        plane = figures.section(replace(shown.case.cloud({}), mesh=shown.case.mesh), across, beside)
        pictures.append(
            Picture(
                f"prediction_{column}.png",
                f"Case {shown.case.id}, in the layer of cells at {plane.plane}: in that of the"
                f" pictures above {pages.component_name(column)} is zero, by symmetry.",
                draw_prediction(plane, shown.truth, shown.predicted, [each], shown.by),
                panes=True,
                look_for="The prediction should look like the solution here, too.",
                score=f"NMAE {evaluation.by_component[context.by][column].nmae:.3f} over all cases",
            )
        )
    return Panel(
        "prediction",
        "Prediction"
        + f" after {pages.count(evaluation.num_steps, 'step')}" * bool(evaluation.step_s),
        pictures,
        note=f"Solution and prediction share a colour scale. {ERROR_NOTE} Columns of the arrays:"
        f" {', '.join(context.surrogate.channels)}.",
        arrays=arrays,
    )


@rc_context(rc=drawing.STYLE)
def draw_prediction(
    plane: Layer,
    truth: np.ndarray | None,
    predicted: np.ndarray,
    plotted: Sequence[PlottedField],
    by: str = "prediction",
    lead: bool = False,
) -> Figure:
    """Draw truth, prediction and error (N, C) side by side, or the prediction, by field.

    Of states (T, N, C) the first is drawn, on the scale of all. `by` names a reference that
    predicts in place of the model. `lead` is a page's first picture.
    """
    drawn, rows, state = plane.drawn, [], predicted if truth is None else truth
    columns = 1 if plane.aspect < (WIDE if lead else drawing.FLAT) else 3
    width = (10.2 if columns > 1 else 5.4) if lead else 11.0 if columns > 1 else 7.2
    for each in plotted:
        ours, values = each.of(predicted), each.of(state)
        if plotted[1:] and not each.is_seen(state, drawn):
            continue
        limits, cmap = scale_of(each, state, drawn)
        error, first = ours - values, 0 if values.ndim > 1 else ...
        bounds = symmetric(error[..., drawn])
        row = [
            drawing.FieldMap(plane, values[first], f"solution, {each.label}", "", limits, cmap),
            drawing.FieldMap(plane, ours[first], f"{by}, {each.label}", "", limits, cmap),
            drawing.FieldMap(plane, error[first], f"error, {each.label}", "", bounds, ERRORS),
        ]
        row = row[1:2] if truth is None else row
        rows += [row[at : at + columns] for at in range(0, len(row), columns)]
    figure = drawing.draw_maps(rows, "each", width, ticks=True)
    figure.set_dpi(drawing.PANE_DPI)
    return figure


def scale_of(
    plotted: PlottedField, values: np.ndarray, drawn: np.ndarray
) -> tuple[tuple[float, float], str | Colormap]:
    """Return limits and colours of values (..., N, C), of which the cells `drawn` are seen."""
    seen = plotted.of(values)[..., drawn]
    if not plotted.signed:
        return spanning(seen), VALUES
    (low, high), least = symmetric(seen), plotted.least(values)
    return (min(low, -least), max(high, least)), SIGNED


def rollout_panel(context: Context) -> Panel | None:
    """Show an animation of the first case; None for steady problems, and what is a line."""
    surrogate, shown, rollout = context.surrogate, context.shown[0], context.rollout
    plane, case, step_s = shown.layer, shown.case, surrogate.step_s
    if rollout is None or not isinstance(plane, Triangles):
        return None
    plotted = context.plotted[0]
    times, truth, predicted = rollout.times, rollout.truth, rollout.predicted
    sums = ErrorSums(surrogate.channels)
    sums.add(predicted, truth)
    nmae = sums.by_step("nmae")[ALL]
    horizon, began = surrogate.problem.num_steps, surrogate.problem.start(case) or 0.0
    arrays = {
        "time": times,
        "points": case.points,
        "truth": plotted.of(truth),
        "prediction": plotted.of(predicted),
        "nmae": np.array(nmae),
    }
    by, how = context.better[0], f"predicted from its state at {began:g} s, {step_s:g} s a step"
    how = f"regressed on the design by {by}" if by else f"{how}; trained on {horizon} steps"
    opens_at = len(times) - 1 if by else min(horizon, len(times)) - 1
    animation = Picture(
        "rollout",
        f"Case {case.id} ({shown.label}){shown.inside}, {how}."
        f" {ERROR_NOTE} Space plays and stops, the arrow keys step.",
        _animate(plane, plotted, truth, predicted, shown.by),
        look_for="The prediction should keep in step with the solution.",
        score=f"NMAE of {pages.called(context.by)} {nmae[opens_at]:.3f} after"
        f" {pages.count(opens_at + 1, 'step')}",
        columns=1 if plane.aspect < WIDE else 3,
        opens_at=opens_at,
        mark="end of the training" * (opens_at < len(times) - 1),
        labels=[
            f"t = {began + time:g} s, step {step} of {len(times)}, NMAE {error:.3f}"
            + ("" if step <= horizon or by else ", beyond the training")
            for step, (time, error) in enumerate(zip(times, nmae, strict=True), 1)
        ],
    )
    return Panel("rollout", "The rollout, step by step", [animation], arrays=arrays)


def still_panel(context: Context) -> Panel:
    """Show solution, prediction and error of the first case."""
    shown, plotted, plane = context.shown[0], context.plotted[0], context.shown[0].layer
    picture = Picture(
        "lead.png",
        f"Case {shown.case.id} ({shown.label} of the {context.evaluation.split} split)"
        f"{shown.inside}. {ERROR_NOTE}",
        draw_prediction(plane, shown.truth, shown.predicted, [plotted], shown.by, lead=True),
        panes=True,
        look_for="Prediction and solution should look alike.",
        score=f"NMAE of {pages.called(context.by)} {shown.nmae:.3f} in this case",
    )
    return Panel("lead", "", [picture])


ERROR_NOTE = "Errors are prediction less solution, on a scale that leaves out the largest 0.5 %."
WIDE = 0.45
"""Height over width, below which the first pictures are one above the other, beside the words"""


def _animate(
    plane: Triangles, plotted: PlottedField, truth: np.ndarray, predicted: np.ndarray, by: str
) -> list[list[bytes]]:
    """Draw all steps of values (T, N, C): the axes once, and then only the fields in them."""
    figure = draw_prediction(plane, truth, predicted, [plotted], by, lead=True)
    truth, predicted = plotted.of(truth), plotted.of(predicted)
    error = predicted - truth
    canvas, frames = FigureCanvasAgg(figure), []
    fields = [(axis.images or axis.collections)[0] for axis in figure.axes[:3]]
    for each in fields:
        each.set_animated(True)
    canvas.draw()
    empty = canvas.copy_from_bbox(figure.bbox)
    for states in zip(truth, predicted, error, strict=True):
        canvas.restore_region(empty)
        for artist, values in zip(fields, states, strict=True):
            drawn = plane.pixels.image(values) if plane.pixels else values[plane.cell]
            artist.set_array(drawn)
            figure.draw_artist(artist)
        image = Image.fromarray(np.asarray(canvas.buffer_rgba()))
        frames.append([webp(each) for each in drawing.cut_panes(figure, image)])
    return frames


ACROSS = 160  # Columns of the regular grid that streamlines are drawn on


def streamlines_panel(context: Context) -> Panel | None:
    """Show solution and prediction of the first case; None without two velocities in the plane."""
    shown = context.shown[0]
    plane = shown.layer
    if not isinstance(plane, Triangles):
        return None
    columns = in_plane(context.channels, plane.axes)
    if columns is None or plane.pixels is None or not plane.pixels.inside.any():
        return None
    truth, predicted = shown.truth[:, columns], shown.predicted[:, columns]
    raster, limits = plane.raster(ACROSS), spanning(np.linalg.norm(truth[plane.drawn], axis=1))
    # The angle between the velocities, over points that are not at rest.
    sizes = np.linalg.norm(truth, axis=1) * np.linalg.norm(predicted, axis=1)
    moving = sizes > 1e-4 * sizes.max()
    cosines = np.clip((truth * predicted).sum(axis=1)[moving] / sizes[moving], -1, 1)
    score = "Nothing moves"
    if len(cosines):
        angle = float(np.degrees(np.median(np.arccos(cosines))))
        size = f"{angle:.2g}°" if angle >= 1 else "below 1°"
        score = f"The median angle between predicted and true velocity is {size}"
    arrays = {"x": raster.x, "y": raster.y}
    wide = plane.aspect < 0.6
    height = min(0.9 * drawing.WIDTH / (2 if wide else 4) * plane.aspect + 0.4, 6.0)
    figure = Figure(figsize=(drawing.WIDTH, 2 * height if wide else height))
    axes, turning = figure.subplots(*((2, 2) if wide else (1, 4)), squeeze=False).reshape(2, 2)
    extent = (*plane.box[:, 0], *plane.box[:, 1])
    spins = [vorticity(plane, of) for of in (truth, predicted)]
    figure.set_dpi(drawing.PANE_DPI)
    beside = (1.015, 0, 0.025, 1)
    for axis, (title, field) in zip(
        axes, {"solution": truth, shown.by: predicted}.items(), strict=True
    ):
        u, v = (raster.image(each) for each in field.T)
        arrays[f"{title}_velocity"] = np.stack([u, v], axis=-1)
        lines = draw_streamlines(axis, raster, np.stack([u, v]), limits, plane.stretch)
        figure.colorbar(lines, cax=axis.inset_axes(beside), label="speed (m/s)")
        at, size = slice(ACROSS // 24, None, ACROSS // 12), np.hypot(u, v)
        heads: drawing.Style = {"angles": "xy", "color": "#444444", "scale": 60, "width": 2e-3}
        heads |= {"headwidth": 7, "headlength": 8, "headaxislength": 7, "minlength": 0}
        ways = ((of / size)[at, at] for of in (u, v))
        axis.quiver(raster.x[at], raster.y[at], *ways, **heads)
        # Grey where there is no fluid.
        solid = np.where(plane.pixels.inside, np.nan, 1.0)
        axis.imshow(solid, "Greys", vmin=0, vmax=4, extent=extent, origin="lower", zorder=0)
        axis.set(aspect=plane.stretch, title=title)
        drawing.mark_metres(axis, plane.aspect)
    bounds, across = symmetric(spins[0][plane.drawn]), "xyz"[3 - sum(plane.axes)]
    for axis, title, spin in zip(turning, ("solution", shown.by), spins, strict=True):
        drawn = draw_field(axis, plane, spin, limits=bounds, cmap=SIGNED)
        assert drawn is not None
        figure.colorbar(drawn, cax=axis.inset_axes(beside), label="1/s")
        axis.set(title=f"{title}, vorticity {across}", facecolor=drawing.NO_FLUID)
        drawing.mark_metres(axis, plane.aspect)
        arrays[f"{title}_vorticity"] = spin
    picture = Picture(
        "streamlines.png",
        f"Streamlines of case {shown.case.id}{shown.inside}, and the vorticity across the plane,"
        " from differences between neighbouring cells, without those to a wall.",
        figure,
        panes=True,
        look_for="Compare where lines bend, part and close: a vortex that the prediction lacks"
        " shows here before it does in an error.",
        score=score,
    )
    return Panel("streamlines", "Streamlines and vorticity", [picture], arrays=arrays)


HOLE, MOST_LINES = 0.025, 100  # radius of a hole that is left, over the root of the fluid's area


def draw_streamlines(
    axis: Axes, raster: Raster, ways: np.ndarray, limits: tuple[float, float], stretch: float
) -> ScalarMappable:
    """Draw lines along ways (2, R, C), each from the middle of the largest hole that is left."""
    (u, v), sizes, scale = ways, np.nan_to_num(np.hypot(*ways)), np.array([1, stretch])
    inner = (raster.inside & (sizes > 0))[1:-1, 1:-1]
    places = np.stack(np.meshgrid(raster.x[1:-1], raster.y[1:-1]), axis=-1)[inner]
    area = float(np.ptp(raster.x) * np.ptp(raster.y)) * stretch * raster.inside.mean()
    style: drawing.Style = {"color": sizes, "linewidth": 0.8, "norm": Normalize(*limits)}
    style |= {"broken_streamlines": False, "minlength": 0.02, "maxlength": 4, "arrowsize": 1e-3}
    holes = np.full(len(places), np.inf)
    for _ in range(MOST_LINES):
        if not len(places) or holes.max() < HOLE * np.sqrt(area):
            break
        start = places[[holes.argmax()]]
        lines = axis.streamplot(raster.x, raster.y, u, v, start_points=start, **style).lines
        drawn = np.concatenate([start, *lines.get_segments()])
        holes = np.minimum(holes, point_tree(drawn * scale).query(places * scale)[0])
    return ScalarMappable(style["norm"])


def vorticity(plane: Triangles, velocity: np.ndarray) -> np.ndarray:
    """Return the vorticity (N,) across a plane, of velocities (N, 2) to the right and up.

    It is dv/dx - du/dy, the mean around a cell, and in a plane of x and z its negative. Triangles
    count by their area; at the boundary, where two corners have one cell's value, none does.
    """
    shape = plane.triangulation
    corners = shape.get_masked_triangles()
    cells = plane.cell[corners]
    corners, cells = (of[(cells != np.roll(cells, 1, 1)).all(axis=1)] for of in (corners, cells))
    places = np.stack([shape.x, shape.y], axis=1)[corners]
    (x, y), (u, v) = (np.diff(of, axis=1).transpose(2, 1, 0) for of in (places, velocity[cells]))
    # Of twice the area: with it the mean is weighted.
    turn = v[0] * y[1] - v[1] * y[0] - (x[0] * u[1] - x[1] * u[0])
    area = x[0] * y[1] - x[1] * y[0]
    weighted, weight = (
        np.bincount(cells.ravel(), np.repeat(of * np.sign(area), 3), len(velocity))
        for of in (turn, area)
    )
    sign = -1 if plane.axes == (0, 2) else 1
    return sign * weighted / np.where(weight > 0, weight, np.inf)


def shown_channel(channels: Sequence[Channel]) -> int:
    """Return the number of the pressure, or of the first component where none is modelled."""
    return next((n for n, channel in enumerate(channels) if "pressure" in channel.name), 0)


def surface_panel(context: Context) -> Panel | None:
    """Show the boundary of the first case; None in 1D and 2D, and without its faces' corners."""
    schema, shown = context.dataset.schema, context.shown[0]
    case = shown.case
    if schema.dimension < 3 or not schema.boundary or case.mesh is None:
        return None
    # As with its lid off: of a pump the blades are seen, of a duct its inside.
    normals = case.boundary.normals @ VIEW.T
    seen = np.flatnonzero(normals[:, 2] < 0)
    tiles, numbers = faces_of(case.mesh, case.num_points, seen)
    cell = point_tree(case.points).query(case.boundary.points[numbers])[1]
    column = shown_channel(context.channels)
    label = channel_label(context.channels[column])
    states = shown.truth[cell], shown.predicted[cell]
    truth, values = (of[:, column] for of in states)
    nmae = float(np.abs(values - truth).sum()) / (float(np.abs(truth).sum()) or 1.0)
    plotted = context.plotted[column - len(context.channels)]
    limits, colours = scale_of(plotted, states[0], np.arange(len(cell)))
    bounds = symmetric(values - truth)
    maps = {
        f"solution, {label}": (truth, limits, colours),
        f"{shown.by}, {label}": (values, limits, colours),
        f"error, {label}": (values - truth, bounds, ERRORS),
    }
    flat = [tile @ VIEW.T for tile in tiles]
    order = np.argsort([tile[:, 2].mean() for tile in flat])
    # Faces that are turned away from the light are darker.
    shade = (0.65 + 0.35 * np.abs(normals[numbers, 2]))[:, None] ** np.array([1, 1, 1, 0])
    figure = Figure(figsize=(drawing.WIDTH, 4.6))
    for axis, (title, (of, (low, high), cmap)) in zip(
        figure.subplots(1, 3), maps.items(), strict=True
    ):
        scale = ScalarMappable(Normalize(low, high), cmap)
        colors = (scale.to_rgba(of) * shade)[order]
        style: drawing.Style = {"facecolors": colors, "edgecolors": colors, "lw": 0.2}
        axis.add_collection(
            PolyCollection([flat[n][:, :2] for n in order], rasterized=True, **style)
        )
        axis.margins(0.02)
        axis.autoscale()
        axis.set(aspect="equal", adjustable="datalim", title=title, xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
        figure.colorbar(scale, ax=axis, location="bottom", shrink=0.7, pad=0.02)
    sizes = " x ".join(f"{size:.3g}" for size in np.ptp(case.boundary.points, axis=0))
    picture = Picture(
        "surface.png",
        f"The boundary of case {case.id} ({sizes} m along x, y and z) without the faces that are"
        " turned to the eye, with the value in the cell behind each face. z is up, x to the right.",
        figure,
        look_for="Look for regions whose colour does not fit their neighbours'.",
        score=f"NMAE {nmae:.3f} on these faces",
    )
    arrays = {"points": case.boundary.points[numbers], "truth": truth, "values": values}
    return Panel("surface", "On the surface", [picture], arrays=arrays)


def _view(turn: float, tilt: float) -> np.ndarray:
    """Return the rows (3, 3) to the right, up and to the eye, of angles in degrees."""
    (c, s), (d, e) = ((np.cos(a), np.sin(a)) for a in np.radians((turn, tilt)))
    return np.array([[c, s, 0], [-s * e, c * e, d], [s * d, -c * d, e]])


VIEW = _view(20.0, 50.0)  # An orthographic view on a boundary from above


def faces_of(
    mesh: CellMesh, num_cells: int, chosen: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the corners (n, 3) of boundary faces of those numbers, and their numbers (F,)."""
    tiles, numbers = list[np.ndarray](), list[np.ndarray]()
    count = len(mesh.starts) - num_cells
    for _, corners, members in mesh.blocks(num_cells, count):
        is_chosen = np.isin(members, chosen)
        tiles += list(mesh.points[corners[is_chosen]].astype(float))
        numbers.append(members[is_chosen])
    return tiles, np.concatenate(numbers)
