"""The NeuralODE: solvers beside Euler steps, and a rollout far beyond training."""

from dataclasses import replace

import torch

from courant.field_model import Inputs
from courant.model import Courant
from courant.model.presets import cylinder_flow
from courant.model.processor import Processor
from tests.model.clouds import TRANSIENT, random_model


def processor(**changes) -> Processor:  # type: ignore[no-untyped-def]
    model = random_model(replace(TRANSIENT, **changes), torch.float64)
    assert model.processor is not None
    return model.processor


def test_smaller_steps_and_better_solvers_converge_to_one_solution() -> None:
    Z = 0.3 * torch.randn(1, 5, 20, dtype=torch.float64)
    ode = processor(solver="dopri5", solver_tolerance=1e-8)
    reference = ode(Z, 2)

    def error(**changes) -> float:  # type: ignore[no-untyped-def]
        other = Processor(replace(ode.config, **changes)).double()
        other.load_state_dict(ode.state_dict())
        return float((other(Z, 2) - reference).detach().abs().max())

    coarse, fine = error(solver="euler", step_size=0.1), error(solver="euler", step_size=0.05)
    assert 1.6 < coarse / fine < 2.4  # first order
    assert error(solver="rk4", step_size=0.1) < 1e-2 * fine
    assert error(solver="midpoint", step_size=0.1) < 0.3 * fine


def test_a_fresh_model_rolls_out_far_beyond_training_without_blowing_up() -> None:
    model = Courant(cylinder_flow())
    Z = model.encode(Inputs(2 * torch.rand(1, 200, 3) - 1, torch.randn(1, 200, 18)))
    with torch.no_grad():
        states = model.rollout(Z, 400)
    assert float(states[:, 9].norm() / Z.detach().norm()) < 2
    assert float(states[:, -1].norm() / Z.detach().norm()) < 50
