"""Show truth, prediction and error of the case of median error and of the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from courant.data.normalisation import Channel
from courant.evaluation.evaluation import MODEL
from courant.problems.transient import is_spatial
from courant.report.context import Context, Shown
from courant.report.drawing import WIDTH, height_of, place
from courant.report.images.colour_maps import ERRORS, SIGNED, VALUES
from courant.report.panel import Panel, PanelFigure
from courant.report.wording import (
    channel_label,
    component_name,
    known_parts,
    listed,
    of_split,
    reference,
    with_unit,
)
from simgen.publish.field_plots import Layer, add_colorbar, draw_field, layer, spanning, symmetric

#: Of the largest value of the whole case: the least that a scale around zero spans.
LEAST_OF_ALL = 0.05


@dataclass(frozen=True)
class Quantity:
    """What a picture shows: a component, or the magnitude of a vector."""

    label: str
    """`velocity x (m/s)`"""
    columns: tuple[int, ...]

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the quantity (...) of values (..., C)."""
        if len(self.columns) == 1:
            return values[..., self.columns[0]]
        return np.asarray(np.linalg.norm(values[..., list(self.columns)], axis=-1))


def quantities(channels: Sequence[Channel]) -> list[Quantity]:
    """List the magnitudes of the modelled vectors, and then all components."""
    vectors: dict[str, list[int]] = {}
    for number, channel in enumerate(channels):
        if len(channel.component) == 1 and is_spatial(channel.component):
            vectors.setdefault(channel.field, []).append(number)
    magnitudes = [
        Quantity(with_unit(f"|{component_name(name)}|", channels[columns[0]].unit), tuple(columns))
        for name, columns in vectors.items()
        if len(columns) > 1
    ]
    components = [
        Quantity(channel_label(channel), (number,)) for number, channel in enumerate(channels)
    ]
    return magnitudes + components


def panel(context: Context) -> Panel:
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
                draw(triangles, truth, predicted, context.channels),
                _caption(context, shown, triangles),
                look_for=(
                    "The second column should look like the first; the third shows where it does"
                    " not."
                ),
                score=_score(context, shown),
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


def draw(
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


def _score(context: Context, shown: Shown) -> str:
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
