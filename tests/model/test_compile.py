"""torch.compile takes the model whole: forward and backward without a graph break."""

from dataclasses import replace

import pytest
import torch

from courant.model import CourantConfig
from tests.model.clouds import CHOICES, pad_cloud, random_inputs, random_model, relative_error

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
    assert (
        model.embedding.frequencies.grad is not None
        and model.embedding.frequencies.grad.isfinite().all()
    )


def test_autocast_breaks_no_graph() -> None:
    torch.compiler.reset()
    config = replace(CHOICES["window in both"], num_levels=0)
    model, inputs = random_model(config), random_inputs(config)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def predict() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(**inputs.arguments())

    with torch.autocast("cpu", torch.bfloat16):
        expected = model(**inputs.arguments())
    assert relative_error(predict(), expected) < 0.02
