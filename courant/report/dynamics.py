"""Figures of long rollouts: frequencies, modes, eigenvalues, and the monitor."""

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.dynamics import BAND, CaseDynamics, spectrum
from courant.analysis.monitoring import calibrate_monitor, judge_monitor
from courant.field_model import Evolves
from courant.report import drawing
from courant.report.context import Context
from courant.report.page import Panel, PanelTable, Picture
from simgen.errors import InputError
from simgen.publish.colours import MAGNITUDES
from simgen.store.read import StoredCase

TIME = "time from the start (s)"
LIMIT: drawing.Style = {"color": drawing.LIMIT_COLOR, "ls": "--", "lw": 1.0}


def rhythm_panel(context: Context) -> Panel | None:
    """Show series and spectra of the flow; None where there is no rhythm."""
    if (found := context.dynamics) is None:
        return None
    title, case = "Frequency of a long rollout", context.shown[0].case
    return Panel("frequencies", title, [rhythm_picture(found, case)], arrays=found.arrays())


def latents_panel(context: Context) -> Panel | None:
    """Show spectra at probes, latents and eigenvalues; None where there is no rhythm."""
    if (found := context.dynamics) is None:
        return None
    arrays = {}
    for number, (_, each) in enumerate(found.jacobians):
        arrays[f"derivative_eigenvalues_{number}"] = each.derivative
        arrays[f"step_eigenvalues_{number}"] = each.step
    return Panel(
        "latents",
        "Frequencies of the latents",
        [scalogram_picture(found), latents_picture(found), eigenvalues_picture(found)],
        [frequency_table(found)],
        note="Frequencies of the flow are peaks of a zero-padded periodogram. Latents also drift"
        " slowly, so theirs is the frequency at which they change fastest: of the principal"
        " components of all anchors, fitted on the steps that the model was trained on."
        " docs/analysis.md defines each number.",
        arrays=arrays,
    )


def frequency_table(found: CaseDynamics) -> PanelTable:
    """One row for each way to find the frequency, with its deviation from the solution's."""
    reference = found.reference_hz
    frequencies = {
        f"solution, {found.series_name}": reference,
        f"network, {found.series_name}": found.predicted_hz,
        f"latents together; {_locked_in(found)}": found.latent_hz,
    }
    for name, modes in zip(("solution", "network"), found.modes, strict=True):
        frequencies[f"DMD of the {name}, strongest pair"] = modes.leading_frequency()
    for time, each in found.jacobians:
        if (nearest := each.nearest(reference)) is not None:
            grows = f"times {abs(each.step[nearest]):.3g} in a step"
            name = f"processor at {time:g} s, nearest pair ({grows})"
            frequencies[name] = float(each.frequencies[nearest])
    rows = []
    for name, frequency in frequencies.items():
        row = {"": name, "frequency (Hz)": "none"}
        if np.isfinite(frequency):
            row["frequency (Hz)"] = f"{frequency:.3g}"
            row["deviation"] = f"{abs(frequency - reference) / reference:.1%}"
        rows.append(row)
    return PanelTable(rows, words=("",))


def _locked_in(found: CaseDynamics) -> str:
    locked = int((found.lock_in <= BAND).sum())
    return f"{locked} of {len(found.lock_in)} anchors within {BAND:.0%}"


def _mark_horizon(axis: Axes, found: CaseDynamics) -> None:
    """Shade the steps that the model was trained on."""
    axis.axvspan(0, found.times[found.horizon - 1], color=drawing.MODEL_COLOR, alpha=0.07, lw=0)


def fading(found: CaseDynamics) -> str:
    """Return from when on the rollout's oscillation has less than half of its size; or nothing."""
    period = max(2, round(1 / (found.reference_hz * found.interval_s)))
    series = np.stack([found.true_series[:, 0], found.predicted_series[:, 0]])
    solved, own = np.lib.stride_tricks.sliding_window_view(series, period, axis=1).std(axis=-1)
    first = int(np.flatnonzero([True, *(own >= 0.5 * solved)])[-1])
    if first == len(own):
        return ""
    since = f"from {found.times[first + period // 2]:g} s of {found.times[-1]:g} s on"
    return f"in a rollout the network's oscillation has less than half of its true size {since}"


