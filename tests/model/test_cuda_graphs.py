import pytest
import torch

from courant.model import Courant
from courant.model.cuda_graphs import GraphedCourant, _Positional
from tests.model.clouds import CHOICES, random_inputs, random_model, relative_error

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_a_model_on_the_cpu_is_refused() -> None:
    with pytest.raises(ValueError, match='need a model on a CUDA device, this one is on "cpu"'):
        GraphedCourant(Courant(CHOICES["transient"]))


def test_the_positional_call_is_the_model() -> None:
    config = CHOICES["transient"]
    model, inputs = random_model(config), random_inputs(config)
    names = ("points", "features", "query_points", "query_features")
    call = _Positional(model, names, inputs.num_steps)
    assert torch.equal(call(*(inputs.arguments()[name] for name in names)), model(**inputs.arguments()))


@needs_gpu
@pytest.mark.parametrize("choice", ["transient", "window, transient", "design parameters"])
def test_replays_give_the_models_field_and_gradients(choice: str) -> None:
    config = CHOICES[choice]
    model = random_model(config).cuda()
    graphed = GraphedCourant(model)
    for _ in range(3):
        arguments = {
            name: value.cuda() if isinstance(value, torch.Tensor) else value
            for name, value in random_inputs(config).arguments().items()
        }
        expected = model(**arguments)
        expected.square().sum().backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        model.zero_grad()
        field = graphed(**arguments)
        field.square().sum().backward()
        assert relative_error(field, expected) < 1e-4
        for gradient, parameter in zip(gradients, model.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-3)
        with torch.no_grad():
            assert relative_error(graphed(**arguments), expected) < 1e-4
        model.zero_grad()
