"""The fast model computes what the paper's equations, read literally, compute: outputs and all
gradients.
"""

import pytest
import torch
from torch import Tensor

from courant.model import Courant, CourantConfig
from tests.model.clouds import (
    CHOICES,
    Inputs,
    pad_cloud,
    random_inputs,
    random_model,
    relative_error,
)
from tests.model.literal import literal_forward

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}


def gradients(model: Courant, output: Tensor) -> dict[str, Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    (output * torch.randn(output.shape, dtype=output.dtype)).sum().backward()
    return {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def assert_same(model: Courant, fast: Inputs, literal: Inputs, tolerance: float) -> None:
    output, expected = model(**fast.arguments()), literal_forward(model, **literal.tensors())
    assert relative_error(output, expected) < tolerance
    ours, theirs = gradients(model, output), gradients(model, expected)
    assert set(ours) == set(theirs) == {name for name, _ in model.named_parameters()}
    scale = max(float(gradient.abs().max()) for gradient in theirs.values())
    for name, gradient in theirs.items():
        # A gradient that is zero in exact arithmetic has no scale of its own: hence the floor.
        floor = max(float(gradient.abs().max()), 1e-3 * scale)
        assert float((ours[name] - gradient).abs().max()) < tolerance * floor, name


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_outputs_and_gradients_are_those_of_the_literal_equations(
    config: CourantConfig, dtype: torch.dtype
) -> None:
    model, inputs = random_model(config, dtype), random_inputs(config, dtype=dtype)
    assert_same(model, inputs, inputs, TOLERANCE[dtype])


@pytest.mark.parametrize(
    "config", [CHOICES["window, transient"], CHOICES["design parameters"]], ids=str
)
def test_a_mask_is_a_bias_of_minus_infinity(config: CourantConfig) -> None:
    model, inputs = random_model(config, torch.float64), random_inputs(config, dtype=torch.float64)
    padded = pad_cloud(inputs, extra=4, filling=0.3)
    assert_same(model, padded, padded, 1e-10)
