"""What the order of points, queries and anchors may not change, and what coordinates may."""

from dataclasses import replace

import pytest
import torch

from courant.model import CourantConfig
from tests.model.clouds import CHOICES, random_inputs, random_model, relative_error

SAMPLED = {name: config for name, config in CHOICES.items() if config.anchor_kind == "sampled"}


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_the_order_of_points_does_not_matter(config: CourantConfig) -> None:
    model, inputs = random_model(config), random_inputs(config)
    order = torch.randperm(inputs.points.shape[1])
    shuffled = replace(inputs, points=inputs.points[:, order], features=inputs.features[:, order])
    assert relative_error(model(**shuffled.arguments()), model(**inputs.arguments())) < 1e-5


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_queries_are_independent_of_each_other(config: CourantConfig) -> None:
    model, inputs = random_model(config), random_inputs(config)
    order = torch.randperm(inputs.query_points.shape[1])[:4]
    features = None if inputs.query_features is None else inputs.query_features[:, order]
    some = replace(inputs, query_points=inputs.query_points[:, order], query_features=features)
    assert (
        relative_error(model(**some.arguments()), model(**inputs.arguments())[..., order, :]) < 1e-5
    )


@pytest.mark.parametrize("config", SAMPLED.values(), ids=SAMPLED)
def test_the_order_of_anchors_does_not_matter(config: CourantConfig) -> None:
    model, inputs = random_model(config), random_inputs(config)
    if model.windows is not None:  # the multiplier belongs to the anchor's place in the list
        torch.nn.init.ones_(model.windows.kappa)
    anchors = model.place_anchors(inputs.points)
    assert anchors is not None
    order = torch.randperm(config.num_anchors)
    given, shuffled = replace(inputs, anchors=anchors), replace(inputs, anchors=anchors[:, order])
    assert relative_error(model(**shuffled.arguments()), model(**given.arguments())) < 1e-5


def test_clouds_of_a_batch_are_independent_of_each_other() -> None:
    config = CHOICES["window, transient"]
    model, inputs = random_model(config), random_inputs(config)
    assert inputs.query_features is not None
    first = replace(
        inputs,
        points=inputs.points[:1],
        features=inputs.features[:1],
        query_points=inputs.query_points[:1],
        query_features=inputs.query_features[:1],
    )
    assert relative_error(model(**first.arguments()), model(**inputs.arguments())[:1]) < 1e-5


def test_a_longer_rollout_begins_with_the_shorter_one() -> None:
    config = CHOICES["transient"]
    model, inputs = random_model(config), random_inputs(config)
    long = model(**replace(inputs, num_steps=5).arguments())
    assert relative_error(model(**replace(inputs, num_steps=2).arguments()), long[:, :2]) < 1e-6
