"""Follow the rhythm of a rollout of a stored case: in the flow, in the latents, in the processor.

The rollout begins where training windows do and is as long as the case, but for a limit, so that
most of it lies beyond the training horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch

from courant.analysis.dynamics import scalogram
from courant.analysis.dynamics.frequencies import (
    MIN_SAMPLES,
    Spectrum,
    lock_in_errors,
    peak_frequency,
    spectrum,
)
from courant.analysis.dynamics.jacobian import StepSpectrum, spectrum_at
from courant.analysis.dynamics.latent_components import Components, principal_components
from courant.analysis.dynamics.modes import Dmd, dmd
from courant.analysis.dynamics.probes import reference_rhythm
from courant.data.trajectories import read_states, time_tolerance
from courant.field_model import Evolves
from courant.prediction.surrogate import Surrogate
from simgen.store.access.stored_case import StoredCase

MAX_STEPS = 100
STEADY = 0.05
"""A rhythm weaker than this share of the training's standard deviation counts as none"""
DMD_RANK = 12
EXACT_UP_TO = 1024
"""Numbers in a state up to which all eigenvalues are computed: more would take minutes"""


@dataclass(frozen=True)
class CaseDynamics:
    """A rollout of T steps beside the stored solution, `interval_s` apart."""

    times: np.ndarray
    """(T,) s from the rollout's start"""
    interval_s: float
    horizon: int
    """Steps that the model was trained on"""
    reference_hz: float
    """The frequency of the solution, from all its snapshots"""
    series_name: str
    true_series: np.ndarray
    """(T, P), at the rollout's times"""
    predicted_series: np.ndarray
    """(T, P)"""
    components: Components
    find_jacobians: Callable[[], tuple[tuple[float, StepSpectrum], ...]]
    modes: tuple[Dmd, Dmd]
    """DMD of solution and prediction at the rollout's times"""

    @cached_property
    def jacobians(self) -> tuple[tuple[float, StepSpectrum], ...]:
        """Return time in s and eigenvalues there; of a large model they take a while."""
        return self.find_jacobians()

    @cached_property
    def predicted_hz(self) -> float:
        return mean_frequency(self.predicted_series, self.interval_s)

    @cached_property
    def spectra(self) -> tuple[Spectrum, Spectrum]:
        """Welch spectra of solution and prediction, at the rollout's times."""
        return tuple(  # type: ignore[return-value]
            spectrum(series, self.interval_s)
            for series in (self.true_series, self.predicted_series)
        )

    @cached_property
    def latent_spectra(self) -> Spectrum:
        """Welch spectra of each anchor's first component: (F, L)."""
        return spectrum(self.components.series[..., 0], self.interval_s)

    @cached_property
    def leading_anchor(self) -> int:
        """The anchor with most power at the reference frequency."""
        return int(np.argmax(self.latent_spectra.at(self.reference_hz)))

    @cached_property
    def lock_in(self) -> np.ndarray:
        """The relative error of the frequency of each anchor's first component, (L,).

        NaN for an anchor that stands still.
        """
        series = self.components.series[..., 0]
        found = [
            peak_frequency(each - each.mean(), self.interval_s) if np.ptp(each) else np.nan
            for each in series.T
        ]
        return lock_in_errors(np.array(found), self.reference_hz)

    @cached_property
    def scalogram(self) -> scalogram.Scalogram:
        """The scalogram of the leading anchor's first component."""
        series = self.components.series[:, self.leading_anchor, 0]
        return scalogram.scalogram(series, self.interval_s, self.reference_hz)

    @property
    def drift(self) -> np.ndarray:
        return scalogram.drift(self.scalogram.peaks, self.reference_hz)

    @property
    def lost_s(self) -> float | None:
        """When the leading anchor leaves the reference frequency, s from the start; None: never."""
        return scalogram.lost_at(self.times, self.drift, self.reference_hz)


