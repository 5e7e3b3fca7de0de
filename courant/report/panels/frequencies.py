"""Show the rhythm of a long rollout: in the flow, in the latents, and in the processor."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.dynamics.case_dynamics import CaseDynamics, follow_case
from courant.analysis.dynamics.jacobian import StepSpectrum
from courant.analysis.dynamics.latent_components import shown_anchors
from courant.analysis.dynamics.scalogram import BAND
from courant.report.context import Context
from courant.report.drawing import MODEL_COLOR, PALETTE, WIDTH
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table

TRUTH_COLOR = "#1d1f21"
REFERENCE = {"color": "#b3261e", "ls": "--", "lw": 1.0}


def panel(context: Context) -> Panel | None:
    """Show series, spectra, scalogram, drift and eigenvalues; None where there is no rhythm."""
    case = context.shown[0].case
    found = follow_case(context.surrogate, case)
    if found is None:
        return None
    return Panel(
        "frequencies",
        "Frequencies of a long rollout",
        (PanelFigure("frequencies.png", draw(found), _caption(found, case.id)),),
        (table(found),),
        note=(
            "Frequencies are peaks of a zero-padded periodogram. For the latents it is taken of"
            " each anchor's first principal component, which is fitted on the steps that the model"
            " was trained on. docs/analysis.md says how each number is computed."
        ),
        arrays=_arrays(found),
    )


def table(found: CaseDynamics) -> Table:
    """One row for each way to find the frequency, with its deviation from the solution's."""
    reference = found.reference_hz
    rows = [_row(f"solution, {found.series_name}", reference, reference)]
    rows.append(_row(f"prediction, {found.series_name}", found.predicted_hz, reference))
    locked = int((found.lock_in <= BAND).sum())
    best = found.lock_in[found.leading_anchor]
    share = f"{locked} of {len(found.lock_in)} anchors within {BAND:.0%}"
    rows.append(
        (Cell(f"latents, {share}"), Cell(""), Cell(f"{best:.1%} (anchor {found.leading_anchor})"))
    )
    for name, modes in zip(("solution", "prediction"), found.modes, strict=True):
        rows.append(
            _row(f"DMD of the {name}, strongest pair", modes.leading_frequency(), reference)
        )
    rows += [_processor(time, each, reference) for time, each in found.jacobians]
    columns = (Column("", is_number=False), Column("frequency (Hz)"), Column("deviation"))
    return Table(columns, tuple(rows))


def draw(found: CaseDynamics) -> Figure:
    """Draw the flow above (series, spectra), latents and processor below."""
    figure = Figure(figsize=(WIDTH, 7.2), layout="constrained")
    (series, flow, latents), (heat, drifts, plane) = figure.subplots(2, 3)
    _draw_series(series, found)
    _draw_flow(flow, found)
    _draw_latents(latents, found)
    _draw_scalogram(figure, heat, found)
    _draw_drift(drifts, found)
    _draw_eigenvalues(plane, found)
    return figure


def _draw_series(axis: Axes, found: CaseDynamics) -> None:
    times = found.times
    axis.plot(times, found.true_series[:, 0], color=TRUTH_COLOR, label="solution")
    axis.plot(times, found.predicted_series[:, 0], color=MODEL_COLOR, label="prediction")
    _mark_horizon(axis, found)
    label = "transverse velocity (m/s)" if found.series_name == "wake probes" else found.series_name
    axis.set(xlabel="time from the start (s)", ylabel=label)
    axis.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)


def _draw_flow(axis: Axes, found: CaseDynamics) -> None:
    for each, color, name in zip(
        found.spectra, (TRUTH_COLOR, MODEL_COLOR), ("solution", "prediction"), strict=True
    ):
        mean = each.premultiplied.mean(axis=1)
        axis.plot(each.frequencies[1:], mean[1:], ".-", color=color, label=name)
    _spectral(axis, found, "f PSD of the flow")


def _draw_latents(axis: Axes, found: CaseDynamics) -> None:
    each = found.latent_spectra
    strongest, weakest = shown_anchors(each, found.reference_hz)
    groups = ((strongest, MODEL_COLOR, "strongest"), (weakest, PALETTE[1], "weakest"))
    for anchors, color, name in groups:
        for place, anchor in enumerate(anchors.tolist()):
            label = f"{name} anchors at this frequency" if not place else None
            axis.plot(
                each.frequencies[1:],
                each.premultiplied[1:, anchor],
                color=color,
                lw=0.9,
                label=label,
            )
    _spectral(axis, found, "f PSD of the first latent component")


