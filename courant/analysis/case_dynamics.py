"""Follow long rollouts of cases.

Follow the rhythm of a rollout of a stored case: in the flow, in the latents, in the processor.

The rollout begins where training windows do and is as long as the case, or as asked, so that most
of it lies beyond the training horizon.

Measure on many cases whether long rollouts keep the frequency of the solution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from courant.analysis.frequencies import (
    BAND,
    MIN_SAMPLES,
    Components,
    Scalogram,
    Spectrum,
    change_frequency,
    drift,
    end_reach,
    frequency_range,
    lock_in_errors,
    lost_at,
    mean_frequency,
    principal_components,
    read_rhythm,
    scalogram,
    spectrum,
)
from courant.analysis.modes import (
    LEADING,
    Dmd,
    ModeComparison,
    Pod,
    StepSpectrum,
    dmd,
    latent_spectrum,
    pod,
    rolled_out,
)
from courant.field_model import Evolves
from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase

MAX_STEPS = 100
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
    pods: tuple[Pod, Pod]
    """POD of the same, of as many modes at most"""
    volumes: np.ndarray
    """(N,) of the cells"""
    probes: np.ndarray | None = None
    """(P, d) m, where the series are read; None where they are not of single places"""

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
    def anchor_hz(self) -> np.ndarray:
        """The frequency at which each anchor's first component changes fastest, (L,) Hz.

        NaN for an anchor that stands still.
        """
        series = self.components.series[..., 0].T
        return np.array([change_frequency(each[:, None], self.interval_s) for each in series])

    @cached_property
    def latent_hz(self) -> float:
        """The frequency at which the components of all anchors together change fastest, Hz."""
        series = self.components.series
        return change_frequency(series.reshape(len(series), -1), self.interval_s)

    @property
    def lock_in(self) -> np.ndarray:
        """The relative error of the frequency of each anchor's first component, (L,)."""
        return lock_in_errors(self.anchor_hz, self.reference_hz)

    @cached_property
    def scalogram(self) -> Scalogram:
        """The scalogram of the leading anchor's first component."""
        series = self.components.series[:, self.leading_anchor, 0]
        return scalogram(series, self.interval_s, self.reference_hz)

    @property
    def drift(self) -> np.ndarray:
        return drift(self.scalogram.peaks, self.reference_hz)

    @property
    def last_drift(self) -> float:
        """The drift at the last time on which the record's end has no influence.

        NaN where the rollout is too short to have one.
        """
        reach = end_reach(self.reference_hz)
        known = np.flatnonzero(
            (self.times - self.times[0] >= reach) & (self.times[-1] - self.times >= reach)
        )
        return float(self.drift[known[-1]]) if len(known) else float("nan")

    @property
    def lost_s(self) -> float | None:
        """When the leading anchor leaves the reference frequency, s from the start; None: never."""
        return lost_at(self.times, self.drift, self.reference_hz)


