"""Predictions on a GPU are those of a CPU, and those of a graph the plain ones."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from courant.field_model import Inputs as ModelInputs
from courant.field_model import Queries
from courant.model import CourantConfig
from courant.training.step import WARM_UPS, Replayed, Tensors
from tests.model.clouds import CHOICES, random_inputs, random_model, relative_error

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


CONFIGS = [pytest.param(config, id=name) for name, config in CHOICES.items()]


@needs_gpu
@pytest.mark.parametrize("config", CONFIGS)
def test_fields_and_contributions_are_those_of_a_cpu(config: CourantConfig) -> None:
    model, given = random_model(config), random_inputs(config)
    with torch.no_grad():
        expected = model(**given.arguments())
        here = {
            name: value.cuda() if isinstance(value, Tensor) else value
            for name, value in vars(given).items()
        }
        there = replace(given, **here)
        field = model.cuda()(**there.arguments())
        parts = model.decompose(**there.arguments())
        whole = parts.offset + torch.cat(
            [part.contributions.sum(-3) for part in parts.chunks(64)], dim=-2
        )
    assert relative_error(field.cpu(), expected) < 1e-4
    assert relative_error(whole.cpu(), expected) < 1e-4


@needs_gpu
@pytest.mark.parametrize("choice", ["transient", "window, transient", "design parameters"])
def test_replays_give_the_models_field(choice: str) -> None:
    config = CHOICES[choice]
    model = random_model(config).cuda()
    steps = 3 if config.transient else 1

    @torch.no_grad()
    def predict(tensors: Tensors) -> Tensor:
        given = dict(tensors)
        queries = Queries(given.pop("query_points"), given.pop("query_features", None))
        return model(ModelInputs(**given), queries, steps)

    replayed = Replayed(predict)
    for _ in range(WARM_UPS + 3):
        given = random_inputs(config).tensors()
        inputs = {name: value.cuda() for name, value in given.items() if isinstance(value, Tensor)}
        if "anchors" not in inputs:
            inputs["anchors"] = model.place_anchors(inputs["points"])
        assert relative_error(replayed(inputs), predict(inputs)) < 1e-4
