"""Plot predicted against true values over all evaluated cases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from courant.data.normalisation import Channel
from courant.problems.steady import read_solution
from courant.report.context import Context
from courant.report.panel import Panel, PanelFigure
from courant.report.wording import channel_label, component_name

NUM_POINTS = 5_000
"""Points of each case, drawn at random"""
BINS = 120
COLUMNS = 4


def panel(context: Context) -> Panel:
    """Show one picture for each component, darker where there are more points."""
    truth, predicted = _pairs(context)
    caption = (
        f"Predicted against true values at up to {NUM_POINTS:,} random points of each "
        f"{context.evaluation.split} case, darker where there are more points. On the line a"
        " prediction is perfect."
    )
    return Panel(
        "parity",
        "Predicted against true values",
        (
            PanelFigure(
                "parity.png",
                draw(truth, predicted, context.channels),
                caption,
                look_for="A narrow band on the line is accurate; a flat one misses the extremes.",
                score=_score(truth, predicted, context.channels),
            ),
        ),
        arrays={"truth": truth, "prediction": predicted},
    )


def _score(truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Channel]) -> str:
    """Return R2 of each component (n, C)."""
    spread = np.square(truth - truth.mean(axis=0)).sum(axis=0)
    missed = np.square(predicted - truth).sum(axis=0)
    found = 1 - missed / np.where(spread > 0, spread, np.nan)
    parts = [
        f"{component_name(channel.name)} {value:.3f}"
        for channel, value in zip(channels, found, strict=True)
        if np.isfinite(value)
    ]
    return f"R² {', '.join(parts)}" if parts else "No component varies"


def draw(truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Channel]) -> Figure:
    """Draw predicted against true values (n, C) as densities."""
    columns = min(COLUMNS, len(channels))
    rows = -(-len(channels) // columns)
    figure = Figure(figsize=(3.4 * columns, 3.9 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for number, (axis, channel) in enumerate(zip(axes, channels, strict=False)):
        bounds = _bounds(truth[:, number], predicted[:, number])
        axis.hist2d(
            truth[:, number],
            predicted[:, number],
            bins=BINS,
            range=(bounds, bounds),
            cmap="Blues",
            norm=LogNorm(vmin=1),
        )
        axis.plot(bounds, bounds, color="#b3261e", lw=0.8)
        axis.set_title(channel_label(channel), fontsize=9)
        axis.set(box_aspect=1, xlabel="truth")
    for axis in axes[::columns]:
        axis.set_ylabel("prediction")
    for axis in axes[len(channels) :]:
        axis.set_axis_off()
    return figure


def _bounds(truth: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """Return both axes' limits, without the outermost thousandth of the values."""
    low, high = np.quantile(np.concatenate([truth, predicted]), (0.0005, 0.9995))
    return float(low), float(high if high > low else low + 1)


def _pairs(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return true and predicted values (n, C) at random points of the cases."""
    generator = np.random.default_rng(0)
    truth, predicted = [], []
    for name in context.evaluation.cases:
        case = context.dataset[name]
        chosen = generator.permutation(case.num_points)[:NUM_POINTS]
        truth.append(read_solution(case, context.surrogate.normaliser)[chosen])
        predicted.append(context.surrogate.predict_case(case)[chosen])
    return np.concatenate(truth), np.concatenate(predicted)
