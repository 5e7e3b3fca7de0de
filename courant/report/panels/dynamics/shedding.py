"""Draw the spectra of the flow at each probe, and where the probes are."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from courant.analysis.case_dynamics import CaseDynamics
from courant.report.drawing import PALETTE, WIDTH
from courant.report.panels.dynamics.marks import dress_spectrum
from simgen.store.read import StoredCase

DRAWN_POINTS = 6_000
STYLES = {"solution": "-", "prediction": "--"}
LEAST = 1e-6
"""Of the largest density: what is drawn of the densities"""


def draw(found: CaseDynamics, case: StoredCase) -> Figure:
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
