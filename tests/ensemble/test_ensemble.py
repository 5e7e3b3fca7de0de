"""A model of several members: its field, its decomposition and its training are the members'."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import courant
from courant.analysis.scores import ablation_effects, map_anchors
from courant.ensemble import AnchoredEnsemble
from courant.field_model import Decomposes, Encodes
from courant.model import CourantConfig
from courant.models import build, count, dump_config, parse_config
from courant.runs.directory import RunDirectory
from courant.training.step import backward, clip
from courant.training.train import Fitting, Task, fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.baselines.tiny import tiny
from tests.model.clouds import CHOICES, Inputs, moved, pad_cloud, random_inputs, relative_error
from tests.training.conftest import KilledError, kill_at
from tests.world import tiny_experiment

CPU = torch.device("cpu")
KINDS = ["steady", "learned anchors", "abstract queries", "window, transient", "MLP processor"]
EACH = pytest.mark.parametrize("choice", KINDS)


def of_members(config: CourantConfig, num: int = 3) -> tuple[AnchoredEnsemble, Inputs]:
    """An ensemble away from its initial values, and clouds for it."""
    model = moved(build(replace(config, num_members=num)))
    assert isinstance(model, AnchoredEnsemble)
    return model.eval(), random_inputs(config)


@EACH
def test_the_prediction_is_the_mean_of_members_that_differ(choice: str) -> None:
    model, inputs = of_members(CHOICES[choice])
    alone = torch.stack([member(**inputs.arguments()) for member in model.members])
    assert alone.std(0).mean() > 1e-3
    assert relative_error(model(**inputs.arguments()), alone.mean(0)) < 1e-6
    chunked = model.predict(inputs.cloud, inputs.queries, inputs.num_steps, chunk=4)
    assert relative_error(chunked, alone.mean(0)) < 1e-5
    padded = model(**pad_cloud(inputs, extra=6).arguments())
    assert relative_error(padded, alone.mean(0)) < 1e-5


@EACH
def test_offset_and_contributions_sum_to_the_prediction(choice: str) -> None:
    config = CHOICES[choice]
    model, inputs = of_members(config)
    found = model.decompose(**inputs.arguments())
    whole = found.whole()
    assert whole.contributions.shape[2] == 3 * config.num_anchors
    total = found.offset + whole.contributions.sum(2)
    assert relative_error(total, model(**inputs.arguments())) < 1e-5
    assert (whole.weights >= 0).all()
    torch.testing.assert_close(whole.weights.sum(-1), torch.ones_like(whole.weights[..., 0]))
    parts = list(found.chunks(4))
    assert [part.queries for part in parts] == [slice(0, 4), slice(4, 8), slice(8, 11)]
    joined = torch.cat([part.contributions for part in parts], dim=-2)
    torch.testing.assert_close(joined, whole.contributions)


@EACH
def test_latents_of_all_members_make_the_prediction(choice: str) -> None:
    config = CHOICES[choice]
    model, inputs = of_members(config)
    anchors = model.place_anchors(inputs.points)
    state = model.encode(inputs.cloud)
    assert state.shape == (2, 3 * config.num_anchors, config.width)
    if config.transient:
        steps = model.rollout(state, 3)
        assert steps.shape == (2, 3, *state.shape[1:])
        assert model.derivative(state).shape == state.shape
        state = steps[:, -1]
    decoded = model.decode(state, inputs.queries, anchors=anchors)
    assert relative_error(decoded, model(**inputs.arguments())[:, -1]) < 1e-5


def test_anchors_of_learning_members_are_their_own_and_sampled_ones_are_shared() -> None:
    learned, inputs = of_members(CHOICES["window, learned anchors"], num=2)
    places = learned.place_anchors(inputs.points)
    assert places is not None and places.shape == (2, 10, 3)
    assert not torch.equal(places[:, :5], places[:, 5:])
    found = learned.decompose(**inputs.arguments())
    assert [moved.shape[-2:] for moved in found.window_anchors] == [(10, 3)] * 4
    shared, inputs = of_members(CHOICES["steady"], num=2)
    places = shared.place_anchors(inputs.points)
    assert places is not None and places.shape == (2, 5, 3)
    anchors = shared.decompose(**inputs.arguments()).anchors
    assert anchors is not None
    torch.testing.assert_close(anchors, torch.cat([places, places], 1))


def test_each_anchor_reads_what_it_reads_in_its_member() -> None:
    model, inputs = of_members(CHOICES["window in both"], num=2)
    found = model.reading(inputs.cloud, [7, 1, 9])
    first, second = (member.reading(inputs.cloud, range(5)) for member in model._anchored)
    rows = ((second, 2), (first, 1), (second, 4))
    expected = torch.stack([of.weights[:, :, anchor] for of, anchor in rows], 2)
    torch.testing.assert_close(found.weights, expected)
    assert [places.shape for places in found.anchors] == [(2, 10, 3)] * 3
    only_first = model.reading(inputs.cloud, [3])
    torch.testing.assert_close(only_first.weights[:, :, 0], first.weights[:, :, 3])


def test_members_of_any_kind_are_averaged_without_what_they_cannot_do() -> None:
    model = build(replace(tiny("transolver", "steady 3D"), num_members=2))
    assert not isinstance(model, Decomposes | Encodes)
    inputs = random_inputs(model.config, points=19, queries=11)
    alone = [member(**inputs.arguments()) for member in model.members]  # type: ignore[union-attr]
    assert relative_error(model(**inputs.arguments()), (alone[0] + alone[1]) / 2) < 1e-6


def test_a_config_counts_all_members_and_checks_their_number() -> None:
    config = replace(CHOICES["steady"], num_members=3)
    assert parse_config(dump_config(config)) == config
    assert count(config) == 3 * count(CHOICES["steady"])  # type: ignore[operator]
    assert count(config) == sum(weight.numel() for weight in build(config).parameters())
    for wrong in (0, 65, 2.5, "2", True):
        content = {**dump_config(config), "num_members": wrong}
        with pytest.raises(ValueError, match=r"num_members must be a whole number from 1 to 64"):
            parse_config(content)


def fitting(waves: Dataset, folder: Path, **settings: object) -> Fitting:
    model = {"num_members": settings.pop("num_members")}
    experiment = tiny_experiment().derive(model=model, training=settings)
    task = Task.load(experiment, waves, CPU)
    return Fitting(task, RunDirectory(folder), CPU)


@pytest.mark.parametrize("locality", [0.0, 0.1])
def test_members_are_trained_by_their_own_losses(
    waves: Dataset, tmp_path: Path, locality: float
) -> None:
    """The gradients of a member are half of those that it has alone: the loss is their mean."""
    both = fitting(waves, tmp_path / "both", num_members=2, locality_weight=locality)
    one = fitting(waves, tmp_path / "one", num_members=1, locality_weight=locality)
    _, batch = next(iter(both.task.train.epoch(1)))
    loss, losses = backward(both.task, both.model, batch), []
    assert isinstance(both.bare.members, nn.ModuleList)
    for member in both.bare.members:
        one.bare.load_state_dict(member.state_dict())
        one.bare.zero_grad()
        losses.append(backward(one.task, one.model, batch))
        for weight, alone in zip(member.parameters(), one.bare.parameters(), strict=True):
            assert (weight.grad is None) == (alone.grad is None)
            if weight.grad is not None and alone.grad is not None:
                torch.testing.assert_close(2 * weight.grad, alone.grad, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    assert not torch.equal(losses[0], losses[1])


def test_members_are_clipped_as_if_each_were_trained_alone() -> None:
    model, _ = of_members(CHOICES["steady"], 2)
    for member, size in zip(model.members, (3.0, 0.5), strict=True):
        for weight in member.parameters():
            # Of the mean of two losses: half of what the member would have by itself.
            weight.grad = torch.full_like(weight, size / 2)

    def norms() -> list[Tensor]:
        each = ([weight.grad for weight in member.parameters()] for member in model.members)
        return [2 * nn.utils.get_total_norm(gradients) for gradients in each]

    own = norms()
    most = float(own[1]) * 2
    norm = clip(model, most)
    torch.testing.assert_close(norm, own[0])
    torch.testing.assert_close(norms(), [torch.tensor(most), own[1]])
    next(model.members[1].parameters()).grad[:] = torch.nan
    assert torch.isnan(clip(model, most))


def test_it_resumes_to_the_bit_and_is_analysed(waves: Dataset, tmp_path: Path) -> None:
    settings = {"epochs": 2, "checkpoint_every": 1, "samples_per_epoch": 8}
    experiment = tiny_experiment().derive(
        model={"num_members": 2, "anchor_kind": "learned"},
        data={"anchor_start": "cloud"},
        training=settings,
    )
    task = Task.load(experiment, waves, CPU)
    first, second = Fitting(task, RunDirectory(tmp_path / "new"), CPU).bare.members
    assert task.anchors is not None and torch.equal(first.learned_anchors, second.learned_anchors)
    trained, straight = RunDirectory(tmp_path / "killed"), RunDirectory(tmp_path / "straight")
    with pytest.raises(KilledError):
        fit(experiment, waves, trained, on_epoch=kill_at(1))
    fit(experiment, waves, trained)
    fit(experiment, waves, straight)
    weights = "model.safetensors"
    assert trained.read_bytes(weights) == straight.read_bytes(weights)
    surrogate, case = courant.load(trained.url), waves[waves.cases("test")[0]]
    assert np.isfinite(surrogate.predict_case(case)).all()
    number = experiment.model.num_learned_anchors
    start = surrogate.problem.start(case, None)
    effects = ablation_effects(surrogate, case, start)
    assert len(effects["after"]) == 2 * number
    maps = map_anchors(surrogate, case, [0, 2 * number - 1], start)
    assert maps.places is not None and len(maps.places) == 2 * number
    with pytest.raises(InputError, match=f"this model has anchors 0 to {2 * number - 1}"):
        map_anchors(surrogate, case, [2 * number], start)


def test_programs_are_those_of_each_member() -> None:
    model, inputs = of_members(replace(CHOICES["steady"], num_levels=1), num=2)
    programs = model.export()
    assert set(programs) == {"encoder-1", "decoder-1", "encoder-2", "decoder-2"}
    mask = torch.ones(inputs.points.shape[:2], dtype=torch.bool)
    anchors = model.place_anchors(inputs.points)
    fields = []
    for number in (1, 2):
        encode, decode = (programs[f"{part}-{number}"].module() for part in ("encoder", "decoder"))
        Z = encode(inputs.points, inputs.features, mask, anchors, inputs.parameters)
        fields.append(decode(Z, inputs.query_points, inputs.query_features, None))
    mean = (fields[0] + fields[1]) / 2
    assert relative_error(mean, model(**inputs.arguments())[:, 0]) < 1e-5
