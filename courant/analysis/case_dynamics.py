"""The dynamics of a model in long rollouts of stored cases: frequencies, modes, eigenvalues.

A rollout begins where training windows do and is as long as the case, or as asked, so that most of
it lies beyond the training horizon. Its frequencies are those in the flow, in the latents and of
the processor, beside the solution's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch

from courant.analysis import Progress, dynamics
from courant.evaluation.metrics import finite_or_none
from courant.field_model import Evolves
from courant.prediction.surrogate import Surrogate
from courant.problems.problem import read_states
from courant.problems.transient import time_tolerance
from simgen.store.read import Dataset, StoredCase

STEPS = 40  # of the paper's long rollouts
MAX_STEPS = 100
DMD_RANK = 12
FEW_NUMBERS = 1024  # in a state, up to which a report computes all eigenvalues: more take minutes
STEADY = 0.05  # a rhythm weaker than this share of the training's standard deviation is none


@dataclass(frozen=True)
class CaseDynamics:
    """A rollout of T steps beside the stored solution, `interval_s` apart."""

    times: np.ndarray  # (T,) s from the rollout's start
    interval_s: float
    horizon: int  # steps that the model was trained on
    reference_hz: float  # the frequency of the solution, from all its snapshots
    series_name: str
    true_series: np.ndarray  # (T, P), at the rollout's times
    predicted_series: np.ndarray  # (T, P)
    modes: tuple[dynamics.Dmd, dynamics.Dmd]  # of solution and prediction at the rollout's times
    pods: tuple[dynamics.Pod, dynamics.Pod]  # of the same, of as many modes at most
    volumes: np.ndarray  # (N,) of the cells
    probes: np.ndarray | None  # (P, d) m, where the series are read; None for no single places
    model: Evolves
    latents: torch.Tensor  # (T, L, d)

    @cached_property
    def jacobians(self) -> tuple[tuple[float, dynamics.StepSpectrum], ...]:
        """Time in s and eigenvalues after the first and the last step; they take a while."""
        states = {step * self.interval_s: self.latents[step - 1] for step in (1, len(self.times))}
        return tuple(
            (time, _latent_spectrum(self.model, state, self.interval_s, FEW_NUMBERS))
            for time, state in states.items()
        )

    @cached_property
    def components(self) -> dynamics.Components:
        """The latents' principal components, fitted on the training's steps."""
        return dynamics.principal_components(self.latents.cpu().numpy(), self.horizon)

    @cached_property
    def predicted_hz(self) -> float:
        return dynamics.mean_frequency(self.predicted_series, self.interval_s)

    @cached_property
    def spectra(self) -> tuple[dynamics.Spectrum, dynamics.Spectrum]:
        """Welch spectra of solution and prediction, at the rollout's times."""
        true = dynamics.spectrum(self.true_series, self.interval_s)
        return true, dynamics.spectrum(self.predicted_series, self.interval_s)

    @cached_property
    def latent_spectra(self) -> dynamics.Spectrum:
        """Welch spectra of each anchor's first component: (F, L)."""
        return dynamics.spectrum(self.components.series[..., 0], self.interval_s)

    @cached_property
    def leading_anchor(self) -> int:
        """The anchor with most power at the reference frequency."""
        return int(np.argmax(self.latent_spectra.at(self.reference_hz)))

    @cached_property
    def anchor_hz(self) -> np.ndarray:
        """Where each anchor's first component changes fastest, (L,) Hz; NaN if it is constant."""
        columns = self.components.series[..., 0].T[..., None]
        return np.array([dynamics.change_frequency(each, self.interval_s) for each in columns])

    @cached_property
    def latent_hz(self) -> float:
        """The frequency at which the components of all anchors together change fastest, Hz."""
        series = self.components.series
        return dynamics.change_frequency(series.reshape(len(series), -1), self.interval_s)

    @property
    def lock_in(self) -> np.ndarray:
        """The relative error of the frequency of each anchor's first component, (L,)."""
        return np.abs(self.anchor_hz - self.reference_hz) / self.reference_hz

    @cached_property
    def scalogram(self) -> dynamics.Scalogram:
        """The scalogram of the leading anchor's first component."""
        series = self.components.series[:, self.leading_anchor, 0]
        return dynamics.scalogram(series, self.interval_s, self.reference_hz)

    @property
    def drift(self) -> np.ndarray:
        """(f - f_ref) / f_ref of the scalogram's peaks, (T,)."""
        return (self.scalogram.peaks - self.reference_hz) / self.reference_hz

    @property
    def lost_s(self) -> float | None:
        """When the leading anchor leaves the reference frequency, s from the start; None: never."""
        return dynamics.lost_at(self.times, self.drift, self.reference_hz)

    def scores(self) -> dict[str, float]:
        """Return how well the rollout keeps the solution's rhythm."""
        # Times are those after each step: a rollout without the frequency is lost at the first.
        first, last, lost = float(self.times[0]), float(self.times[-1]), self.lost_s
        return {
            "frequency_error": abs(self.predicted_hz - self.reference_hz) / self.reference_hz,
            "locked_in": float((self.lock_in <= dynamics.BAND).mean()),
            "rhythm_kept": 1.0 if lost is None else (lost - first) / (last - first),
        }

    def record(self, case: str) -> dict[str, Any]:
        """Return the frequencies in Hz and all else that a study lists; None for what is unknown.

        `drift` is that of the leading anchor at the last time on which the end has no influence.
        """
        times, reference = self.times, self.reference_hz
        reach = dynamics.end_reach(reference)
        inner = self.drift[(times - times[0] >= reach) & (times[-1] - times >= reach)]
        true_dmd, dmd = (each.leading_frequency() for each in self.modes)
        found = {"predicted_hz": self.predicted_hz, "dmd_hz": dmd, "latent_hz": self.latent_hz}
        numbers = {
            "duration_s": float(times[-1]),
            "reference_hz": reference,
            "true_dmd_hz": true_dmd,
            **found,
            **{f"{key}_error": abs(each - reference) / reference for key, each in found.items()},
            "locked_in": self.scores()["locked_in"],
            "drift": inner[-1] if len(inner) else np.nan,
        }
        return {
            "case": case,
            "steps": len(times),
            "series_name": self.series_name,
            **{key: finite_or_none(each) for key, each in numbers.items()},
            "lost_s": self.lost_s,
            "modes": dynamics.compare_modes(self.pods, self.modes, self.volumes),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what the frequencies were found in; eigenvalues are not computed."""
        true, predicted = self.spectra
        found = {
            "time": self.times,
            "reference_frequency": np.array([self.reference_hz]),
            "true_series": self.true_series,
            "predicted_series": self.predicted_series,
            "components": self.components.series,
            "anchor_frequencies": self.anchor_hz,
            "lock_in_error": self.lock_in,
            "scalogram": self.scalogram.magnitude,
            "scalogram_frequencies": self.scalogram.frequencies,
            "peak_frequency": self.scalogram.peaks,
            "drift": self.drift,
            "spectrum_frequencies": true.frequencies,
            "true_spectrum": true.density,
            "predicted_spectrum": predicted.density,
            **({} if self.probes is None else {"probes": self.probes}),
        }
        for name, pod, dmd in zip(("true_", ""), self.pods, self.modes, strict=True):
            found[f"{name}pod_energies"] = pod.energies
            found[f"{name}pod_modes"] = pod.modes[: dynamics.LEADING]
            found[f"{name}dmd_frequencies"] = dmd.frequencies
            found[f"{name}dmd_growth_rates"] = dmd.growth_rates
        return found


@dataclass(frozen=True)
class CaseRhythm:
    """The F snapshots of a solution from some time on, and their frequency."""

    times: np.ndarray  # (F,) s
    states: np.ndarray  # (F, N, C)
    volumes: np.ndarray  # (N,), ones where the dataset has none
    rhythm: dynamics.Rhythm
    series: np.ndarray  # what the rhythm is read from, (F, P)
    frequency: float  # Hz, from all these snapshots


def read_rhythm(surrogate: Surrogate, case: StoredCase, start: float) -> CaseRhythm | None:
    """Return the rhythm of a case from `start` s on; None for a steady flow."""
    assert case.time is not None
    late = np.flatnonzero(case.time >= start - time_tolerance(case.time))
    if len(late) < 2:
        return None
    states = read_states(case, surrogate.normaliser.channels, slice(int(late[0]), None))
    std = np.asarray(surrogate.normaliser.std, np.float32)
    volumes = case.volumes if case.dataset.schema.volumes else np.ones(case.num_points)
    rhythm = dynamics.reference_rhythm(
        states, surrogate.channels, std, case.points, volumes, case.parameters
    )
    series = rhythm.read(states)
    if rhythm.strength(series) <= STEADY:
        return None
    times = np.asarray(case.time[late])
    frequency = dynamics.mean_frequency(series, float(np.diff(times).mean()))
    return CaseRhythm(times, states, volumes, rhythm, series, frequency)


def follow_case(
    surrogate: Surrogate, case: StoredCase, *, steps: int = MAX_STEPS, start_s: float | None = None
) -> CaseDynamics | None:
    """Roll a case out, at most `steps` and to its end; None where there is no rhythm.

    From `start_s`, or from where training windows begin, which may be before vortices are shed.
    A steady model or flow has none, nor a model without latents, nor a case too short to show it.
    """
    step_s, model = surrogate.step_s, surrogate.model
    start = surrogate.problem.start(case, start_s)
    if step_s is None or start is None or case.time is None:
        return None
    steps = min(steps, int((case.time[-1] - start) / step_s + 1e-6))
    if not isinstance(model, Evolves) or steps < dynamics.MIN_SAMPLES:
        return None
    found = read_rhythm(surrogate, case, start)
    if found is None:
        return None
    low, high = dynamics.frequency_range(steps, step_s, found.frequency)
    if not low < found.frequency < high:
        return None
    wanted = start + step_s * np.arange(1, steps + 1)
    frames = np.abs(found.times[None] - wanted[:, None]).argmin(axis=1)
    predicted = surrogate.predict_case(case, start_s=start, steps=steps)
    latents = surrogate.rollout_latents(surrogate.prepare_case(case, start, steps))
    std, rank = np.asarray(surrogate.normaliser.std, np.float32), min(DMD_RANK, steps // 2)
    volumes, true, ours = found.volumes, found.states[frames] / std, predicted / std
    return CaseDynamics(
        times=wanted - start,
        interval_s=step_s,
        horizon=min(steps, surrogate.problem.num_steps),
        reference_hz=found.frequency,
        series_name=found.rhythm.name,
        true_series=found.series[frames],
        predicted_series=found.rhythm.read(predicted),
        modes=(
            dynamics.dmd(true, volumes, step_s, rank),
            dynamics.dmd(ours, volumes, step_s, rank),
        ),
        pods=(dynamics.pod(true, volumes, rank), dynamics.pod(ours, volumes, rank)),
        volumes=volumes,
        probes=found.rhythm.places,
        model=model,
        latents=latents[1:],
    )


def study_frequencies(
    surrogate: Surrogate,
    dataset: Dataset,
    cases: Sequence[str],
    steps: int = STEPS,
    progress: Progress = lambda done, total: None,
    keep: Callable[[str, CaseDynamics], None] = lambda case, found: None,
    start_s: float | None = None,
) -> dict[str, Any]:
    """Roll cases out, at most `steps` and to their ends, and find the frequencies of each.

    The study has the records of the `cases`, those `without_rhythm`, and `medians` over the cases.
    `keep` gets each rollout, which is in memory for one case at a time. InputError for a steady
    model, and for one without latents that evolve.
    """
    surrogate.check_evolves()
    found: list[dict[str, Any]] = []
    without: list[str] = []
    for number, case in enumerate(cases, start=1):
        followed = follow_case(surrogate, dataset[case], steps=steps, start_s=start_s)
        if followed is None:
            without.append(case)
        else:
            found.append(followed.record(case))
            keep(case, followed)
        progress(number, len(cases))
    medians = ["predicted_hz_error", "dmd_hz_error", "latent_hz_error", "locked_in"]
    table = pd.DataFrame(found, columns=[*medians, "drift", "lost_s", "duration_s"]).astype(float)
    table["absolute_drift"] = table["drift"].abs()
    table["kept"] = (table["lost_s"] / table["duration_s"]).fillna(1.0)
    of_cases = table[[*medians, "absolute_drift", "kept"]].median()
    return {
        "medians": {key: finite_or_none(value) for key, value in of_cases.items()},
        "never_lost": int(table["lost_s"].isna().sum()),
        "without_rhythm": without,
        "cases": found,
    }


def case_spectra(
    surrogate: Surrogate, case: StoredCase, at: Sequence[int], exact_up_to: int, progress: Progress
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Compute the eigenvalues after some steps of a rollout; none: a training window's ends.

    Returns a record with each state's longest-lasting pair and the one nearest to the flow's
    frequency, and arrays of all lambda and mu, the largest |mu| first. InputError for a steady
    model, and for one without latents that evolve.
    """
    model, start = surrogate.check_evolves(), surrogate.problem.start(case)
    assert surrogate.step_s is not None and start is not None
    chosen = sorted(set(at)) or [1, surrogate.problem.num_steps]
    prepared = surrogate.prepare_case(case, start, max(1, *chosen))
    latents = surrogate.rollout_latents(prepared)
    rhythm, step_s = read_rhythm(surrogate, case, start), surrogate.step_s
    reference = None if rhythm is None else rhythm.frequency
    states: list[dict[str, Any]] = []
    arrays = {"step": np.array(chosen), "time": np.array([step * step_s for step in chosen])}
    for step in chosen:
        found = _latent_spectrum(model, latents[step], step_s, exact_up_to)
        arrays[f"derivative_eigenvalues_{step}"] = found.derivative
        arrays[f"step_eigenvalues_{step}"] = found.step
        states.append(
            {
                "step": step,
                "time_s": step * step_s,
                "exact": found.exact,
                "eigenvalues": len(found.step),
                "longest": found.pair(found.longest, reference),
                "nearest": found.pair(found.nearest(reference), reference),
            }
        )
        progress(len(states), len(chosen))
    return {"case": case.id, "reference_hz": reference, "states": states}, arrays


def _latent_spectrum(
    model: Evolves, state: torch.Tensor, step_s: float, exact_up_to: int
) -> dynamics.StepSpectrum:
    """Return the eigenvalues at latents (L, d) of a model whose steps take `step_s` seconds."""

    def derivative(Z: torch.Tensor) -> torch.Tensor:
        return model.derivative(Z[None])[0]

    solver, step_size = model.integrator
    return dynamics.spectrum_at(
        derivative, state, step_size, step_s, solver=solver, exact_up_to=exact_up_to
    )