def follow_case(
    surrogate: Surrogate,
    case: StoredCase,
    *,
    steps: int = MAX_STEPS,
    at: Sequence[int] = (),
    exact_up_to: int = EXACT_UP_TO,
) -> CaseDynamics | None:
    """Roll a case out, at most `steps` and to its end; None where there is no rhythm on record.

    That is so of a steady model, of one without latents, of a flow that stands still, and of a case
    that is too short for a spectrum or for the frequency that it has. Eigenvalues are those after
    the steps `at` (from 1; none named: the first and the last), all of them for states of up to
    `exact_up_to` numbers.
    """
    step_s, start = surrogate.step_s, surrogate.problem.start(case)
    if step_s is None or start is None or case.time is None:
        return None
    steps = min(steps, int((case.time[-1] - start) / step_s + 1e-6))
    if not isinstance(surrogate.model, Evolves) or steps < MIN_SAMPLES:
        return None
    found = read_rhythm(surrogate, case, start)
    if found is None or not _is_resolved(found.frequency, steps, step_s):
        return None
    wanted = start + step_s * np.arange(1, steps + 1)
    frames = found.frames(wanted)
    predicted = surrogate.predict_case(case, start_s=start, steps=steps)
    latents = rolled_out(surrogate, surrogate.model, case, start, steps)[1:]
    std, rank = np.asarray(surrogate.normaliser.std, np.float32), min(DMD_RANK, steps // 2)
    states = (found.states[frames] / std, predicted / std)
    return CaseDynamics(
        times=wanted - start,
        interval_s=step_s,
        horizon=min(steps, surrogate.problem.num_steps),
        reference_hz=found.frequency,
        series_name=found.rhythm.name,
        true_series=found.series[frames],
        predicted_series=found.rhythm.read(predicted),
        components=principal_components(latents.cpu().numpy(), surrogate.problem.num_steps),
        find_jacobians=partial(
            _jacobians, surrogate.model, latents, at or (1, steps), step_s, exact_up_to
        ),
        modes=(
            dmd(states[0], found.volumes, step_s, rank),
            dmd(states[1], found.volumes, step_s, rank),
        ),
        pods=(pod(states[0], found.volumes, rank), pod(states[1], found.volumes, rank)),
        volumes=found.volumes,
        probes=found.rhythm.places,
    )


def rhythm_scores(found: CaseDynamics) -> dict[str, float]:
    """Return how well the rollout keeps the solution's rhythm."""
    # Times are those after each step: a rollout that never had the frequency is lost at the first.
    lost, end = found.lost_s, float(found.times[-1] - found.times[0])
    return {
        "frequency_error": abs(found.predicted_hz - found.reference_hz) / found.reference_hz,
        "locked_in": float((found.lock_in <= BAND).mean()),
        "rhythm_kept": 1.0 if lost is None else (lost - float(found.times[0])) / end,
    }


def _is_resolved(reference: float, steps: int, step_s: float) -> bool:
    """Tell whether so many steps can show a frequency."""
    try:
        low, high = frequency_range(steps, step_s, reference)
    except ValueError:
        return False
    return low < reference < high


def _jacobians(
    model: Evolves, latents: torch.Tensor, at: Sequence[int], step_s: float, exact_up_to: int
) -> tuple[tuple[float, StepSpectrum], ...]:
    """Return times and eigenvalues after some steps, of states (T, L, d) from the first step on."""
    return tuple(
        (step * step_s, latent_spectrum(model, latents[step - 1], step_s, exact_up_to))
        for step in at
    )


STEPS = 40
"""Steps of the paper's long rollouts"""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CaseFrequencies:
    """The frequencies of one rollout in Hz, NaN where nothing swings."""

    case: str
    steps: int
    duration_s: float
    series_name: str
    reference_hz: float
    """Of the solution, from all its snapshots"""
    predicted_hz: float
    """Of the prediction, where `reference_hz` was read"""
    true_dmd_hz: float
    """Of the strongest oscillating DMD mode of the solution, in the rollout's time"""
    dmd_hz: float
    """The same of the prediction"""
    latent_hz: float
    """At which the latents of all anchors together change fastest"""
    locked_in: float
    """Share of the anchors whose first component has the reference's frequency within 20 %"""
    drift: float
    """Of the leading anchor's frequency at the end, relative; NaN for a rollout too short"""
    modes: ModeComparison
    """POD and DMD of the solution and of the prediction"""
    lost_s: float | None
    """When the leading anchor leaves the reference's frequency for good; None: never"""

    @classmethod
    def of(cls, case: str, found: CaseDynamics) -> CaseFrequencies:
        true_modes, modes = found.modes
        return cls(
            case=case,
            steps=len(found.times),
            duration_s=float(found.times[-1]),
            series_name=found.series_name,
            reference_hz=found.reference_hz,
            predicted_hz=found.predicted_hz,
            true_dmd_hz=true_modes.leading_frequency(),
            dmd_hz=modes.leading_frequency(),
            latent_hz=found.latent_hz,
            locked_in=rhythm_scores(found)["locked_in"],
            drift=found.last_drift,
            modes=ModeComparison.of(found.pods, found.modes, found.volumes),
            lost_s=found.lost_s,
        )

    def error(self, name: str) -> float:
        """Return |f - f_ref| / f_ref of one of the frequencies above, such as "dmd_hz"."""
        return abs(float(getattr(self, name)) - self.reference_hz) / self.reference_hz


FOUND = ("predicted_hz", "dmd_hz", "latent_hz")
"""Frequencies of a prediction, to be compared with the solution's"""


@dataclass(frozen=True)
class FrequencyStudy:
    """The cases whose solutions swing, and those that were left out."""

    cases: tuple[CaseFrequencies, ...]
    without: tuple[str, ...]
    """Cases that stand still, or are too short to tell their frequency"""

    @property
    def medians(self) -> dict[str, float]:
        """Return medians over the cases: errors of the frequencies, lock-in, drift, time kept.

        NaN where no case has the number. A rollout that never loses the frequency keeps it over
        its whole duration.
        """
        kept = [
            1.0 if each.lost_s is None else each.lost_s / each.duration_s for each in self.cases
        ]
        return {
            **{
                f"{name}_error": _median([each.error(name) for each in self.cases])
                for name in FOUND
            },
            "locked_in": _median([each.locked_in for each in self.cases]),
            "absolute_drift": _median([abs(each.drift) for each in self.cases]),
            "kept": _median(kept),
        }

    def to_json(self) -> dict[str, Any]:
        """Return all numbers; those that are not known are null."""
        return {
            "medians": {name: _known(value) for name, value in self.medians.items()},
            "never_lost": sum(each.lost_s is None for each in self.cases),
            "without_rhythm": list(self.without),
            "cases": [
                {
                    **{name: _known(value) for name, value in vars(each).items()},
                    "modes": each.modes.to_json(),
                    **{f"{name}_error": _known(each.error(name)) for name in FOUND},
                }
                for each in self.cases
            ],
        }


def study_frequencies(
    surrogate: Surrogate,
    dataset: Dataset,
    cases: Sequence[str],
    steps: int = STEPS,
    progress: Progress = lambda done, total: None,
    keep: Callable[[str, CaseDynamics], None] = lambda case, found: None,
) -> FrequencyStudy:
    """Roll cases out, at most `steps` and to their ends, and find the frequencies of each.

    `keep` gets each rollout, which is in memory for one case at a time. InputError for a steady
    model, and for one without latents that evolve.
    """
    if surrogate.step_s is None or not isinstance(surrogate.model, Evolves):
        raise InputError(
            f"{surrogate.url}: only rollouts of a model with latents have these frequencies, this"
            f" is a {surrogate.problem.kind} model of kind {surrogate.model.config.kind}"
        )
    found: list[CaseFrequencies] = []
    without: list[str] = []
    for number, case in enumerate(cases, start=1):
        followed = follow_case(surrogate, dataset[case], steps=steps)
        if followed is None:
            without.append(case)
        else:
            found.append(CaseFrequencies.of(case, followed))
            keep(case, followed)
        progress(number, len(cases))
    return FrequencyStudy(tuple(found), tuple(without))


def rhythm_arrays(found: CaseDynamics) -> dict[str, np.ndarray]:
    """Return what the frequencies of a rollout were found in; eigenvalues are not computed."""
    true_modes, modes = found.modes
    return {
        "time": found.times,
        "reference_frequency": np.array([found.reference_hz]),
        "true_series": found.true_series,
        "predicted_series": found.predicted_series,
        "components": found.components.series,
        "anchor_frequencies": found.anchor_hz,
        "lock_in_error": found.lock_in,
        "scalogram": found.scalogram.magnitude,
        "scalogram_frequencies": found.scalogram.frequencies,
        "peak_frequency": found.scalogram.peaks,
        "drift": found.drift,
        "true_pod_energies": found.pods[0].energies,
        "pod_energies": found.pods[1].energies,
        "true_pod_modes": found.pods[0].modes[:LEADING],
        "pod_modes": found.pods[1].modes[:LEADING],
        "true_dmd_frequencies": true_modes.frequencies,
        "true_dmd_growth_rates": true_modes.growth_rates,
        "dmd_frequencies": modes.frequencies,
        "dmd_growth_rates": modes.growth_rates,
    }


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else float("nan")


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
