"""The fast model computes what the paper's equations, read literally, compute: outputs and all
gradients; u_0 + sum_k delta_k is the prediction, and the weights are a partition of unity."""

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

EACH = pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
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
@EACH
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


@EACH
def test_contributions_sum_to_the_prediction_and_chunks_join_to_the_whole(
    config: CourantConfig,
) -> None:
    model, inputs = random_model(config), random_inputs(config)
    decomposition = model.decompose(**inputs.arguments())
    whole = decomposition.whole()
    total = decomposition.offset + whole.contributions.sum(-3)
    assert relative_error(total, model(**inputs.arguments())) < 1e-5
    shape = (2, inputs.num_steps, config.num_heads, 11, config.num_anchors)
    assert whole.weights.shape == shape and (whole.weights >= 0).all()
    torch.testing.assert_close(whole.weights.sum(-1), torch.ones(shape[:-1]))
    parts = list(decomposition.chunks(4))
    assert [part.queries for part in parts] == [slice(0, 4), slice(4, 8), slice(8, 11)]
    joined = torch.cat([part.contributions for part in parts], dim=-2)
    torch.testing.assert_close(joined, whole.contributions)


def test_anchors_of_every_level_come_along() -> None:
    config = CHOICES["window, transient"]
    model, inputs = random_model(config), random_inputs(config)
    decomposition = model.decompose(**inputs.arguments())
    assert decomposition.anchors is not None
    torch.testing.assert_close(decomposition.anchors, model.place_anchors(inputs.points))
    shapes = [anchors.shape for anchors in decomposition.window_anchors]
    assert shapes == [(2, 5, 3)] * config.num_blocks + [(2, 3, 5, 3)]
    assert not torch.equal(decomposition.window_anchors[1], decomposition.window_anchors[0])


def test_decoding_in_chunks_changes_nothing() -> None:
    config = CHOICES["window, transient"]
    model, inputs = random_model(config), random_inputs(config)
    anchors = model.place_anchors(inputs.points)
    Z = model.rollout(model.encode(inputs.cloud._replace(anchors=anchors)), 3)
    whole = model.decode(Z, inputs.queries, anchors=anchors)
    chunked = model.decode(Z, inputs.queries, anchors=anchors, chunk=4)
    torch.testing.assert_close(chunked, whole)
