"""Draw the latents of single anchors over a rollout: two components, and their spectra."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from courant.analysis.case_dynamics import CaseDynamics
from courant.analysis.frequencies import shown_anchors, spectrum
from courant.report.drawing import WIDTH
from courant.report.panels.dynamics.marks import TIME, dress_spectrum, mark_horizon

COMPONENTS = 2


def draw(found: CaseDynamics) -> Figure:
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
