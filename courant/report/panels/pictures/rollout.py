"""Play the rollout of the first shown case: solution, prediction and error, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from courant.evaluation.metrics import ALL, ErrorSums
from courant.problems.transient import read_states, time_tolerance
from courant.report.context import Context
from courant.report.drawing import place
from courant.report.images.colour_maps import ERRORS, VALUES
from courant.report.images.embedding import webp
from courant.report.images.raster import Raster
from courant.report.panel import Animation, Panel
from courant.report.panels.prediction import Quantity, quantities
from simgen.publish.field_plots import Triangles, layer, spanning, symmetric

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


def panel(context: Context) -> Panel | None:
    """Show an animation; None for steady problems, and for what is drawn as a line."""
    surrogate, shown = context.surrogate, context.shown[0]
    plane = layer(shown.case)
    if surrogate.step_s is None or shown.case.time is None or not isinstance(plane, Triangles):
        return None
    quantity = quantities(context.channels)[0]
    found = follow(context, quantity)
    frames = draw(plane, found, quantity)
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


def draw(plane: Triangles, found: Rollout, quantity: Quantity) -> tuple[bytes, ...]:
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
