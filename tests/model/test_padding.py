"""Padding is exact: clouds of different sizes share a batch, whatever the padding is."""

import pytest
import torch

from courant.field_model import Inputs as ModelInputs
from courant.field_model import Queries
from courant.model import CourantConfig
from tests.model.clouds import (
    CHOICES,
    SMALL,
    pad_cloud,
    random_inputs,
    random_model,
    relative_error,
)


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_padded_and_unpadded_clouds_agree_whatever_the_padding_is(config: CourantConfig) -> None:
    model, inputs = random_model(config), random_inputs(config)
    expected = model(**inputs.arguments())
    for filling in (float("nan"), 0.0, 1e6, float("inf")):
        padded = pad_cloud(inputs, extra=6, filling=filling)
        assert relative_error(model(**padded.arguments()), expected) < 1e-5


def test_gradients_agree_and_padding_receives_none() -> None:
    config = CHOICES["window, transient"]
    model, inputs = random_model(config, torch.float64), random_inputs(config, dtype=torch.float64)
    padded = pad_cloud(inputs, extra=6)
    padded.features.requires_grad_()

    model(**inputs.arguments()).square().sum().backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    model(**padded.arguments()).square().sum().backward()

    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-9, atol=1e-9)
    assert padded.mask is not None and padded.features.grad is not None
    assert not padded.features.grad[~padded.mask].any()


def test_decompositions_agree() -> None:
    config = CHOICES["window in both"]
    model, inputs = random_model(config), random_inputs(config)
    padded = model.decompose(**pad_cloud(inputs, extra=6).arguments())
    plain = model.decompose(**inputs.arguments())
    assert relative_error(padded.whole().contributions, plain.whole().contributions) < 1e-5
    assert relative_error(padded.offset, plain.offset) < 1e-6


def test_clouds_of_different_sizes_give_in_one_batch_what_they_give_alone() -> None:
    model = random_model(SMALL)
    large = random_inputs(SMALL, clouds=1, points=20)
    small = random_inputs(SMALL, clouds=1, points=9)
    alone = torch.cat([model(**inputs.arguments()) for inputs in (large, small)])

    points, features = torch.zeros(2, 20, 3), torch.zeros(2, 20, SMALL.num_features)
    mask = torch.zeros(2, 20, dtype=torch.bool)
    for row, inputs in enumerate((large, small)):
        count = inputs.points.shape[1]
        points[row, :count], features[row, :count], mask[row, :count] = (
            inputs.points[0],
            inputs.features[0],
            True,
        )
    queries = torch.cat((large.query_points, small.query_points))
    assert large.query_features is not None and small.query_features is not None
    query_features = torch.cat((large.query_features, small.query_features))

    together = model(ModelInputs(points, features, mask), Queries(queries, query_features))
    assert relative_error(together, alone) < 1e-5
