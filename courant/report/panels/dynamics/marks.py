"""Mark in pictures of a rollout what all of them share: the solution's frequency, the training."""

from __future__ import annotations

from matplotlib.axes import Axes

from courant.analysis.case_dynamics import CaseDynamics

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
