"""Exported programs give what the model gives, for numbers of clouds, points and queries they were
not traced with.
"""

import io

import pytest
import torch

from courant.model import CourantConfig
from tests.model.clouds import CHOICES, pad_cloud, random_inputs, random_model, relative_error

EXPORTED = ("window, transient", "design parameters", "abstract queries", "window, learned anchors")


@pytest.mark.parametrize("config", [CHOICES[name] for name in EXPORTED], ids=EXPORTED)
def test_exported_parts_give_the_models_field(config: CourantConfig) -> None:
    model = random_model(config)
    programs = model.export()
    inputs = pad_cloud(random_inputs(config, clouds=3, points=29, queries=13), extra=2)
    sampled = config.num_sampled_anchors
    anchors = model.place_anchors(inputs.points, inputs.mask) if sampled else None
    decoder_anchors = anchors if config.window_in_decoder else None

    Z = programs["encoder"].module()(
        inputs.points, inputs.features, inputs.mask, anchors, inputs.parameters
    )
    for _ in range(inputs.num_steps if config.transient else 0):
        Z = programs["processor"].module()(Z)
    field = programs["decoder"].module()(
        Z, inputs.query_points, inputs.query_features, decoder_anchors
    )

    expected = model(**inputs.arguments())
    assert relative_error(field, expected[:, -1]) < 1e-5


def test_a_program_survives_its_file() -> None:
    config = CHOICES["transient"]
    model, buffer, Z = random_model(config), io.BytesIO(), torch.randn(3, 5, 20)
    torch.export.save(model.export()["processor"], buffer)
    buffer.seek(0)
    step = torch.export.load(buffer).module()
    torch.testing.assert_close(step(Z), model.rollout(Z, 1)[:, 0], rtol=1e-5, atol=1e-5)
