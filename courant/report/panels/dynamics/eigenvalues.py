"""Draw the eigenvalues of the processor: of its derivative, and of one step."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from courant.analysis.case_dynamics import CaseDynamics
from courant.analysis.modes import StepSpectrum
from courant.report.drawing import PALETTE, WIDTH
from courant.report.panels.dynamics.marks import REFERENCE

MARKERS = ("o", "s", "x")


def draw(found: CaseDynamics) -> Figure:
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
