"""Predictions on a GPU: those of the CPU, and those of a graph the plain ones."""

import pytest
import torch
from torch import Tensor

from courant.field_model import Inputs as ModelInputs
from courant.field_model import Queries
from courant.training.optimisation.cuda_graphs import WARM_UPS, Inputs, Replayed
from tests.model.clouds import CHOICES, random_inputs, random_model, relative_error

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_gpu
@pytest.mark.parametrize("choice", ["transient", "window, transient", "design parameters"])
def test_replays_give_the_models_field(choice: str) -> None:
    config = CHOICES[choice]
    model = random_model(config).cuda()
    steps = 3 if config.transient else 1

    @torch.no_grad()
    def predict(tensors: Inputs) -> Tensor:
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
