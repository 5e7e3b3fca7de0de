"""Predictions on a GPU are those of a CPU, those of a graph the plain ones, and attention that of
float64 at sizes that choose each way."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from courant.field_model import Inputs as ModelInputs
from courant.field_model import Queries
from courant.model import CourantConfig
from courant.model.attention import attend, in_parts, way_on_gpu, written_out
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
        tensors = {name: of for name, of in vars(given).items() if isinstance(of, Tensor)}
        there = replace(given, **{name: value.cuda() for name, value in tensors.items()})
        field = model.cuda()(**there.arguments())
        parts = model.decompose(**there.arguments())
        sums = [part.contributions.sum(-3) for part in parts.chunks(64)]
        whole = parts.offset + torch.cat(sums, dim=-2)
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


@needs_gpu
@pytest.mark.parametrize(
    ("queries", "keys", "way"), [(256, 12_000, written_out), (2**15 + 3, 64, in_parts)]
)
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_values_and_gradients_are_near_those_of_float64(
    queries: int, keys: int, way: object, dtype: torch.dtype, near: float
) -> None:
    if dtype == torch.bfloat16 and way is written_out:
        way = scaled_dot_product_attention
    torch.manual_seed(0)
    shapes = [(1, 3, size, 48) for size in (queries, keys, keys)]
    exact = [torch.randn(shape, device="cuda", dtype=torch.float64) for shape in shapes]
    given = [each.to(dtype).requires_grad_() for each in exact]
    exact = [each.detach().double().requires_grad_() for each in given]
    assert way_on_gpu(*given[:2]) is way
    found, expected = attend(*given, scale=0.15), attend(*exact, scale=0.15)
    weight = torch.randn_like(found)
    pairs = zip(
        (found, *torch.autograd.grad(found, given, weight)),
        (expected, *torch.autograd.grad(expected, exact, weight.double())),
        strict=True,
    )
    for one, other in pairs:
        assert float((one.double() - other).norm() / other.norm()) < near
