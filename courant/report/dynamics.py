"""Figures of long rollouts: frequencies, modes, eigenvalues, and the monitor."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from courant.analysis.case_dynamics import CaseDynamics
from courant.analysis.dynamics import BAND, StepSpectrum, shown_anchors, spectrum
from courant.analysis.monitoring import (
    MonitorJudgement,
    WatchedRollout,
    calibrate_monitor,
    judge_monitor,
)
from courant.field_model import Evolves
from courant.report.context import Context
from courant.report.drawing import MODEL_COLOR, PALETTE, WIDTH
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from simgen.errors import InputError
from simgen.store.read import StoredCase

TRUTH_COLOR = "#1d1f21"
REFERENCE = {"color": "#b3261e", "ls": "--", "lw": 1.0}
TIME = "time from the start (s)"


def mark_horizon(axis: Axes, found: CaseDynamics) -> None:
    """Shade the steps that the model was trained on."""
    axis.axvspan(0, found.times[found.horizon - 1], color="#0b5fa5", alpha=0.07, lw=0)


def dress_spectrum(axis: Axes, found: CaseDynamics, label: str) -> None:
    """Mark the solution's frequency in a picture of spectra, and name the axes."""
    axis.axvline(found.reference_hz, **REFERENCE)  # type: ignore[arg-type]
    axis.set(xlabel="frequency (Hz)", ylabel=label)
    axis.grid(alpha=0.25)


MARKERS = ("o", "s", "x")


def draw_eigenvalues(found: CaseDynamics) -> Figure:
    """Draw lambda of the derivative and mu of the step, each at all states."""
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    derivative, step = figure.subplots(1, 2)
    for (time, each), color, marker in zip(found.jacobians, PALETTE, MARKERS, strict=False):
        style = {"marker": marker, "ls": "", "ms": 4.5, "mfc": "none", "color": color}
        for axis, values in ((derivative, each.derivative), (step, each.step)):
            axis.plot(values.real, values.imag, label=f"at {time:g} s", **style)
    first = found.jacobians[0][1]
    _dress_derivative(derivative, first, found.reference_hz)
    _dress_step(step, first, found.reference_hz)
    return figure


def _dress_derivative(axis: Axes, each: StepSpectrum, reference: float) -> None:
    """Mark where an undamped oscillation of the solution's frequency lies."""
    turn = 2 * np.pi * reference * each.unit_s
    for sign in (1, -1):
        axis.axhline(sign * turn, **REFERENCE)  # type: ignore[arg-type]
    axis.axvline(0, color="#b9bec4", lw=0.8)
    axis.set(xlabel="Re λ of the derivative", ylabel="Im λ")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=8, loc="best")


def _dress_step(axis: Axes, each: StepSpectrum, reference: float) -> None:
    """Draw the unit circle, and the rays on which the solution's frequency lies."""
    turn = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(turn), np.sin(turn), color="#b9bec4", lw=0.8)
    angle = 2 * np.pi * reference * each.step_size * each.unit_s
    for sign in (1, -1):
        ray = ([0, 1.3 * np.cos(angle)], [0, sign * 1.3 * np.sin(angle)])
        axis.plot(*ray, **REFERENCE)  # type: ignore[arg-type]
    axis.set(aspect="equal", xlabel="Re μ of one step", ylabel="Im μ")
    axis.grid(alpha=0.25)


COMPONENTS = 2


