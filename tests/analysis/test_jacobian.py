"""Linear latent dynamics give back their eigenvalues, exactly and by Arnoldi iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from courant.analysis.modes import exact_jacobian, spectrum_at
from tests.model.clouds import CHOICES, random_inputs, random_model

UNIT_S = 10.0


def planted(pairs: list[complex], real: list[float], seed: int = 0) -> tuple[np.ndarray, Tensor]:
    """A matrix of given eigenvalues in a random basis, and a state of its size."""
    size = 2 * len(pairs) + len(real)
    matrix = np.diag(np.concatenate([np.zeros(2 * len(pairs)), real]))
    for number, value in enumerate(pairs):
        at = 2 * number
        matrix[at : at + 2, at : at + 2] = [[value.real, -value.imag], [value.imag, value.real]]
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    state = torch.zeros(2, size // 2, dtype=torch.float64)
    return basis @ matrix @ basis.T, state


def linear(matrix: np.ndarray):  # type: ignore[no-untyped-def]
    weights = torch.as_tensor(matrix)
    return lambda Z: (weights @ Z.reshape(-1)).view_as(Z)


def test_the_jacobian_of_a_linear_system_is_its_matrix() -> None:
    matrix, state = planted([0.3 + 1j], [-0.5, -2.0])
    np.testing.assert_allclose(exact_jacobian(linear(matrix), state), matrix, atol=1e-12)


def test_the_jacobian_is_taken_at_the_state() -> None:
    state = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    np.testing.assert_allclose(exact_jacobian(lambda Z: Z**2, state), np.diag([2.0, 4.0, 6.0, 8.0]))


@pytest.mark.parametrize("exact_up_to", [100, 0], ids=["exact", "Arnoldi"])
def test_frequency_and_growth_of_a_step_are_the_planted_ones(exact_up_to: int) -> None:
    # In one step of h = 1 the state turns by 2 pi f dt and shrinks by a hundredth.
    frequency, kept = 0.0222, 0.99
    step = kept * np.exp(2j * np.pi * frequency * UNIT_S)
    matrix, state = planted([step - 1, 0.2 + 0.1j - 1], list(np.linspace(-0.9, -0.2, 16)))
    found = spectrum_at(linear(matrix), state, 1.0, UNIT_S, exact_up_to=exact_up_to, number=6)
    assert found.exact == (exact_up_to > 0)
    assert len(found.step) == (20 if found.exact else 6)
    leading = found.oscillatory
    assert leading == 0 == found.nearest(0.9 * frequency)
    other = np.angle(0.2 + 0.1j) / (2 * np.pi * UNIT_S)
    if found.exact:
        assert found.frequencies[found.nearest(0.007)] == pytest.approx(other)
    np.testing.assert_allclose(found.step[:2], [step, step.conjugate()], atol=1e-8)
    np.testing.assert_allclose(found.derivative[0], step - 1, atol=1e-8)
    assert found.frequencies[0] == pytest.approx(frequency, rel=1e-6)
    assert found.growth_rates[0] == pytest.approx(np.log(kept) / UNIT_S, rel=1e-6)


def test_smaller_steps_of_the_same_system_have_other_step_eigenvalues() -> None:
    matrix, state = planted([0.1 + 0.6j], [-1.0, -1.5])
    found = spectrum_at(linear(matrix), state, 0.5, UNIT_S)
    np.testing.assert_allclose(found.step[0], 1 + 0.5 * (0.1 + 0.6j))
    np.testing.assert_allclose(found.derivative[0], 0.1 + 0.6j)
    turned = np.angle(1 + 0.5 * (0.1 + 0.6j))
    assert found.frequencies[0] == pytest.approx(turned / (2 * np.pi * 0.5 * UNIT_S))


def test_arnoldi_agrees_with_the_exact_jacobian_of_a_processor() -> None:
    config = CHOICES["transient"]
    model, inputs = random_model(config), random_inputs(config)
    state = model.encode(inputs.cloud)[0].detach()

    def derivative(Z: Tensor) -> Tensor:
        return model.derivative(Z[None])[0]

    exact = spectrum_at(derivative, state, model.inner_step, UNIT_S)
    leading = spectrum_at(derivative, state, model.inner_step, UNIT_S, exact_up_to=0, number=4)
    assert exact.exact and len(exact.step) == state.numel()
    np.testing.assert_allclose(np.abs(leading.step[:2]), np.abs(exact.step[:2]), rtol=1e-3)
    # The Jacobian is what a small displacement of the state does.
    away = torch.randn(state.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        moved = derivative(state + 1e-3 * away) - derivative(state - 1e-3 * away)
    pushed = exact_jacobian(derivative, state) @ away.numpy().ravel()
    np.testing.assert_allclose(moved.numpy().ravel() / 2e-3, pushed, atol=2e-2 * abs(pushed).max())


def test_a_system_that_only_decays_does_not_swing() -> None:
    matrix, state = planted([], [-0.1, -0.2, -0.3, -0.4])
    found = spectrum_at(linear(matrix), state, 1.0, UNIT_S)
    assert found.oscillatory is None and found.nearest(0.01) is None


@pytest.mark.parametrize(
    ("solver", "multiplier"),
    [
        ("midpoint", lambda z: 1 + z + z**2 / 2),
        ("heun3", lambda z: 1 + z + z**2 / 2 + z**3 / 6),
        ("rk4", lambda z: 1 + z + z**2 / 2 + z**3 / 6 + z**4 / 24),
        ("dopri5", np.exp),
    ],
)
def test_the_step_is_that_of_the_models_solver(solver: str, multiplier: Any) -> None:
    matrix, state = planted([0.65j], [-1.0, -1.5])
    found = spectrum_at(linear(matrix), state, 1.0, UNIT_S, solver=solver)
    np.testing.assert_allclose(found.step[found.oscillatory], multiplier(0.65j), rtol=1e-6)


def test_an_exact_solver_keeps_what_swings() -> None:
    """Where an Euler step makes it grow, and turns it by less."""
    matrix, state = planted([0.65j], [-1.0, -1.5])
    found = spectrum_at(linear(matrix), state, 1.0, UNIT_S, solver="dopri5")
    assert found.growth_rates[0] == pytest.approx(0, abs=1e-7)
    assert found.frequencies[0] == pytest.approx(0.65 / (2 * np.pi * UNIT_S), rel=1e-6)