def rhythm_picture(found: CaseDynamics, case: StoredCase) -> Picture:
    """Draw the series of the flow."""
    figure = Figure(figsize=(drawing.WIDTH, 3.2))
    series, times = figure.subplots(), found.times
    series.plot(times, found.true_series[:, 0], color="k", label="solution")
    series.plot(times, found.predicted_series[:, 0], color=drawing.MODEL_COLOR, label="network")
    _mark_horizon(series, found)
    name = found.series_name if found.probes is None else "transverse velocity (m/s)"
    series.set(xlabel=TIME, ylabel=name)
    series.legend(**drawing.ABOVE, ncols=2)
    late = slice(len(times) // 2, None)
    solved = float(np.std(found.true_series[late, 0])) or np.inf
    size = float(np.std(found.predicted_series[late, 0])) / solved
    where = ""
    if found.probes is not None:
        where = " at x = {:.3g} m, y = {:.3g} m".format(*found.probes[0, :2])
    return Picture(
        "frequencies.png",
        f"Case {case.id}{where}, rolled out over {times[-1]:g} s, of which the model was trained on"
        " the shaded part.",
        figure,
        look_for="The blue line should keep oscillating with the black one.",
        score=f"In the second half the network's oscillation has {size:.0%} of the size of the"
        f" solution's; what is left has {found.predicted_hz:.3g} Hz, the solution"
        f" {found.reference_hz:.3g} Hz, known to {1 / times[-1]:.1g} Hz in {times[-1]:g} s",
    )


def scalogram_picture(found: CaseDynamics) -> Picture:
    """Draw the scalogram of the leading anchor (fig:cf_latent_scalogram)."""
    figure = Figure(figsize=(drawing.WIDTH, 3.4))
    axis, times, heat = figure.subplots(), found.times, found.scalogram
    decibels: drawing.Style = {"vmin": -40, "vmax": 0, "cmap": MAGNITUDES, "rasterized": True}
    drawn = axis.pcolormesh(times, heat.frequencies, heat.decibels, **decibels)
    veil = np.where(heat.trusted, np.nan, 1.0)
    axis.pcolormesh(times, heat.frequencies, veil, cmap="gray", vmin=0, vmax=1, alpha=0.7)
    axis.axhline(found.reference_hz, **LIMIT)
    axis.plot(times, heat.peaks, color="white", lw=4, alpha=0.6)
    axis.plot(times, heat.peaks, ":", color=drawing.MODEL_COLOR, lw=2.2)
    # With room for a line on the lowest frequency.
    axis.set(yscale="log", ylim=(0.9 * heat.frequencies.min(), None))
    axis.set(xlabel=TIME, ylabel="frequency (Hz)")
    axis.set_title(f"anchor {found.leading_anchor}, first component")
    axis.grid(visible=False)
    figure.colorbar(drawn, ax=axis, label="dB", pad=0.01)
    kept = "to the end" if found.lost_s is None else f"until {found.lost_s:g} s"
    return Picture(
        "scalogram.png",
        "The strength of each frequency in the leading anchor. Its strongest is dotted, the"
        " solution's is red. Under the white veil the ends of the record change the strength.",
        figure,
        look_for="The dotted line should stay on the red one.",
        score=f"The leading anchor's frequency is within {BAND:.0%} of it {kept}",
    )


def latents_picture(found: CaseDynamics) -> Picture:
    """Draw series and spectra of two components: anchors of most and least power at the rhythm."""
    series = found.components.series[..., :2]
    spectra, rows = spectrum(series, found.interval_s), series.shape[-1]
    order, lines = np.argsort(-found.latent_spectra.at(found.reference_hz), kind="stable"), []
    # As many as the paper's figure shows.
    for anchors, cmap, shades in (
        (order[:7], "Blues_r", (0.0, 0.6)),
        (order[7:][-3:], "Oranges_r", (0.2, 0.5)),
    ):
        colors = colormaps[cmap](np.linspace(*shades, len(anchors)))
        lines += list(zip(anchors.tolist(), colors, strict=True))
    figure = Figure(figsize=(drawing.WIDTH, 2.9 * rows + 0.6))
    axes = figure.subplots(rows, 2, squeeze=False, width_ratios=(1.5, 1))
    frequencies = spectra.frequencies[1:]
    for row, (over_time, power) in enumerate(axes):
        for anchor, color in lines:
            style: drawing.Style = {"color": color, "lw": 1}
            over_time.plot(found.times, series[:, anchor, row], label=f"anchor {anchor}", **style)
            # Its area over log f is the variance.
            power.plot(frequencies, frequencies * spectra.density[1:, anchor, row], **style)
        _mark_horizon(over_time, found)
        share = found.components.explained[row]
        over_time.set(xlabel=TIME, ylabel=f"component {row + 1} ({share:.0%} of variance)")
        power.axvline(found.reference_hz, **LIMIT)
        power.set(xlabel="frequency (Hz)", ylabel=f"f PSD of component {row + 1}", ylim=(0, None))
    drawing.legend_above(figure, axes[0, :1].tolist())
    return Picture(
        "latents.png",
        "Each line is one anchor: its latent on the two directions in which latents vary most"
        " within the steps of the training (shaded). Blue anchors have most power at the frequency"
        " of the solution (red), orange ones least.",
        figure,
        look_for="Anchors whose lines oscillate and peak at the red line follow the rhythm of the"
        " flow; flat lines hold its steady part.",
        score=f"{_locked_in(found)} of the frequency",
    )


def eigenvalues_picture(found: CaseDynamics) -> Picture:
    """Draw mu of the step in the complex plane; red: undamped at the solution's rhythm."""
    figure = Figure(figsize=(0.5 * drawing.WIDTH, 4.6))
    axis = figure.subplots()
    for marker, (time, each) in zip("os", found.jacobians, strict=False):
        eigenvalues, name = (each.step.real, each.step.imag), f"at {time:g} s"
        axis.plot(*eigenvalues, marker, ms=4.5, mfc="none", label=name)
    time, first = found.jacobians[0]
    angle = 2 * np.pi * found.reference_hz * first.unit_s * first.step_size
    circle = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(circle), np.sin(circle), color="#b9bec4", lw=0.8)
    for sign in (1, -1):
        axis.plot([0, 1.3 * np.cos(angle)], [0, sign * 1.3 * np.sin(angle)], **LIMIT)
    axis.set(aspect="equal", xlabel="Re μ of one step", ylabel="Im μ")
    axis.legend(loc="best")
    nearest, score = first.nearest(found.reference_hz), f"No pair oscillates at {time:g} s"
    if nearest is not None:
        score = (
            f"The nearest pair at {time:g} s has {first.frequencies[nearest]:.3g} Hz and keeps"
            f" {abs(first.step[nearest]):.1%} of its size in a step"
        )
    return Picture(
        "eigenvalues.png",
        f"{'All' if first.exact else 'The largest'} eigenvalues of one step of the processor,"
        f" {' and '.join(f'at {time:g} s' for time, _ in found.jacobians)} of the rollout. An"
        " undamped oscillation at the frequency of the solution lies on the circle and a red ray.",
        figure,
        look_for="A pair of markers near the circle and a red ray oscillates for long at the"
        " right frequency; markers inside the circle decay, those outside grow.",
        score=score,
    )


