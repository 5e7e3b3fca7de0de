"""Show truth, prediction and error of the case of median error and of the worst."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from courant.data.channels import Channel
from courant.evaluation.evaluation import MODEL
from courant.report.context import Context, Shown
from courant.report.drawing import WIDTH, height_of, place
from courant.report.panel import Panel, PanelFigure
from courant.report.wording import channel_label, known_parts, listed, of_split
from simgen.publish.field_plots import Layer, add_colorbar, draw_field, layer, spanning, symmetric

#: Of the largest value of the whole case: the least that a scale around zero spans.
LEAST_OF_ALL = 0.05


def panel(context: Context) -> Panel:
    """Show the last predicted state of a rollout, or the predicted field."""
    figures: list[PanelFigure] = []
    arrays: dict[str, np.ndarray] = {}
    for shown in context.shown:
        truth, predicted = context.truth(shown), context.predict(shown)
        triangles = layer(shown.case)
        figure = draw(triangles, truth, predicted, context.channels)
        caption = _caption(context, shown, triangles)
        figures.append(PanelFigure(f"prediction_{shown.slug}.png", figure, caption))
        arrays |= {
            f"{shown.slug}_points": shown.case.points,
            f"{shown.slug}_truth": truth,
            f"{shown.slug}_prediction": predicted,
        }
    is_rollout = context.shown[0].end_s is not None
    title = "Prediction at the last rollout step" if is_rollout else "Prediction"
    note = (
        "Truth is the solver's result. Truth and prediction share a colour scale; the error has "
        "one of its own. "
        f"Columns of the arrays: {', '.join(context.surrogate.channels)}."
    )
    return Panel("prediction", title, tuple(figures), note=note, arrays=arrays)


def draw(
    triangles: Layer, truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Channel]
) -> Figure:
    """Draw truth, prediction and error (N, C) side by side, one row for each component."""
    height = height_of(triangles.aspect, 3.9, 1.5, 5.0)
    figure = Figure(figsize=(WIDTH, height * len(channels) + 0.2), layout="constrained")
    axes = figure.subplots(len(channels), 3, squeeze=False)
    drawn = np.unique(triangles.cell)
    for row, (places, channel) in enumerate(zip(axes, channels, strict=True)):
        values, error = truth[:, row], predicted[:, row] - truth[:, row]
        limits, colours = scale_of(values, drawn)
        shown = (
            ("truth", values, limits, colours),
            ("prediction", predicted[:, row], limits, colours),
            ("error", error, symmetric(error[drawn]), "PuOr_r"),
        )
        for axis, (title, field, bounds, cmap) in zip(places, shown, strict=True):
            artist = draw_field(axis, triangles, field, limits=bounds, cmap=cmap)
            axis.set_title(f"{title}, {channel_label(channel)}", fontsize=9, loc="left")
            bar = add_colorbar(figure, artist, axis, shrink=0.85, pad=0.01)
            (axis if bar is None else bar.ax).tick_params(labelsize=7)
    return figure


def scale_of(values: np.ndarray, drawn: np.ndarray) -> tuple[tuple[float, float], str]:
    """Choose limits and colours: around zero for both signs without a strong mean."""
    both_signs = values.min() < 0 < values.max()
    if both_signs and abs(values.mean()) < 0.3 * np.abs(values).max():
        low, high = symmetric(values[drawn])
        # A component may vanish on the drawn layer, where rounding would fill the whole scale.
        least = LEAST_OF_ALL * float(np.abs(values).max())
        return (min(low, -least), max(high, least)), "RdBu_r"
    return spanning(values[drawn]), "viridis"


def _caption(context: Context, shown: Shown, triangles: Layer) -> str:
    nmae = context.evaluation.cases[shown.case.id].overall[MODEL].nmae
    where = place(shown.case, triangles)
    if shown.start_s is None or shown.end_s is None:
        how = f"predicted from its {listed(known_parts(context.surrogate.normaliser))}"
    else:
        how = f"predicted from the snapshot at t = {shown.start_s:g} s for t = {shown.end_s:g} s"
    split = of_split(context.evaluation.split)
    line = f"Case {shown.case.id} ({shown.label}, NMAE {nmae:.3f}) {split}: {how}"
    return f"{line}. The picture shows {where}." if where else f"{line}."
