"""Exported programs and torch.compile take the model whole, for numbers of points not traced."""

from dataclasses import replace

import pytest
import torch

from courant.model import CourantConfig
from tests.model.clouds import CHOICES, pad_cloud, random_inputs, random_model, relative_error

EXPORTED = ("deep decoder", "design parameters", "abstract queries", "window, learned anchors")


@pytest.mark.parametrize("config", [CHOICES[name] for name in EXPORTED], ids=EXPORTED)
def test_exported_parts_give_the_models_field(config: CourantConfig) -> None:
    model = random_model(config)
    programs = model.export()
    inputs = pad_cloud(random_inputs(config, clouds=3, points=29, queries=13), extra=2)
    sampled = config.num_sampled_anchors
    anchors = model.place_anchors(inputs.points, inputs.mask) if sampled else None
    decoder_anchors = anchors if config.window_in_decoder else None

    parts = {name: program.module() for name, program in programs.items()}
    Z = parts["encoder"](inputs.points, inputs.features, inputs.mask, anchors, inputs.parameters)
    for _ in range(inputs.num_steps if config.transient else 0):
        Z = parts["processor"](Z)
    field = parts["decoder"](Z, inputs.query_points, inputs.query_features, decoder_anchors)

    expected = model(**inputs.arguments())
    assert relative_error(field, expected[:, -1]) < 1e-5


COMPILED = ("design parameters", "window, transient")


@pytest.mark.parametrize("config", [CHOICES[name] for name in COMPILED], ids=COMPILED)
def test_there_is_no_graph_break(config: CourantConfig) -> None:
    torch.compiler.reset()
    config = replace(config, num_levels=0)  # a level more is more of the same
    model, inputs = random_model(config), pad_cloud(random_inputs(config), extra=2)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    field = compiled(**inputs.arguments())
    field.square().sum().backward()
    assert relative_error(field, model(**inputs.arguments())) < 1e-5
    slope = model.embedding.frequencies.grad
    assert slope is not None and slope.isfinite().all()
