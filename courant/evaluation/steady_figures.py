"""Figures of a steady model's errors: each a function from data to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from courant.data.normalisation import Channel
from courant.evaluation.figures import COLORS
from courant.evaluation.references import MODEL
from simgen.dataset_figures import SPLIT_COLORS
from simgen.design_space import Parameter

BINS = 120


def errors_by_case(evaluation: dict[str, Any], predictors: Sequence[str]) -> Figure:
    """NMAE of every case, model beside references, best predicted case first."""
    cases = sorted(evaluation["cases"], key=lambda case: evaluation["cases"][case][MODEL]["nmae"])
    figure = Figure(figsize=(max(6.0, 0.35 * len(cases) + 2), 3.4), layout="constrained")
    axis = figure.subplots()
    for predictor, marker in zip(predictors, ("o", "D", "_"), strict=True):
        values = [evaluation["cases"][case][predictor]["nmae"] for case in cases]
        axis.plot(values, marker, ms=6, color=COLORS[predictor], label=predictor)
    axis.set(xlabel="case", ylabel="NMAE", ylim=(0, None), xlim=(-0.6, len(cases) - 0.4))
    axis.set_xticks(range(len(cases)), [case[:6] for case in cases], rotation=90, fontsize=7, family="monospace")
    axis.grid(alpha=0.25, axis="y")
    figure.legend(loc="outside upper center", ncols=len(predictors), frameon=False)
    return figure


def errors_by_parameter(
    evaluation: dict[str, Any], parameters: Sequence[Parameter], designs: dict[str, dict[str, float]]
) -> Figure:
    """The model's NMAE of every case against each of its design parameters; ticks below mark the training designs."""
    figure = Figure(figsize=(3.0 * len(parameters), 2.8), layout="constrained")
    axes = figure.subplots(1, len(parameters), squeeze=False, sharey=True)[0]
    cases = evaluation["cases"]
    nmae = [cases[case][MODEL]["nmae"] for case in cases]
    training = [designs[case] for case in designs if case not in cases]
    for axis, parameter in zip(axes, parameters, strict=True):
        axis.plot([designs[case][parameter.name] for case in cases], nmae, "o", ms=5, color=COLORS[MODEL])
        values = [design[parameter.name] for design in training]
        axis.plot(values, np.zeros(len(values)), "|", ms=9, color=SPLIT_COLORS["train"], alpha=0.5, clip_on=False)
        axis.set(xlabel=f"{parameter.name} ({parameter.unit})", ylim=(0, None))
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("NMAE")
    return figure


def parity(truth: np.ndarray, predicted: np.ndarray, channels: Sequence[Channel]) -> Figure:
    """Predicted against true values (n, C), one panel per component, darker where there are more points."""
    figure = Figure(figsize=(3.6 * len(channels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(channels), squeeze=False)[0]
    for number, (axis, channel) in enumerate(zip(axes, channels, strict=True)):
        both = np.concatenate([truth[:, number], predicted[:, number]])
        low, high = np.quantile(both, (0.0005, 0.9995))
        bounds = (float(low), float(high if high > low else low + 1))
        artist = axis.hist2d(
            truth[:, number],
            predicted[:, number],
            bins=BINS,
            range=(bounds, bounds),
            cmap="Blues",
            norm=LogNorm(vmin=1),
        )[3]
        axis.plot(bounds, bounds, color="#b3261e", lw=0.8)
        axis.set(box_aspect=1, title=f"{channel.field} {channel.component} ({channel.unit})", xlabel="truth")
        axis.title.set_fontsize(9)
    axes[0].set_ylabel("prediction")
    figure.colorbar(artist, ax=axes.tolist(), label="points", shrink=0.8, pad=0.01)
    return figure
