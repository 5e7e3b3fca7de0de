"""What every baseline keeps, as Courant does: exact padding, no order, queries apart, resuming."""

from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch

import courant
from courant.experiment import Experiment, parse_experiment
from courant.field_model import FieldModel
from courant.models import BASELINES, build, count, dump_config, parse_config
from courant.recipes.compared import compared
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.baselines.tiny import CASES, OWN, tiny
from tests.model.clouds import Inputs, moved, pad_cloud, random_inputs, relative_error
from tests.model.conftest import one_thread_and_one_seed  # noqa: F401
from tests.training.conftest import KilledError, kill_at
from tests.world import tiny_experiment, tiny_steady

EVERY = pytest.mark.parametrize(("kind", "choice"), CASES)


@pytest.fixture(scope="module")
def datasets(waves: Dataset, ducts: Dataset) -> dict[str, Dataset]:
    return {"transient": waves, "steady": ducts}


def random_baseline(kind: str, choice: str) -> tuple[FieldModel, Inputs]:
    """A model away from its initial values, and clouds for it."""
    model = moved(build(tiny(kind, choice)))
    return model, random_inputs(model.config, points=19, queries=11)


def test_every_baseline_is_tried() -> None:
    assert set(OWN) == set(BASELINES)


@EVERY
def test_padding_has_no_influence_on_values_and_gradients(kind: str, choice: str) -> None:
    model, inputs = random_baseline(kind, choice)
    padded = pad_cloud(inputs, extra=6)
    plain = model(**inputs.arguments())
    assert plain.shape == (2, inputs.num_steps, 11, 2)
    plain.square().sum().backward()
    expected = [weight.grad for weight in model.parameters()]
    model.zero_grad()
    filled = model(**padded.arguments())
    filled.square().sum().backward()
    assert relative_error(filled, plain) < 1e-5
    for weight, gradient in zip(model.parameters(), expected, strict=True):
        assert (weight.grad is None) == (gradient is None)
        if gradient is not None and weight.grad is not None:
            torch.testing.assert_close(weight.grad, gradient, rtol=1e-3, atol=1e-4)


@EVERY
def test_the_order_of_points_does_not_matter(kind: str, choice: str) -> None:
    model, inputs = random_baseline(kind, choice)
    shuffled = inputs.reordered(torch.randperm(inputs.points.shape[1]))
    assert relative_error(model(**shuffled.arguments()), model(**inputs.arguments())) < 1e-5


@EVERY
def test_queries_and_clouds_do_not_see_each_other(kind: str, choice: str) -> None:
    model, inputs = random_baseline(kind, choice)
    some = inputs.queries.part(torch.tensor([7, 2, 5]))
    tensors = {
        name: value[:1] if isinstance(value, torch.Tensor) else value
        for name, value in vars(
            replace(inputs, query_points=some.points, query_features=some.features)
        ).items()
    }
    alone = model(**Inputs(**tensors).arguments())
    assert relative_error(alone, model(**inputs.arguments())[:1, :, [7, 2, 5]]) < 1e-5


@EVERY
def test_queries_at_the_points_of_the_cloud_are_as_good_as_queries_elsewhere(
    kind: str, choice: str
) -> None:
    """Points that are asked for together with others get what they get alone."""
    model, inputs = random_baseline(kind, choice)
    shared = inputs.features[..., -4:] if inputs.query_features is not None else None
    at = replace(inputs, query_points=inputs.points, query_features=shared)
    both = replace(
        at,
        query_points=torch.cat([inputs.points, inputs.query_points], 1),
        query_features=None
        if shared is None or inputs.query_features is None
        else torch.cat([shared, inputs.query_features], 1),
    )
    together = model(**both.arguments())[:, :, : inputs.points.shape[1]]
    assert relative_error(model(**at.arguments()), together) < 1e-4


@EVERY
def test_chunks_of_queries_and_longer_rollouts_agree(kind: str, choice: str) -> None:
    model, inputs = random_baseline(kind, choice)
    with torch.no_grad():
        whole = model(**inputs.arguments())
        chunked = model.predict(inputs.cloud, inputs.queries, inputs.num_steps, chunk=4)
        first = model(inputs.cloud, inputs.queries)
    assert relative_error(chunked, whole) < 1e-5
    assert relative_error(first, whole[:, :1]) < 1e-5


@EVERY
def test_its_config_survives_json_and_counts_its_weights(kind: str, choice: str) -> None:
    config = tiny(kind, choice)
    assert parse_config(dump_config(config)) == config
    assert count(config) == sum(weight.numel() for weight in build(config).parameters())


@pytest.mark.parametrize(
    ("kind", "choice"), list(zip(BASELINES, cycle(["steady 3D", "transient 2D"]), strict=False))
)
def test_it_overfits_one_sample(kind: str, choice: str) -> None:
    model = build(tiny(kind, choice))
    inputs = random_inputs(model.config, clouds=1, points=12, queries=8)
    inputs = replace(inputs, num_steps=min(2, inputs.num_steps))
    wave = torch.stack([inputs.query_points.sum(-1).sin(), inputs.query_points[..., 0]], -1)
    target = torch.stack([wave + 0.1 * step for step in range(inputs.num_steps)], 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    enough = 0.05 * float(target.square().mean())
    for _ in range(60):
        optimiser.zero_grad()
        loss = (model(**inputs.arguments()) - target).square().mean()
        if loss.item() < enough:
            return
        loss.backward()
        optimiser.step()
    pytest.fail(f"the loss is {loss.item():.3g} after 60 steps, above {enough:.3g}")


def experiment(kind: str, task: str) -> Experiment:
    like = tiny_experiment() if task == "transient" else tiny_steady()
    training = {"epochs": 2, "samples_per_epoch": 8, "checkpoint_every": 1}
    training |= {"validate_every": 2, "validation_windows": 1}
    return compared(like, kind).derive(model=OWN[kind], training=training)


@pytest.mark.parametrize(
    ("kind", "task"), list(zip(BASELINES, cycle(["transient", "steady"]), strict=False))
)
def test_it_resumes_to_the_bit_and_predicts(
    kind: str, task: str, datasets: dict[str, Dataset], tmp_path: Path
) -> None:
    trained, straight = RunDirectory(tmp_path / "killed"), RunDirectory(tmp_path / "straight")
    with pytest.raises(KilledError):
        fit(experiment(kind, task), datasets[task], trained, on_epoch=kill_at(1))
    fit(experiment(kind, task), datasets[task], trained)
    fit(experiment(kind, task), datasets[task], straight)
    weights = "model.safetensors"
    assert trained.read_bytes(weights) == straight.read_bytes(weights)
    case = datasets[task][datasets[task].cases("test")[0]]
    predicted = courant.load(trained.url).predict_case(case)
    assert predicted.shape[-2:] == (len(case.points), 2)
    assert np.isfinite(predicted).all()


def test_a_model_of_mesh_points_refuses_a_boundary_cloud() -> None:
    content = experiment("transolver", "steady").model_dump(mode="json")
    content["model"]["num_features"] = content["model"]["num_outputs"]
    with pytest.raises(InputError, match=r"points and queries of this model share .* \"mesh\""):
        parse_experiment(content)
    content["model"] |= {"num_features": 4, "num_query_features": 0, "num_layers": 10**9}
    with pytest.raises(InputError, match=r"num_layers must be a whole number from 1 to 64"):
        parse_experiment(content)
    content["model"] |= {"num_layers": 16, "width": 4096, "num_heads": 8}
    with pytest.raises(InputError, match=r"TransolverConfig makes a model of [\d,]+ parameters"):
        count(parse_experiment(content).model)