def follow_case(surrogate: Surrogate, case: StoredCase) -> CaseDynamics | None:
    """Roll a case out to its end, at most 100 steps; None where there is no rhythm on record.

    That is so of a steady model, of one without latents, of a flow that stands still, and of a case
    that is too short for a spectrum or for the frequency that it has.
    """
    step_s, start = surrogate.step_s, surrogate.problem.start(case)
    if step_s is None or start is None or case.time is None:
        return None
    steps = min(MAX_STEPS, int((case.time[-1] - start) / step_s + 1e-6))
    if not isinstance(surrogate.model, Evolves) or steps < MIN_SAMPLES:
        return None
    std = np.asarray(surrogate.normaliser.std, np.float32)
    late = np.flatnonzero(case.time >= start - time_tolerance(case.time))
    solved = read_states(case, surrogate.normaliser.channels, slice(int(late[0]), None))
    volumes = case.volumes if case.dataset.schema.volumes else np.ones(case.num_points)
    rhythm = reference_rhythm(
        solved, surrogate.channels, std, case.points, volumes, case.parameters
    )
    interval = float(np.diff(case.time[late]).mean())
    series = rhythm.read(solved)
    if rhythm.strength(series) <= STEADY:
        return None
    reference = mean_frequency(series, interval)
    if not _is_resolved(reference, steps, step_s):
        return None
    wanted = start + step_s * np.arange(1, steps + 1)
    frames = np.abs(case.time[late][None] - wanted[:, None]).argmin(axis=1)
    predicted = surrogate.predict_case(case, start_s=start, steps=steps)
    latents = _latents(surrogate, surrogate.model, case, start, steps)
    rank = min(DMD_RANK, steps // 2)
    return CaseDynamics(
        times=wanted - start,
        interval_s=step_s,
        horizon=min(steps, surrogate.problem.num_steps),
        reference_hz=reference,
        series_name=rhythm.name,
        true_series=series[frames],
        predicted_series=rhythm.read(predicted),
        components=principal_components(latents.cpu().numpy(), surrogate.problem.num_steps),
        find_jacobians=partial(_jacobians, surrogate.model, latents, wanted - start, step_s),
        modes=(
            dmd(solved[frames] / std, volumes, step_s, rank),
            dmd(predicted / std, volumes, step_s, rank),
        ),
    )


def rhythm_scores(found: CaseDynamics) -> dict[str, float]:
    """Return how well the rollout keeps the solution's rhythm."""
    # Times are those after each step: a rollout that never had the frequency is lost at the first.
    lost, end = found.lost_s, float(found.times[-1] - found.times[0])
    return {
        "frequency_error": abs(found.predicted_hz - found.reference_hz) / found.reference_hz,
        "locked_in": float((found.lock_in <= scalogram.BAND).mean()),
        "rhythm_kept": 1.0 if lost is None else (lost - float(found.times[0])) / end,
    }


def mean_frequency(series: np.ndarray, interval_s: float) -> float:
    """Return the mean over series (T, P) of their dominant frequencies, Hz."""
    centred = series - series.mean(axis=0)
    return float(np.mean([peak_frequency(each, interval_s) for each in centred.T]))


def _is_resolved(reference: float, steps: int, step_s: float) -> bool:
    """Tell whether so many steps can show a frequency."""
    try:
        low, high = scalogram.frequency_range(steps, step_s, reference)
    except ValueError:
        return False
    return low < reference < high


def _latents(
    surrogate: Surrogate, model: Evolves, case: StoredCase, start: float, steps: int
) -> torch.Tensor:
    """Return the latents of the rollout, (T, L, d)."""
    inputs, _ = surrogate.model_inputs(case, start)
    with torch.no_grad():
        return model.rollout(model.encode(inputs), steps)[0]


def _jacobians(
    model: Evolves, latents: torch.Tensor, times: Sequence[float] | np.ndarray, unit_s: float
) -> tuple[tuple[float, StepSpectrum], ...]:
    """Return eigenvalues at the first and at the last state."""
    return tuple(
        (
            float(times[at]),
            spectrum_at(
                lambda Z: model.derivative(Z[None])[0],
                latents[at],
                model.inner_step,
                unit_s,
                solver=model.inner_solver,
                exact_up_to=EXACT_UP_TO,
            ),
        )
        for at in (0, len(latents) - 1)
    )
