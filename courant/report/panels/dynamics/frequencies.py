"""Show the rhythm of a long rollout: in the flow, in the latents, and in the processor."""

from __future__ import annotations

import numpy as np

from courant.analysis.case_dynamics import CaseDynamics
from courant.analysis.frequencies import BAND
from courant.analysis.modes import StepSpectrum
from courant.report.context import Context
from courant.report.panel import Cell, Column, Panel, PanelFigure, Table
from courant.report.panels.dynamics import eigenvalues, latents, rhythm, shedding
from simgen.store.read import StoredCase


def panel(context: Context) -> Panel | None:
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
            rhythm.draw(found),
            _caption(found, case.id),
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
            shedding.draw(found, case),
            _shedding_caption(found),
            look_for="Solid and dashed lines of one colour should peak together, at the red line.",
            score=_peaks(found),
            arrays=("spectrum_frequencies", "true_spectrum", "predicted_spectrum"),
        ),
        PanelFigure(
            "latents.png",
            latents.draw(found),
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
            eigenvalues.draw(found),
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


def _caption(found: CaseDynamics, case: str) -> str:
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