def draw_latents(found: CaseDynamics) -> Figure:
    """Draw the series and the spectra of two components: the anchors with most and least power.

    Power is that of the first component at the solution's frequency.
    """
    series = found.components.series[..., :COMPONENTS]
    spectra = spectrum(series, found.interval_s)
    strongest, weakest = shown_anchors(found.latent_spectra, found.reference_hz)
    lines = [
        *_colored(strongest, "Blues_r", (0.0, 0.6)),
        *_colored(weakest, "Oranges_r", (0.2, 0.5)),
    ]
    rows = series.shape[-1]
    figure = Figure(figsize=(WIDTH, 2.9 * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False, width_ratios=(1.5, 1))
    for row, (over_time, power) in enumerate(axes):
        for anchor, color in lines:
            name = f"anchor {anchor}"
            over_time.plot(found.times, series[:, anchor, row], color=color, lw=1, label=name)
            values = spectra.premultiplied[1:, anchor, row]
            power.plot(spectra.frequencies[1:], values, color=color, lw=1)
        mark_horizon(over_time, found)
        share = found.components.explained[row]
        over_time.set(xlabel=TIME, ylabel=f"component {row + 1} ({share:.0%} of variance)")
        over_time.grid(alpha=0.25)
        dress_spectrum(power, found, f"f PSD of component {row + 1}")
        power.set_ylim(0, None)
    names = axes[0, 0].get_legend_handles_labels()
    figure.legend(*names, loc="outside upper center", ncols=10, frameon=False, fontsize=8)
    return figure


def _colored(
    anchors: np.ndarray, cmap: str, shades: tuple[float, float]
) -> list[tuple[int, tuple[float, ...]]]:
    places = np.linspace(*shades, len(anchors))
    return [
        (int(anchor), colormaps[cmap](place)) for anchor, place in zip(anchors, places, strict=True)
    ]


def draw_rhythm(found: CaseDynamics) -> Figure:
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


DRAWN_POINTS = 6_000
STYLES = {"solution": "-", "prediction": "--"}
LEAST = 1e-6
"""Of the largest density: what is drawn of the densities"""


def draw_shedding(found: CaseDynamics, case: StoredCase) -> Figure:
    """Draw densities, densities times frequency, and a map of the probes where there are any."""
    has_map = found.probes is not None
    figure = Figure(figsize=(WIDTH, 3.7), layout="constrained")
    axes = figure.subplots(1, 3 if has_map else 2, width_ratios=(1, 1, 1.2) if has_map else (1, 1))
    _draw_spectra(axes[0], found, premultiplied=False)
    _draw_spectra(axes[1], found, premultiplied=True)
    if found.probes is not None:
        _draw_places(axes[2], found.probes, case)
    return figure


def _draw_spectra(axis: Axes, found: CaseDynamics, premultiplied: bool) -> None:
    top = 0.0
    for each, style in zip(found.spectra, STYLES.values(), strict=True):
        values = each.premultiplied if premultiplied else each.density
        top = max(top, float(values[1:].max()))
        for probe in range(values.shape[1]):
            color = PALETTE[probe % len(PALETTE)]
            axis.plot(each.frequencies[1:], values[1:, probe], style, color=color, lw=1.2)
    dress_spectrum(axis, found, "f PSD" if premultiplied else "PSD (unit² / Hz)")
    if premultiplied:
        axis.set_ylim(0, None)
    else:
        axis.set(yscale="log", ylim=(LEAST * (top or 1.0), None))
        names = [Line2D([], [], color="#555b61", ls=style) for style in STYLES.values()]
        axis.legend(names, list(STYLES), frameon=False, fontsize=8, loc="upper right")


def _draw_places(axis: Axes, probes: np.ndarray, case: StoredCase) -> None:
    stride = -(-len(case.points) // DRAWN_POINTS)
    axis.plot(*case.points[::stride, :2].T, ".", ms=1.2, color="#c9ced4", zorder=0)
    if case.dataset.schema.boundary:
        axis.plot(*case.boundary.points[:, :2].T, ".", ms=2, color="#555b61", zorder=1)
    for number, place in enumerate(probes):
        color = PALETTE[number % len(PALETTE)]
        axis.plot(*place[:2], "o", ms=7, color=color, label=f"probe {number + 1}")
    axis.set(aspect="equal", xlabel="x (m)", ylabel="y (m)")
    axis.legend(
        frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(probes)
    )


def frequencies_panel(context: Context) -> Panel | None:
    """Show series, spectra, latents and eigenvalues; None where there is no rhythm."""
    case, found = context.shown[0].case, context.dynamics
    if found is None:
        return None
    return Panel(
        "frequencies",
        "Frequencies of a long rollout",
        figures(found, case),
        (table(found),),
        note=(
            "Frequencies of the flow are peaks of a zero-padded periodogram. Latents also drift"
            " slowly, so theirs is the frequency at which they change fastest: of the principal"
            " components of all anchors, which are fitted on the steps that the model was trained"
            " on. docs/analysis.md says how each number is computed."
        ),
        arrays=_arrays(found),
    )


def figures(found: CaseDynamics, case: StoredCase) -> tuple[PanelFigure, ...]:
    """Draw the rhythm over time, in the flow, in the latents and in the processor."""
    away = abs(found.predicted_hz - found.reference_hz) / found.reference_hz
    locked = int((found.lock_in <= BAND).sum())
    time, first = found.jacobians[0]
    nearest = first.nearest(found.reference_hz)
    return (
        PanelFigure(
            "frequencies.png",
            draw_rhythm(found),
            _frequencies_caption(found, case.id),
            look_for=(
                "The blue line should keep oscillating with the black one, and the drift should"
                " stay in the green band."
            ),
            score=(
                f"The prediction oscillates at {found.predicted_hz:.3g} Hz, the solution at"
                f" {found.reference_hz:.3g} Hz ({away:.1%} apart)"
            ),
            arrays=("time", "true_series", "predicted_series", "scalogram", "peak_frequency"),
        ),
        PanelFigure(
            "shedding.png",
            draw_shedding(found, case),
            _shedding_caption(found),
            look_for="Solid and dashed lines of one colour should peak together, at the red line.",
            score=_peaks(found),
            arrays=("spectrum_frequencies", "true_spectrum", "predicted_spectrum"),
        ),
        PanelFigure(
            "latents.png",
            draw_latents(found),
            "Each line is one anchor: its latent in a long rollout, on the two directions in which"
            " latents vary most within the steps of the training (shaded). Blue anchors have most"
            " power at the frequency of the solution (red), orange ones least. Directions have no"
            " unit.",
            look_for=(
                "Anchors whose lines oscillate and peak at the red line carry the rhythm of the"
                " flow; flat lines carry what stands still."
            ),
            score=f"{locked} of {len(found.lock_in)} anchors within {BAND:.0%} of the frequency",
            arrays=("time", "components"),
        ),
        PanelFigure(
            "eigenvalues.png",
            draw_eigenvalues(found),
            _eigenvalue_caption(found),
            look_for=(
                "A pair of markers near the circle and a red ray oscillates for long at the right"
                " frequency; markers inside the circle decay, those outside grow."
            ),
            score=(
                f"No pair oscillates at {time:g} s"
                if nearest is None
                else f"The nearest pair at {time:g} s has {first.frequencies[nearest]:.3g} Hz and"
                f" keeps {abs(first.step[nearest]):.1%} of its size in a step"
            ),
            arrays=tuple(name for name in _arrays(found) if "eigenvalues" in name),
        ),
    )


def table(found: CaseDynamics) -> Table:
    """One row for each way to find the frequency, with its deviation from the solution's."""
    reference = found.reference_hz
    rows = [_row(f"solution, {found.series_name}", reference, reference)]
    rows.append(_row(f"prediction, {found.series_name}", found.predicted_hz, reference))
    locked = int((found.lock_in <= BAND).sum())
    share = f"{locked} of {len(found.lock_in)} anchors within {BAND:.0%}"
    rows.append(_row(f"latents together; {share}", found.latent_hz, reference))
    for name, modes in zip(("solution", "prediction"), found.modes, strict=True):
        rows.append(
            _row(f"DMD of the {name}, strongest pair", modes.leading_frequency(), reference)
        )
    rows += [_processor(time, each, reference) for time, each in found.jacobians]
    columns = (Column("", is_number=False), Column("frequency (Hz)"), Column("deviation"))
    return Table(columns, tuple(rows))


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
    pairs = {
        f"{name}_eigenvalues_{number}": values
        for number, (_, each) in enumerate(found.jacobians)
        for name, values in (("derivative", each.derivative), ("step", each.step))
    }
    true, predicted = found.spectra
    places = {} if found.probes is None else {"probes": found.probes}
    return {
        "time": found.times,
        "reference_frequency": np.array([found.reference_hz]),
        "true_series": found.true_series,
        "predicted_series": found.predicted_series,
        "spectrum_frequencies": true.frequencies,
        "true_spectrum": true.density,
        "predicted_spectrum": predicted.density,
        "components": found.components.series,
        "anchor_frequency": found.anchor_hz,
        "lock_in_error": found.lock_in,
        "scalogram": found.scalogram.magnitude,
        "scalogram_frequencies": found.scalogram.frequencies,
        "peak_frequency": found.scalogram.peaks,
        **places,
        **pairs,
    }


def _peaks(found: CaseDynamics) -> str:
    """Return the peaks of the spectra at each probe, as the paper reads them."""
    true, predicted = found.spectra
    listed = ", ".join(
        f"{ours:.3g} for {theirs:.3g}"
        for ours, theirs in zip(predicted.peaks, true.peaks, strict=True)
    )
    return f"Peaks of prediction for solution: {listed} Hz, in bins of {true.bin_hz:.2g} Hz"


def _shedding_caption(found: CaseDynamics) -> str:
    what = (
        f"{len(found.probes)} probes in the wake of the body (right)"
        if found.probes is not None
        else f"the {found.series_name}"
    )
    return (
        f"Welch spectra of the rollout at {what}: as densities (left), and times the frequency, so"
        " that areas are shares of the energy. The red dashed line is the frequency of all of the"
        " solution's snapshots. Bins are wide because the rollout is short."
    )


def _eigenvalue_caption(found: CaseDynamics) -> str:
    every = found.jacobians[0][1].exact
    shown = "All eigenvalues" if every else "The largest eigenvalues"
    return (
        f"{shown} of the processor at three states of the rollout: at its first step, in its"
        " middle and at its end. Left: λ of the derivative dZ/dτ; an undamped oscillation at the"
        " frequency of the solution lies on the grey and a red line at once. Right: μ of one step"
        " of the solver; there it lies on the circle and a red ray."
    )


def _frequencies_caption(found: CaseDynamics, case: str) -> str:
    kept = (
        "stays within the green band of ±20 % to the end"
        if found.lost_s is None
        else f"leaves the green band of ±20 % after {found.lost_s:g} s"
    )
    return (
        f"Case {case} is rolled out over {found.times[-1]:g} s; the model was trained on the first"
        f" {found.times[found.horizon - 1]:g} s (shaded). Left: the flow. Middle: the strength of"
        f" each frequency over time in anchor {found.leading_anchor}, which oscillates most with"
        " the flow; its strongest frequency is dotted, the solution's is the red dashed line, and"
        " what is pale is influenced by the ends of the record. Right: how far that frequency is"
        f" from the solution's; it {kept}."
    )


MOST_CASES, ROLLOUTS = 4, 24
"""Test cases that are rolled out, and rollouts of a split: `courant analyse monitor` takes more"""


def monitor_panel(context: Context) -> Panel | None:
    """Show departure and error; None for models without latents, and too few validation cases.

    Also None for an evaluation of the validation split, on which the monitor is calibrated.

    A run that has no monitor yet is calibrated for the picture alone: nothing is written to it.
    """
    is_calibrated_on = context.evaluation.split == "validation"
    if is_calibrated_on or not isinstance(context.surrogate.model, Evolves):
        return None
    try:
        monitor = context.surrogate.monitor or calibrate_monitor(
            context.surrogate, context.dataset, rollouts=ROLLOUTS
        )
    except InputError:
        return None
    names = [context.shown[0].case.id, *context.evaluation.cases]
    chosen = list(dict.fromkeys(names))[:MOST_CASES]
    found = judge_monitor(context.surrogate, context.dataset, monitor, chosen, rollouts=ROLLOUTS)
    first = found.watched[0]
    return Panel(
        "monitor",
        "Can this rollout be trusted?",
        (
            PanelFigure(
                "monitor.png",
                draw_monitor(found),
                _monitor_caption(found),
                look_for=(
                    "While the blue line is below the red one, the rollout is among states like"
                    " those of the training."
                ),
                score=_score(first),
            ),
        ),
        note=(
            "The monitor reads only the latents (the vectors of the anchors), so it works where no"
            f" solution is known. `courant analyse monitor {context.run.url}` stores it in the"
            " run; then surrogate.predict(..., monitor=True) returns this curve with the"
            " prediction. A flag says that the latents have left the states of the training; it"
            " does not say how large the error is. A rollout that goes wrong within known states"
            " is not flagged."
        ),
        arrays={"times": first.times, "departure": first.quality.departure, "error": first.errors},
    )


def draw_monitor(found: MonitorJudgement) -> Figure:
    """Draw departure and true error over time: of the first case strong, of the others faint."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, each in enumerate(found.watched):
        style = {"lw": 1.8, "alpha": 1.0} if number == 0 else {"lw": 0.8, "alpha": 0.35}
        left.plot(each.times, each.quality.departure, color=PALETTE[0], **style)
        right.plot(each.times, each.errors, color=PALETTE[1], **style)
    left.axhline(1.0, color="#b3261e", lw=1)
    left.annotate("flag", (0.995, 1.0), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    top = max(2.0, max(float(each.quality.departure.max()) for each in found.watched))
    left.set(ylabel="departure of the latents, over the limit", ylim=(0, 1.05 * min(top, 10.0)))
    right.set(ylabel="root mean square error (std)", ylim=(0, None))
    first = found.watched[0]
    for axis in (left, right):
        _mark(axis, first, found.monitor.horizon)
        axis.set(xlabel="time from the start of the rollout (s)", xlim=(0, float(first.times[-1])))
        axis.grid(alpha=0.25)
    return figure


def _mark(axis: Axes, first: WatchedRollout, horizon: int) -> None:
    """Shade the steps of the training, and draw a line where the flag goes up."""
    end = float(first.times[min(horizon, len(first.times)) - 1])
    axis.axvspan(0, end, color="#1a7f37", alpha=0.1, lw=0)
    flag = first.quality.flagged_at
    if flag is not None:
        axis.axvline(float(first.times[flag - 1]), color="#b3261e", lw=1, ls="--")


def _score(first: WatchedRollout) -> str:
    flag, last = first.quality.flagged_at, float(first.times[-1])
    if flag is None:
        return f"No flag within {last:g} s"
    before = first.errors[: flag - 1]
    error = f", and an error of {before[-1]:.2g} std one step earlier" if len(before) else ""
    return f"Flag after {first.times[flag - 1]:g} s of {last:g} s{error}"


def _monitor_caption(found: MonitorJudgement) -> str:
    first = found.watched[0]
    flag = first.quality.flagged_at
    told = (
        "is never flagged"
        if flag is None
        else f"is flagged at step {flag}, after {first.times[flag - 1]:g} s (dashed)"
    )
    return (
        "The left picture shows the departure of the latents from those of training rollouts; a"
        " value below one is usual. The right picture shows the true error. The rollout of case"
        f" {first.case} (strong line) {told}; other rollouts of its split are faint. The green"
        " band is the steps that the model was trained on. Of"
        f" {found.num_rollouts} rollouts of these {found.monitor.horizon} steps from everywhere in"
        f" the cases, {found.false_alarms:.0%} are flagged."
    )
