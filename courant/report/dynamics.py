"""Figures of long rollouts: frequencies, modes, eigenvalues, and the monitor."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from courant.analysis.case_dynamics import CaseDynamics
from courant.analysis.dynamics import BAND, shown_anchors, spectrum
from courant.analysis.monitoring import MonitorJudgement, calibrate_monitor, judge_monitor
from courant.field_model import Evolves
from courant.report.context import (
    CLOUD,
    GOOD_COLOR,
    LIMIT_COLOR,
    MODEL_COLOR,
    PALETTE,
    WIDTH,
    Context,
)
from courant.report.page import Panel, PanelTable, Picture
from simgen.errors import InputError
from simgen.store.read import StoredCase

TIME = "time from the start (s)"


def frequencies_panel(context: Context) -> Panel | None:
    """Show series, spectra, latents and eigenvalues; None where there is no rhythm."""
    case, found = context.shown[0].case, context.dynamics
    if found is None:
        return None
    return Panel(
        "frequencies",
        "Frequencies of a long rollout",
        frequency_pictures(found, case),
        [frequency_table(found)],
        note="Frequencies of the flow are peaks of a zero-padded periodogram. Latents also drift"
        " slowly, so theirs is the frequency at which they change fastest: of the principal"
        " components of all anchors, fitted on the steps that the model was trained on."
        " docs/analysis.md defines each number.",
        arrays={
            "reference_frequency": np.array([found.reference_hz]),
            "anchor_frequency": found.anchor_hz,
            "lock_in_error": found.lock_in,
            "scalogram_frequencies": found.scalogram.frequencies,
            **({} if found.probes is None else {"probes": found.probes}),
        },
    )


def frequency_pictures(found: CaseDynamics, case: StoredCase) -> list[Picture]:
    """Draw the rhythm over time, in the flow, in the latents and in the processor."""
    away = abs(found.predicted_hz - found.reference_hz) / found.reference_hz
    true, predicted = found.spectra
    peaks = [f"{a:.3g} for {b:.3g}" for a, b in zip(predicted.peaks, true.peaks, strict=True)]
    time, first = found.jacobians[0]
    nearest = first.nearest(found.reference_hz)
    kept = (
        "stays within the green band of ±20 % to the end"
        if found.lost_s is None
        else f"leaves the green band of ±20 % after {found.lost_s:g} s"
    )
    probes = (
        f"the {found.series_name}"
        if found.probes is None
        else f"{len(found.probes)} probes in the wake of the body (right)"
    )
    eigenvalues = {
        f"{name}_eigenvalues_{number}": values
        for number, (_, each) in enumerate(found.jacobians)
        for name, values in (("derivative", each.derivative), ("step", each.step))
    }
    return [
        Picture(
            "frequencies.png",
            f"Case {case.id} is rolled out over {found.times[-1]:g} s; the model was trained on the"
            f" first {found.times[found.horizon - 1]:g} s (shaded). Left: the flow. Middle: the"
            f" strength of each frequency in anchor {found.leading_anchor}; its strongest is"
            " dotted, the solution's is red, and what is pale depends on the ends of the record."
            f" Right: how far that frequency is from the solution's; it {kept}.",
            partial(draw_rhythm, found),
            look_for="The blue line should keep oscillating with the black one, and the drift"
            " should stay in the green band.",
            score=f"The prediction oscillates at {found.predicted_hz:.3g} Hz, the solution at"
            f" {found.reference_hz:.3g} Hz ({away:.1%} apart)",
            arrays={
                "time": found.times,
                "true_series": found.true_series,
                "predicted_series": found.predicted_series,
                "scalogram": found.scalogram.magnitude,
                "peak_frequency": found.scalogram.peaks,
            },
        ),
        Picture(
            "shedding.png",
            f"Welch spectra of the rollout at {probes}: as densities (left), and times the"
            " frequency, so that areas are shares of the energy. Red: the solution's frequency.",
            partial(draw_shedding, found, case),
            look_for="Solid and dashed lines of one colour should peak together, at the red line.",
            score=f"Peaks of prediction for solution: {', '.join(peaks)} Hz, in bins of"
            f" {true.bin_hz:.2g} Hz",
            arrays={
                "spectrum_frequencies": true.frequencies,
                "true_spectrum": true.density,
                "predicted_spectrum": predicted.density,
            },
        ),
        Picture(
            "latents.png",
            "Each line is one anchor: its latent on the two directions in which latents vary most"
            " within the steps of the training (shaded). Blue anchors have most power at the"
            " frequency of the solution (red), orange ones least.",
            partial(draw_latents, found),
            look_for="Anchors whose lines oscillate and peak at the red line follow the rhythm of"
            " the flow; flat lines hold its steady part.",
            score=f"{_locked_in(found)} of the frequency",
            arrays={"time": found.times, "components": found.components.series},
        ),
        Picture(
            "eigenvalues.png",
            f"{'All' if first.exact else 'The largest'} eigenvalues of the processor"
            f" {' and '.join(f'at {time:g} s' for time, _ in found.jacobians)} of the rollout."
            " Left: λ of the derivative dZ/dτ; an undamped oscillation at the frequency of the"
            " solution lies on the grey and a red line at once. Right: μ of one step of the solver;"
            " there it lies on the circle and a red ray.",
            partial(draw_eigenvalues, found),
            look_for="A pair of markers near the circle and a red ray oscillates for long at the"
            " right frequency; markers inside the circle decay, those outside grow.",
            score=f"No pair oscillates at {time:g} s"
            if nearest is None
            else f"The nearest pair at {time:g} s has {first.frequencies[nearest]:.3g} Hz and"
            f" keeps {abs(first.step[nearest]):.1%} of its size in a step",
            arrays=eigenvalues,
        ),
    ]


def _locked_in(found: CaseDynamics) -> str:
    locked = int((found.lock_in <= BAND).sum())
    return f"{locked} of {len(found.lock_in)} anchors within {BAND:.0%}"


def frequency_table(found: CaseDynamics) -> PanelTable:
    """One row for each way to find the frequency, with its deviation from the solution's."""
    reference = found.reference_hz
    frequencies = {
        f"solution, {found.series_name}": reference,
        f"prediction, {found.series_name}": found.predicted_hz,
        f"latents together; {_locked_in(found)}": found.latent_hz,
    }
    for name, modes in zip(("solution", "prediction"), found.modes, strict=True):
        frequencies[f"DMD of the {name}, strongest pair"] = modes.leading_frequency()
    for time, each in found.jacobians:
        if (nearest := each.nearest(reference)) is None:
            frequencies[f"processor at {time:g} s: no pair oscillates"] = float("nan")
        else:
            grows = f"times {abs(each.step[nearest]):.3g} in a step"
            name = f"processor at {time:g} s, nearest pair ({grows})"
            frequencies[name] = float(each.frequencies[nearest])
    rows = [
        {
            "": name,
            "frequency (Hz)": f"{frequency:.3g}" if np.isfinite(frequency) else "none",
            "deviation": f"{abs(frequency - reference) / reference:.1%}"
            if np.isfinite(frequency)
            else "",
        }
        for name, frequency in frequencies.items()
    ]
    rows[0]["deviation"] = ""
    return PanelTable(rows, words=("",))


