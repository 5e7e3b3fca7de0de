"""Several known states: each prediction becomes the newest one, and the oldest one goes."""

from typing import Any

import pytest
import torch
from torch import Tensor

import simgen
from courant.baselines.baseline import advance, newest
from courant.models import BASELINES, build
from courant.problems import open_problem
from courant.recipes import get_recipe
from courant.recipes.compared import compared
from simgen.errors import InputError
from simgen.imports.benchmarks import SorptionGrid, generate_benchmark
from simgen.store.read import Dataset
from tests.baselines.tiny import SIZES, tiny
from tests.model.clouds import random_inputs

C = SIZES["num_outputs"]
TWO = "two known states"


def test_the_window_slides_over_the_states_and_leaves_the_other_channels() -> None:
    features = torch.arange(7.0)[None]  # three states of two channels, and one channel more
    assert newest(features, 2, 3).tolist() == [[4, 5]]
    moved = advance(features, torch.tensor([[10.0, 11.0]]), 3)
    assert moved.tolist() == [[2, 3, 4, 5, 10, 11, 6]]
    one = advance(torch.arange(3.0)[None], torch.tensor([[10.0, 11.0]]), 1)
    assert one.tolist() == [[10, 11, 2]]


def extrapolated(features: Tensor, dim: int) -> Tensor:
    """The next state of one that changes evenly: 2 u_t - u_(t-1)."""
    return 2 * features.narrow(dim, C, C) - features.narrow(dim, 0, C)


@pytest.mark.parametrize("kind", ["fno", "factformer", "transolver", "mgn"])
def test_a_perfect_step_makes_a_perfect_rollout(kind: str, monkeypatch: Any) -> None:
    model = build(tiny(kind, TWO))
    inputs = random_inputs(model.config, points=19, queries=11)
    inputs.features[..., :C], inputs.features[..., C : 2 * C] = 1.0, 2.0
    on_grid = kind in ("fno", "factformer")

    def perfect(*given: Any) -> Tensor:
        return extrapolated(given[0], 1) if on_grid else extrapolated(given[1], -1)

    monkeypatch.setattr(model, "field", perfect)
    with torch.no_grad():
        found = model(inputs.cloud, inputs.queries, 5)
    expected = torch.arange(3.0, 8.0)[None, :, None, None].expand_as(found)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_upt_encodes_the_newest_states(monkeypatch: Any) -> None:
    model: Any = build(tiny("upt", TWO))
    inputs = random_inputs(model.config, points=19, queries=11)
    inputs.features[..., :C], inputs.features[..., C : 2 * C] = 1.0, 2.0
    seen, encode = [], model._encode

    def remember(given: Any, supernodes: Tensor) -> Tensor:
        seen.append(given.features[0, 0, : 2 * C].tolist())
        return encode(given, supernodes)

    monkeypatch.setattr(model, "_encode", remember)
    decoded = iter([3.0, 4.0, 5.0])
    monkeypatch.setattr(
        model, "_decode", lambda latents, at: at.new_full((*at.shape[:2], C), next(decoded))
    )
    with torch.no_grad():
        model._latents(inputs.cloud, 3)
    assert [states[::C] for states in seen] == [[1, 2], [2, 3], [3, 4]]


def test_mesh_graph_net_adds_to_the_newest_state() -> None:
    model: Any = build(tiny("mgn", TWO))
    inputs = random_inputs(model.config, points=19, queries=11)
    inputs.features[..., :C], inputs.features[..., C : 2 * C] = 1.0, 2.0
    with torch.no_grad():
        model.decoder[-1].weight.zero_()
        model.decoder[-1].bias.zero_()
        found = model(inputs.cloud, inputs.queries, 3)
    torch.testing.assert_close(found, torch.full_like(found, 2.0))


def test_enf_reads_the_newest_state_off_its_latents(monkeypatch: Any) -> None:
    model: Any = build(tiny("enf", TWO))
    inputs = random_inputs(model.config, points=19, queries=11)
    with torch.no_grad():
        model.fitted.weight.zero_()
        model.fitted.bias.copy_(torch.arange(float(model.config.num_features)))
        found = model(inputs.cloud, inputs.queries, 1)
    assert found[0, 0, 0].tolist() == [C, C + 1]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    url = str(tmp_path_factory.mktemp("store") / "diffusion-sorption")
    return simgen.open_dataset(
        generate_benchmark("diffusion-sorption", url, 2, 1, grid=SorptionGrid(16, 101)).url
    )


@pytest.mark.parametrize("kind", BASELINES)
def test_a_recipe_of_several_states_gives_them_to_every_baseline(
    kind: str, dataset: Dataset
) -> None:
    recipe = compared(get_recipe("diffusion-sorption-small"), kind)
    assert open_problem(recipe, dataset).wrong_sizes() == []
    wrong = recipe.derive(model={"input_steps": 1})
    with pytest.raises(InputError, match=r"model\.input_steps = 1, expected 10"):
        open_problem(wrong, dataset)
