"""Measure on many cases whether long rollouts keep the frequency of the solution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from courant.analysis.dynamics.case_dynamics import CaseDynamics, follow_case, rhythm_scores
from courant.analysis.dynamics.mode_comparison import LEADING, ModeComparison
from courant.field_model import Evolves
from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.read import Dataset

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