def _mark_horizon(axis: Axes, found: CaseDynamics) -> None:
    """Shade the steps that the model was trained on."""
    axis.axvspan(0, found.times[found.horizon - 1], color=MODEL_COLOR, alpha=0.07, lw=0)


def _mark_frequency(axis: Axes, found: CaseDynamics, label: str) -> None:
    """Mark the solution's frequency in a picture of spectra, and name the axes."""
    axis.axvline(found.reference_hz, color=LIMIT_COLOR, ls="--", lw=1.0)
    axis.set(xlabel="frequency (Hz)", ylabel=label)
    axis.grid(alpha=0.25)


def draw_rhythm(found: CaseDynamics) -> Figure:
    """Draw series, scalogram and drift side by side."""
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    series, middle, drifts = figure.subplots(1, 3)
    times, heat = found.times, found.scalogram
    series.plot(times, found.true_series[:, 0], color="#1d1f21", label="solution")
    series.plot(times, found.predicted_series[:, 0], color=MODEL_COLOR, label="prediction")
    _mark_horizon(series, found)
    name = found.series_name if found.probes is None else "transverse velocity (m/s)"
    series.set(xlabel=TIME, ylabel=name)
    series.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    decibels = {"vmin": -40, "vmax": 0, "cmap": "magma", "rasterized": True}
    drawn = middle.pcolormesh(times, heat.frequencies, heat.decibels, **decibels)
    pale = {"levels": (-0.5, 0.5), "colors": "white", "alpha": 0.45}
    middle.contourf(times, heat.frequencies, heat.trusted.astype(float), **pale)
    middle.axhline(found.reference_hz, color=LIMIT_COLOR, ls="--", lw=1.0)
    middle.plot(times, heat.peaks, ":", color="#7fd4ff", lw=1.6)
    middle.set(yscale="log", xlabel=TIME, ylabel="frequency (Hz)")
    middle.set_title(f"anchor {found.leading_anchor}, first component", fontsize=9, loc="left")
    figure.colorbar(drawn, ax=middle, label="dB", pad=0.01)
    drifts.axhspan(-BAND, BAND, color=GOOD_COLOR, alpha=0.12, lw=0)
    drifts.plot(times, found.drift, color=MODEL_COLOR)
    if found.lost_s is not None:
        drifts.axvline(found.lost_s, color=LIMIT_COLOR, ls="--", lw=1.0)
    _mark_horizon(drifts, found)
    reach = 1.1 * max(0.5, float(np.abs(found.drift).max()))
    drifts.set(xlabel=TIME, ylabel="drift of the frequency", ylim=(-reach, reach))
    drifts.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    drifts.grid(alpha=0.25)
    return figure


