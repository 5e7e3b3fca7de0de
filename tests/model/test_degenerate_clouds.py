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
def test_one_point_coincident_points_one_anchor_and_no_real_point(config: CourantConfig) -> None:
    model, inputs = random_model(config), random_inputs(config)
    assert_finite(model, random_inputs(config, points=1, queries=1))
    points, queries = torch.zeros_like(inputs.points), torch.zeros_like(inputs.query_points)
    assert_finite(model, replace(inputs, points=points, query_points=queries))
    padded = pad_cloud(inputs, extra=2)
    assert padded.mask is not None
    padded.mask[0] = False
    assert_finite(model, padded)
    one = replace(config, num_anchors=1)
    assert_finite(random_model(one), random_inputs(one))


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
    field = random_model(config)(**random_inputs(config, queries=0).arguments())
    assert field.shape == (2, 3, 0, 2)


def test_a_window_whose_multiplier_crosses_zero_stays_finite() -> None:
    config = CHOICES["window in both"]
    model = random_model(config)
    torch.nn.init.zeros_(model.windows.kappa)  # type: ignore[union-attr]
    assert_finite(model, random_inputs(config))


def test_features_of_any_scale() -> None:
    inputs = random_inputs(SMALL)
    for scale in (0.0, 1e-6, 1e6):
        assert_finite(random_model(SMALL), replace(inputs, features=scale * inputs.features))
