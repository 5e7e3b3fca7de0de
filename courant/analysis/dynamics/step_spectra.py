"""Compute the eigenvalues of a model's processor at states of a case's rollout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from courant.analysis.dynamics.case_rhythm import read_rhythm
from courant.analysis.dynamics.jacobian import EXACT_UP_TO, StepSpectrum, spectrum_at
from courant.field_model import Evolves
from courant.prediction.surrogate import Surrogate
from simgen.errors import InputError
from simgen.store.read import StoredCase

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class StateSpectrum:
    """The eigenvalues at one state of a rollout."""

    step: int
    """0 is the state that was encoded"""
    time_s: float
    """From the start of the rollout"""
    spectrum: StepSpectrum

    def to_json(self, reference_hz: float | None) -> dict[str, Any]:
        """Return the pair that lasts longest, and the one nearest to the flow's frequency."""
        nearest = None if reference_hz is None else self.spectrum.nearest(reference_hz)
        return {
            "step": self.step,
            "time_s": self.time_s,
            "exact": self.spectrum.exact,
            "eigenvalues": len(self.spectrum.step),
            "longest": self._pair(self.spectrum.oscillatory, reference_hz),
            "nearest": self._pair(nearest, reference_hz),
        }

    def _pair(self, number: int | None, reference_hz: float | None) -> dict[str, Any] | None:
        if number is None:
            return None
        found, frequency = self.spectrum, float(self.spectrum.frequencies[number])
        return {
            "derivative": _parts(found.derivative[number]),
            "step": _parts(found.step[number]),
            "modulus": float(np.abs(found.step[number])),
            "frequency_hz": frequency,
            "growth_rate_per_s": float(found.growth_rates[number]),
            "over_reference": None if reference_hz is None else frequency / reference_hz,
        }


@dataclass(frozen=True)
class CaseSpectra:
    """The eigenvalues along the rollout of a case."""

    case: str
    reference_hz: float | None
    """Of the solution; None where it stands still"""
    states: tuple[StateSpectrum, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "reference_hz": self.reference_hz,
            "states": [each.to_json(self.reference_hz) for each in self.states],
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Return lambda and mu of every state, the largest |mu| first."""
        found: dict[str, np.ndarray] = {
            "step": np.array([each.step for each in self.states]),
            "time": np.array([each.time_s for each in self.states]),
        }
        for each in self.states:
            found[f"derivative_eigenvalues_{each.step}"] = each.spectrum.derivative
            found[f"step_eigenvalues_{each.step}"] = each.spectrum.step
        return found


def case_spectra(
    surrogate: Surrogate,
    case: StoredCase,
    at: Sequence[int] = (),
    *,
    exact_up_to: int = EXACT_UP_TO,
    progress: Progress = lambda done, total: None,
) -> CaseSpectra:
    """Roll a case out, and return the eigenvalues after some steps; none named: after 1 and 10.

    InputError for a steady model, and for one without latents that evolve.
    """
    model, start = surrogate.model, surrogate.problem.start(case)
    if surrogate.step_s is None or start is None or not isinstance(model, Evolves):
        raise InputError(
            f"{surrogate.url}: only a transient model with latents has a processor, this is a"
            f" {surrogate.problem.kind} model of kind {model.config.kind}"
        )
    chosen = sorted(set(at)) or [1, surrogate.problem.num_steps]
    latents = rolled_out(surrogate, model, case, start, max(1, *chosen))
    rhythm = read_rhythm(surrogate, case, start)
    states: list[StateSpectrum] = []
    for step in chosen:
        found = latent_spectrum(model, latents[step], surrogate.step_s, exact_up_to)
        states.append(StateSpectrum(step, step * surrogate.step_s, found))
        progress(len(states), len(chosen))
    return CaseSpectra(case.id, None if rhythm is None else rhythm.frequency, tuple(states))


def rolled_out(
    surrogate: Surrogate, model: Evolves, case: StoredCase, start: float, steps: int
) -> torch.Tensor:
    """Return the latents of a rollout from Z(0) on, (T + 1, L, d), in the model's precision."""
    inputs, _ = surrogate.model_inputs(case, start)
    with torch.no_grad():
        encoded = model.encode(inputs)
        return torch.cat([encoded[:, None], model.rollout(encoded, steps)], dim=1)[0]


def latent_spectrum(
    model: Evolves, state: torch.Tensor, step_s: float, exact_up_to: int
) -> StepSpectrum:
    """Return the eigenvalues at latents (L, d) of a model whose steps take `step_s` seconds."""
    return spectrum_at(
        lambda Z: model.derivative(Z[None])[0],
        state,
        model.inner_step,
        step_s,
        solver=model.inner_solver,
        exact_up_to=exact_up_to,
    )


def _parts(value: complex) -> list[float]:
    return [float(np.real(value)), float(np.imag(value))]