def _spectral(axis: Axes, found: CaseDynamics, label: str) -> None:
    axis.axvline(found.reference_hz, **REFERENCE)  # type: ignore[arg-type]
    axis.set(xlabel="frequency (Hz)", ylabel=label, ylim=(0, None))
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=8, loc="upper right")


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
    axis.set(yscale="log", xlabel="time from the start (s)", ylabel="frequency (Hz)")
    axis.set_title(f"anchor {found.leading_anchor}, first component", fontsize=9, loc="left")
    figure.colorbar(drawn, ax=axis, label="dB", pad=0.01)


def _draw_drift(axis: Axes, found: CaseDynamics) -> None:
    axis.axhspan(-BAND, BAND, color="#1a7f37", alpha=0.12, lw=0)
    axis.plot(found.times, found.drift, color=MODEL_COLOR)
    if found.lost_s is not None:
        axis.axvline(found.lost_s, **REFERENCE)  # type: ignore[arg-type]
    _mark_horizon(axis, found)
    reach = 1.1 * max(0.5, float(np.abs(found.drift).max()))
    axis.set(
        xlabel="time from the start (s)", ylabel="drift of the frequency", ylim=(-reach, reach)
    )
    axis.grid(alpha=0.25)


def _draw_eigenvalues(axis: Axes, found: CaseDynamics) -> None:
    turn = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(turn), np.sin(turn), color="#b9bec4", lw=0.8)
    for (time, each), color, marker in zip(found.jacobians, PALETTE, ("o", "x"), strict=False):
        axis.plot(
            each.step.real,
            each.step.imag,
            marker,
            ms=4,
            mfc="none",
            color=color,
            label=f"at {time:g} s",
        )
    angle = 2 * np.pi * found.reference_hz * _seconds(found.jacobians[0][1])
    for sign in (1, -1):
        axis.plot(
            [0, 1.3 * np.cos(angle)],
            [0, sign * 1.3 * np.sin(angle)],
            **REFERENCE,  # type: ignore[arg-type]
        )
    axis.set(aspect="equal", xlabel="Re μ of one step", ylabel="Im μ")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=8, loc="upper left")


def _seconds(each: StepSpectrum) -> float:
    """Return the seconds of one step of the integration."""
    return each.step_size * each.unit_s


def _mark_horizon(axis: Axes, found: CaseDynamics) -> None:
    axis.axvspan(0, found.times[found.horizon - 1], color="#0b5fa5", alpha=0.07, lw=0)


def _processor(time: float, each: StepSpectrum, reference: float) -> tuple[Cell, ...]:
    """Return the row of the eigenvalue pair that is nearest to the frequency."""
    nearest = each.nearest(reference)
    if nearest is None:
        return _row(f"processor at {time:g} s: no pair oscillates", float("nan"), reference)
    kept = abs(each.step[nearest])
    name = f"processor at {time:g} s, nearest pair (times {kept:.3g} in a step)"
    return _row(name, float(each.frequencies[nearest]), reference)


def _row(name: str, frequency: float, reference: float) -> tuple[Cell, ...]:
    if not np.isfinite(frequency):
        return (Cell(name), Cell("none"), Cell(""))
    away = abs(frequency - reference) / reference
    mark = "" if frequency is reference else f"{away:.1%}"
    return (Cell(name), Cell(f"{frequency:.3g}"), Cell(mark))


def _arrays(found: CaseDynamics) -> dict[str, np.ndarray]:
    eigenvalues = {
        f"step_eigenvalues_{number}": each.step for number, (_, each) in enumerate(found.jacobians)
    }
    return {
        "time": found.times,
        "reference_frequency": np.array([found.reference_hz]),
        "true_series": found.true_series,
        "predicted_series": found.predicted_series,
        "components": found.components.series,
        "lock_in_error": found.lock_in,
        "scalogram": found.scalogram.magnitude,
        "scalogram_frequencies": found.scalogram.frequencies,
        "peak_frequency": found.scalogram.peaks,
        **eigenvalues,
    }


def _caption(found: CaseDynamics, case: str) -> str:
    kept = (
        "stays within the green band of ±20 % to the end"
        if found.lost_s is None
        else f"leaves the green band of ±20 % after {found.lost_s:g} s"
    )
    every = found.jacobians[0][1].exact
    shown = "the eigenvalues" if every else "the largest eigenvalues"
    return (
        f"Case {case} is rolled out over {found.times[-1]:g} s; the model was trained on the first"
        f" {found.times[found.horizon - 1]:g} s (blue). The red dashed line is the frequency of"
        f" the solution, {found.reference_hz:.3g} Hz. The upper row shows the flow over time, the"
        " spectra of solution and prediction, and those of single anchors: an anchor whose curve"
        " peaks at the red line oscillates with the flow. The lower row shows the frequency of the"
        " strongest such anchor over time (dotted; pale where it is influenced by the ends of the"
        f" record); its drift, which {kept}; and {shown} of one step of the processor. A pair on"
        " the circle and on a red ray oscillates for ever at the right frequency; a pair inside"
        " the circle decays."
    )
