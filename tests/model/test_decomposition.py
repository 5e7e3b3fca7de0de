"""u_0 + sum_k delta_k is the prediction, to float tolerance; the weights are a partition of
unity.
"""

import pytest
import torch

from courant.model import CourantConfig
from tests.model.clouds import CHOICES, random_inputs, random_model, relative_error


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_offset_and_contributions_sum_to_the_prediction(config: CourantConfig) -> None:
    model, inputs = random_model(config), random_inputs(config)
    decomposition = model.decompose(**inputs.arguments())
    total = decomposition.offset + decomposition.whole().contributions.sum(-3)
    assert relative_error(total, model(**inputs.arguments())) < 1e-5


def test_weights_are_a_partition_of_unity() -> None:
    config = CHOICES["window, transient"]
    part = random_model(config).decompose(**random_inputs(config).arguments()).whole()
    assert part.weights.shape == (2, 3, config.num_heads, 11, config.num_anchors)
    assert (part.weights >= 0).all()
    torch.testing.assert_close(part.weights.sum(-1), torch.ones_like(part.weights[..., 0]))


def test_chunks_join_to_the_whole() -> None:
    config = CHOICES["transient"]
    decomposition = random_model(config).decompose(**random_inputs(config).arguments())
    parts = list(decomposition.chunks(4))
    assert [part.queries for part in parts] == [slice(0, 4), slice(4, 8), slice(8, 11)]
    joined = torch.cat([part.contributions for part in parts], dim=-2)
    torch.testing.assert_close(joined, decomposition.whole().contributions)


def test_latents_and_anchors_of_every_level_come_along() -> None:
    config = CHOICES["window, transient"]
    model, inputs = random_model(config), random_inputs(config)
    decomposition = model.decompose(**inputs.arguments())
    Z = model.encode(inputs.cloud)
    torch.testing.assert_close(decomposition.latent, model.rollout(Z, 3))
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