#: Test cases, and rollouts of a split; `courant analyse monitor` takes more.
MOST_CASES, ROLLOUTS = 4, 24


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
    times, departure, flag = first.times, first.quality.departure, first.quality.flagged_at
    figure = Figure(figsize=(drawing.WIDTH, 3.4))
    left, right = figure.subplots(1, 2)
    for each in reversed(found.watched):
        style = {"lw": 1.8} if each is first else {"lw": 0.8, "alpha": 0.35}
        left.plot(each.times, each.quality.departure, color=drawing.PALETTE[0], **style)
        right.plot(each.times, each.errors, color=drawing.PALETTE[1], **style)
    left.axhline(1.0, color=drawing.LIMIT_COLOR, lw=1)
    top = max(2.0, max(float(each.quality.departure.max()) for each in found.watched))
    left.set(ylabel="departure of the latents, over the limit", ylim=(0, 1.05 * min(top, 10.0)))
    right.set(ylabel="root mean square error (std)", ylim=(0, None))
    trained = float(times[min(monitor.horizon, len(times)) - 1])
    flagged, score = "is never flagged", f"No flag within {times[-1]:g} s"
    for axis in (left, right):
        axis.axvspan(0, trained, color=drawing.GOOD_COLOR, alpha=0.1, lw=0)
        axis.set(xlabel="time from the start of the rollout (s)", xlim=(0, float(times[-1])))
        if flag is not None:
            axis.axvline(float(times[flag - 1]), **LIMIT)
    if flag is not None:
        flagged = f"is flagged at step {flag}, after {times[flag - 1]:g} s (dashed)"
        score = f"Flag after {times[flag - 1]:g} s of {times[-1]:g} s"
    if context.dynamics and (faded := fading(context.dynamics)):
        score += f"; {faded}"
    picture = Picture(
        "monitor.png",
        "Left: the departure of the network's latents from those of training rollouts, usually"
        " below one (red line). Right: the true error. The rollout of case"
        f" {first.case} (strong line) {flagged}; other rollouts are faint, the steps of the"
        " training green."
        f" Of {found.num_rollouts} rollouts over no more than these {monitor.horizon} steps"
        f" {round(found.false_alarms * found.num_rollouts) or 'none'} had a flag.",
        figure,
        look_for="While the blue line is below the red one, the rollout is among states like those"
        " of the training.",
        score=score,
    )
    return Panel(
        "monitor",
        "Can this rollout be trusted?",
        [picture],
        note="The monitor reads only the latents (the vectors of the anchors), so it works where no"
        f" solution is known. `courant analyse monitor {context.run.url!r}` stores it in the"
        " run; then surrogate.rollout_quality(surrogate.prepare(...)) returns this curve. A flag"
        " means that the latents have left the states of the training, not how large the error is."
        " A rollout that goes wrong within known states is not flagged.",
        arrays={"times": times, "departure": departure, "error": first.errors},
    )
