"""Draw the rhythm of a rollout over time: the flow, the leading anchor's scalogram, its drift."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.case_dynamics import CaseDynamics
from courant.analysis.frequencies import BAND
from courant.report.drawing import MODEL_COLOR, WIDTH
from courant.report.panels.dynamics.marks import REFERENCE, TIME, TRUTH_COLOR, mark_horizon


def draw(found: CaseDynamics) -> Figure:
    """Draw series, scalogram and drift side by side."""
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    series, heat, drifts = figure.subplots(1, 3)
    _draw_series(series, found)
    _draw_scalogram(figure, heat, found)
    _draw_drift(drifts, found)
    return figure


def _draw_series(axis: Axes, found: CaseDynamics) -> None:
    times = found.times
    axis.plot(times, found.true_series[:, 0], color=TRUTH_COLOR, label="solution")
    axis.plot(times, found.predicted_series[:, 0], color=MODEL_COLOR, label="prediction")
    mark_horizon(axis, found)
    label = "transverse velocity (m/s)" if found.probes is not None else found.series_name
    axis.set(xlabel=TIME, ylabel=label)
    axis.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def _draw_scalogram(figure: Figure, axis: Axes, found: CaseDynamics) -> None:
    heat = found.scalogram
    drawn = axis.pcolormesh(
        found.times,
        heat.frequencies,
        heat.decibels,
        vmin=-40,
        vmax=0,
        cmap="magma",
        rasterized=True,
    )
    axis.contourf(
        found.times,
        heat.frequencies,
        heat.trusted.astype(float),
        levels=(-0.5, 0.5),
        colors="white",
        alpha=0.45,
    )
    axis.axhline(found.reference_hz, **REFERENCE)  # type: ignore[arg-type]
    axis.plot(found.times, heat.peaks, ":", color="#7fd4ff", lw=1.6)
    axis.set(yscale="log", xlabel=TIME, ylabel="frequency (Hz)")
    axis.set_title(f"anchor {found.leading_anchor}, first component", fontsize=9, loc="left")
    figure.colorbar(drawn, ax=axis, label="dB", pad=0.01)


def _draw_drift(axis: Axes, found: CaseDynamics) -> None:
    axis.axhspan(-BAND, BAND, color="#1a7f37", alpha=0.12, lw=0)
    axis.plot(found.times, found.drift, color=MODEL_COLOR)
    if found.lost_s is not None:
        axis.axvline(found.lost_s, **REFERENCE)  # type: ignore[arg-type]
    mark_horizon(axis, found)
    reach = 1.1 * max(0.5, float(np.abs(found.drift).max()))
    axis.set(xlabel=TIME, ylabel="drift of the frequency", ylim=(-reach, reach))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.grid(alpha=0.25)
