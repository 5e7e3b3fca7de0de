"""Loss and learning rate: small functions with exact answers."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from courant.experiment import TrainingConfig
from courant.training.optimiser import learning_rate
from courant.training.step import derivative_loss, prediction_loss, relative_l2_loss
from courant.training.train import Validation


def test_the_loss_is_the_mean_square_over_steps_points_and_channels() -> None:
    prediction, target = torch.zeros(2, 3, 4, 2), torch.full((2, 3, 4, 2), 2.0)
    assert prediction_loss(prediction, target, None) == pytest.approx(4.0)


def test_padding_counts_for_nothing() -> None:
    target = torch.zeros(2, 3, 4, 2)
    prediction = torch.ones(2, 3, 4, 2)
    mask = torch.tensor([[True, True, False, False], [True, True, True, False]])
    prediction[~mask[:, None, :, None].expand_as(prediction)] = 1e6
    assert prediction_loss(prediction, target, mask) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("schedule", "steps", "expected"),
    [
        ("two-phase", (0, 150, 225, 300), (2.0, 2.0, 1.1, 0.2)),
        ("cosine", (0, 150, 300), (2.0, 1.0, 0.0)),
        ("step", (0, 99, 100, 250), (2.0, 2.0, 1.0, 0.5)),  # StepLR of Table tab:courant-training
    ],
)
def test_a_schedule_has_its_rates_and_a_linear_warm_up_in_front(
    schedule: str, steps: tuple[int, ...], expected: tuple[float, ...]
) -> None:
    options: dict[str, Any] = {"learning_rate": 2.0, "schedule": schedule, "step_epochs": 10}
    training = TrainingConfig(epochs=30, batch_size=1, **options)
    assert [learning_rate(training, step, 10) for step in steps] == pytest.approx(expected)
    warm = training.model_copy(update={"warmup_steps": 4})
    rates = [learning_rate(warm, step, 1000) for step in range(5)]
    assert rates == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0], rel=1e-3)


def test_relative_l2_is_each_samples_error_over_its_norm_in_physical_units() -> None:
    """Values 10 + 2 z: standardised with mean 10 and std 2."""
    truth, prediction = torch.tensor([3.0, 4.0, 0.0, 12.0]), torch.tensor([3.0, 5.0, 1.0, 12.0])
    shaped = [((values.reshape(2, 1, 2, 1) - 10) / 2) for values in (prediction, truth)]
    expected = (1 / 5 + 1 / 12) / 2
    assert relative_l2_loss(shaped[0], shaped[1], None, (5.0,)) == pytest.approx(expected)


def test_relative_l2_does_not_see_padding_and_has_a_gradient_at_a_perfect_prediction() -> None:
    target = torch.randn(1, 1, 3, 2)
    prediction = torch.cat(
        [target[:, :, :2], torch.full((1, 1, 1, 2), 1e6)], dim=2
    ).requires_grad_()
    loss = relative_l2_loss(prediction, target, torch.tensor([[True, True, False]]), (0.0, 0.0))
    assert loss < 1e-5
    loss.backward()
    assert prediction.grad is not None
    assert torch.isfinite(prediction.grad).all()


def test_the_loss_of_derivatives_is_the_relative_error_of_central_differences_along_each_axis() -> (
    None
):
    """Slopes of 2 and 3 along a grid of 4 x 5 points, predicted as 2.2 and 3.6."""
    i, j = torch.meshgrid(torch.arange(4.0), torch.arange(5.0), indexing="ij")
    truth, prediction = 2 * i + 3 * j, 2.2 * i + 3.6 * j + 7.0
    shaped = [values.reshape(1, 1, 20, 1) for values in (prediction, truth)]
    assert derivative_loss(shaped[0], shaped[1], (4, 5)) == pytest.approx(0.1 + 0.2)


def test_the_loss_of_derivatives_is_averaged_over_samples_and_knows_the_grids_order() -> None:
    target = torch.randn(2, 3, 24, 2)
    wrong = target.clone()
    wrong[1] *= 1.5
    assert derivative_loss(wrong, target, (2 * 3, 4)) == pytest.approx(2 * 0.5 / 2)
    line = torch.arange(24.0).reshape(1, 1, 24, 1)
    columns = line.reshape(4, 6).T.reshape(1, 1, 24, 1)
    assert derivative_loss(columns, line, (4, 6)) > 0.5


@pytest.mark.parametrize(
    ("truth", "nmae"), [((2.0, 0.0), 0.25), ((0.0, 0.0), 0.5 * 12), ((2.0, 1.0), 0.5 * (0.25 + 0))]
)
def test_a_field_that_is_zero_in_all_validation_samples_is_left_out(truth, nmae) -> None:
    """Such as the velocity across a plane flow."""
    targets = torch.tensor(truth).expand(1, 3, 4, 2)
    batch = SimpleNamespace(targets=targets, scale=None, query_mask=None)
    normaliser = SimpleNamespace(
        channels=[SimpleNamespace(field=name) for name in ("u", "w")], std=(1.0, 1.0), mean=(0, 0)
    )
    validation = Validation(cast(Any, lambda: [batch]), cast(Any, normaliser))
    off = torch.tensor([0.5, 0.0])
    loss, found = validation.measure(
        lambda batch: batch.targets + off,
        lambda prediction, batch: prediction_loss(prediction, batch.targets, None),
    )
    assert found == pytest.approx(nmae)
    assert loss == pytest.approx(0.125)
