"""Clouds and queries: checked shapes, exact padding, any order, and no NaN anywhere."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from courant.model import Courant, CourantConfig
from tests.model.clouds import (
    CHOICES,
    SMALL,
    Inputs,
    pad_cloud,
    random_inputs,
    random_model,
    relative_error,
)

PARAMETERS = CHOICES["design parameters"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": torch.zeros(2, 17, 2)}, r"points must be \(B, N, 3\), got \(2, 17, 2\)"),
        (
            {"query_points": torch.zeros(3, 11, 3)},
            r"query_points must be \(2, 'M', 3\), got \(3, 11, 3\)",
        ),
        ({"mask": torch.ones(2, 17)}, r"mask must be bool \(2, 17\), got torch.float32"),
        ({"parameters": None}, r"parameters must be \(2, 3\), got None"),
        ({"num_steps": 4}, "predicts one step, got num_steps=4"),
    ],
)
def test_shapes_are_checked(change: dict[str, Any], message: str) -> None:
    inputs = replace(random_inputs(PARAMETERS), **change)
    with pytest.raises(ValueError, match=message):
        random_model(PARAMETERS)(**inputs.arguments())


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_padded_and_unpadded_clouds_agree_whatever_the_padding_is(config: CourantConfig) -> None:
    model, inputs = random_model(config), random_inputs(config)
    expected = model(**inputs.arguments())
    for filling in (float("nan"), 0.0, 1e6, float("inf")):
        padded = pad_cloud(inputs, extra=6, filling=filling)
        assert relative_error(model(**padded.arguments()), expected) < 1e-5


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_the_order_of_points_does_not_matter(config: CourantConfig) -> None:
    model, inputs = random_model(config), random_inputs(config)
    shuffled = inputs.reordered(torch.randperm(inputs.points.shape[1]))
    assert relative_error(model(**shuffled.arguments()), model(**inputs.arguments())) < 1e-5


def assert_finite(model: Courant, inputs: Inputs) -> None:
    output = model(**inputs.arguments())
    output.square().sum().backward()
    assert output.isfinite().all()
    slopes = (parameter.grad for parameter in model.parameters())
    assert all(slope is None or slope.isfinite().all() for slope in slopes)


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
    features = torch.zeros(2, 1, SMALL.num_features)
    origin = replace(inputs, points=torch.zeros(2, 1, 3), features=features)
    found, expected = (model(**each.arguments()) for each in (empty, origin))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_window_whose_multiplier_crosses_zero_stays_finite() -> None:
    config = CHOICES["window in both"]
    model = random_model(config)
    torch.nn.init.zeros_(model.windows.kappa)  # type: ignore[union-attr]
    assert_finite(model, random_inputs(config))
