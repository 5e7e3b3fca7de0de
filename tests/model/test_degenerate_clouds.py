"""No NaN, in values or gradients, wherever a cloud is as small or as coincident as it can be."""

from dataclasses import replace

import pytest
import torch

from courant.model import Courant, CourantConfig
from tests.model.clouds import CHOICES, SMALL, Inputs, pad_cloud, random_inputs, random_model


def assert_finite(model: Courant, inputs: Inputs) -> None:
    output = model(**inputs.arguments())
    output.square().sum().backward()
    assert output.isfinite().all()
    assert all(
        parameter.grad is None or parameter.grad.isfinite().all()
        for parameter in model.parameters()
    )


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_one_point(config: CourantConfig) -> None:
    assert_finite(random_model(config), random_inputs(config, points=1, queries=1))


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_coincident_points(config: CourantConfig) -> None:
    inputs = random_inputs(config)
    same = replace(
        inputs,
        points=torch.zeros_like(inputs.points),
        query_points=torch.zeros_like(inputs.query_points),
    )
    assert_finite(random_model(config), same)


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_one_anchor(config: CourantConfig) -> None:
    one = replace(config, num_anchors=1)
    assert_finite(random_model(one), random_inputs(one))


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_a_cloud_without_real_points(config: CourantConfig) -> None:
    inputs = pad_cloud(random_inputs(config), extra=2)
    assert inputs.mask is not None
    mask = inputs.mask.clone()
    mask[0] = False
    assert_finite(random_model(config), replace(inputs, mask=mask))


def test_a_cloud_without_real_points_is_one_featureless_point_at_the_origin() -> None:
    model, inputs = random_model(SMALL), random_inputs(SMALL)
    empty = replace(inputs, mask=torch.zeros(inputs.points.shape[:2], dtype=torch.bool))
    origin = replace(
        inputs, points=torch.zeros(2, 1, 3), features=torch.zeros(2, 1, SMALL.num_features)
    )
    torch.testing.assert_close(
        model(**empty.arguments()), model(**origin.arguments()), rtol=1e-4, atol=1e-5
    )


def test_no_queries_give_an_empty_field() -> None:
    config = CHOICES["transient"]
    assert random_model(config)(**random_inputs(config, queries=0).arguments()).shape == (
        2,
        3,
        0,
        2,
    )


def test_a_window_whose_multiplier_crosses_zero_stays_finite() -> None:
    config = CHOICES["window in both"]
    model = random_model(config)
    torch.nn.init.zeros_(model.windows.kappa)  # type: ignore[union-attr]
    assert_finite(model, random_inputs(config))


def test_features_of_any_scale() -> None:
    inputs = random_inputs(SMALL)
    for scale in (0.0, 1e-6, 1e6):
        assert_finite(random_model(SMALL), replace(inputs, features=scale * inputs.features))