def draw_shedding(found: CaseDynamics, case: StoredCase) -> Figure:
    """Draw densities, densities times frequency, and a map of the probes where there are any."""
    ratios = (1, 1) if found.probes is None else (1, 1, 1.2)
    figure = Figure(figsize=(WIDTH, 3.7), layout="constrained")
    density, energy, *places = figure.subplots(1, len(ratios), width_ratios=ratios)
    styles = {"solution": "-", "prediction": "--"}
    top = 0.0
    for each, style in zip(found.spectra, styles.values(), strict=True):
        top = max(top, float(each.density[1:].max()))
        for axis, values in ((density, each.density), (energy, each.premultiplied)):
            for probe, of_probe in enumerate(values[1:].T):
                color = PALETTE[probe % len(PALETTE)]
                axis.plot(each.frequencies[1:], of_probe, style, color=color, lw=1.2)
    _mark_frequency(density, found, "PSD (unit² / Hz)")
    density.set(yscale="log", ylim=(1e-6 * (top or 1.0), None))
    names = [Line2D([], [], color="#555b61", ls=style) for style in styles.values()]
    density.legend(names, list(styles), frameon=False, fontsize=8, loc="upper right")
    _mark_frequency(energy, found, "f PSD")
    energy.set_ylim(0, None)
    for axis in places:
        assert found.probes is not None
        stride = -(-len(case.points) // 6_000)
        axis.plot(*case.points[::stride, :2].T, ".", ms=1.2, **CLOUD)
        if case.dataset.schema.boundary:
            axis.plot(*case.boundary.points[:, :2].T, ".", ms=2, color="#555b61", zorder=1)
        for number, place in enumerate(found.probes):
            color = PALETTE[number % len(PALETTE)]
            axis.plot(*place[:2], "o", ms=7, color=color, label=f"probe {number + 1}")
        axis.set(aspect="equal", xlabel="x (m)", ylabel="y (m)")
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": len(found.probes)}
        axis.legend(frameon=False, fontsize=8, **above)
    return figure


def draw_latents(found: CaseDynamics) -> Figure:
    """Draw series and spectra of two components: anchors of most and least power at the rhythm."""
    series = found.components.series[..., :2]
    spectra = spectrum(series, found.interval_s)
    strongest, weakest = shown_anchors(found.latent_spectra, found.reference_hz)
    lines = []
    for anchors, cmap, shades in (
        (strongest, "Blues_r", (0.0, 0.6)),
        (weakest, "Oranges_r", (0.2, 0.5)),
    ):
        places = np.linspace(*shades, len(anchors))
        lines += list(zip(anchors.tolist(), colormaps[cmap](places), strict=True))
    rows = series.shape[-1]
    figure = Figure(figsize=(WIDTH, 2.9 * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False, width_ratios=(1.5, 1))
    for row, (over_time, power) in enumerate(axes):
        for anchor, color in lines:
            name = f"anchor {anchor}"
            over_time.plot(found.times, series[:, anchor, row], color=color, lw=1, label=name)
            values = spectra.premultiplied[1:, anchor, row]
            power.plot(spectra.frequencies[1:], values, color=color, lw=1)
        _mark_horizon(over_time, found)
        share = found.components.explained[row]
        over_time.set(xlabel=TIME, ylabel=f"component {row + 1} ({share:.0%} of variance)")
        over_time.grid(alpha=0.25)
        _mark_frequency(power, found, f"f PSD of component {row + 1}")
        power.set_ylim(0, None)
    names = axes[0, 0].get_legend_handles_labels()
    figure.legend(*names, loc="outside upper center", ncols=10, frameon=False, fontsize=8)
    return figure


def draw_eigenvalues(found: CaseDynamics) -> Figure:
    """Draw lambda of the derivative and mu of the step; red: undamped at the solution's rhythm."""
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    derivative, step = figure.subplots(1, 2)
    for (time, each), color, marker in zip(found.jacobians, PALETTE, "osx", strict=False):
        style = {"marker": marker, "ls": "", "ms": 4.5, "mfc": "none", "color": color}
        for axis, values in ((derivative, each.derivative), (step, each.step)):
            axis.plot(values.real, values.imag, label=f"at {time:g} s", **style)
    first = found.jacobians[0][1]
    turn = 2 * np.pi * found.reference_hz * first.unit_s
    circle = np.linspace(0, 2 * np.pi, 200)
    step.plot(np.cos(circle), np.sin(circle), color="#b9bec4", lw=0.8)
    red = {"color": LIMIT_COLOR, "ls": "--", "lw": 1.0}
    angle = turn * first.step_size
    for sign in (1, -1):
        derivative.axhline(sign * turn, **red)
        step.plot([0, 1.3 * np.cos(angle)], [0, sign * 1.3 * np.sin(angle)], **red)
    derivative.axvline(0, color="#b9bec4", lw=0.8)
    derivative.set(xlabel="Re λ of the derivative", ylabel="Im λ")
    derivative.legend(frameon=False, fontsize=8, loc="best")
    step.set(aspect="equal", xlabel="Re μ of one step", ylabel="Im μ")
    for axis in (derivative, step):
        axis.grid(alpha=0.25)
    return figure


MOST_CASES, ROLLOUTS = 4, 24
"""Test cases that are rolled out, and rollouts of a split: `courant analyse monitor` takes more"""


def monitor_panel(context: Context) -> Panel | None:
    """Show departure and error; None for models without latents, and too few validation cases.

    Also None for an evaluation of the validation split, on which the monitor is calibrated. A run
    that has no monitor yet is calibrated for the picture alone: nothing is written to it.
    """
    surrogate, dataset = context.surrogate, context.dataset
    if context.evaluation.split == "validation" or not isinstance(surrogate.model, Evolves):
        return None
    try:
        monitor = surrogate.monitor or calibrate_monitor(surrogate, dataset, rollouts=ROLLOUTS)
    except InputError:
        return None
    names = dict.fromkeys([context.shown[0].case.id, *context.evaluation.cases])
    found = judge_monitor(surrogate, dataset, monitor, list(names)[:MOST_CASES], rollouts=ROLLOUTS)
    first = found.watched[0]
    flag, last = first.quality.flagged_at, float(first.times[-1])
    flagged, score = "is never flagged", f"No flag within {last:g} s"
    if flag is not None:
        at = first.times[flag - 1]
        flagged = f"is flagged at step {flag}, after {at:g} s (dashed)"
        score = f"Flag after {at:g} s of {last:g} s"
        if flag > 1:
            score += f", and an error of {first.errors[flag - 2]:.2g} std one step earlier"
    picture = Picture(
        "monitor.png",
        "Left: the departure of the latents from those of training rollouts; a value below one is"
        f" usual. Right: the true error. The rollout of case {first.case} (strong line) {flagged};"
        " other rollouts of its split are faint. The green band is the steps that the model was"
        f" trained on. Of {found.num_rollouts} rollouts of these {monitor.horizon} steps from"
        f" everywhere in the cases, {found.false_alarms:.0%} are flagged.",
        partial(draw_monitor, found),
        look_for="While the blue line is below the red one, the rollout is among states like those"
        " of the training.",
        score=score,
    )
    return Panel(
        "monitor",
        "Can this rollout be trusted?",
        [picture],
        note="The monitor reads only the latents (the vectors of the anchors), so it works where no"
        f" solution is known. `courant analyse monitor {context.run.url}` stores it in the run;"
        " then surrogate.predict(..., monitor=True) returns this curve with the prediction. A flag"
        " means that the latents have left the states of the training, not how large the error is."
        " A rollout that goes wrong within known states is not flagged.",
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
    left.axhline(1.0, color=LIMIT_COLOR, lw=1)
    left.annotate("flag", (0.995, 1.0), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    top = max(2.0, max(float(each.quality.departure.max()) for each in found.watched))
    left.set(ylabel="departure of the latents, over the limit", ylim=(0, 1.05 * min(top, 10.0)))
    right.set(ylabel="root mean square error (std)", ylim=(0, None))
    first = found.watched[0]
    trained = float(first.times[min(found.monitor.horizon, len(first.times)) - 1])
    flag = first.quality.flagged_at
    for axis in (left, right):
        axis.axvspan(0, trained, color=GOOD_COLOR, alpha=0.1, lw=0)
        if flag is not None:
            axis.axvline(float(first.times[flag - 1]), color=LIMIT_COLOR, lw=1, ls="--")
        axis.set(xlabel="time from the start of the rollout (s)", xlim=(0, float(first.times[-1])))
        axis.grid(alpha=0.25)
    return figure
