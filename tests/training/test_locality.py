"""The loss's term that keeps contributions near their anchors, and anchors by volume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import courant
from courant.experiment import Experiment
from courant.models import build
from courant.problems import open_problem
from courant.runs.directory import RunDirectory
from courant.training.step import WithSpread, backward
from courant.training.train import Fitting, Task, fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.model.clouds import CHOICES, random_inputs, random_model

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["steady", "window, transient", "learned anchors", "2D"])
def test_spread_follows_from_the_decomposition_and_the_prediction_is_the_same(name: str) -> None:
    config = CHOICES[name]
    model, given = random_model(config), random_inputs(config)
    inputs, queries, steps = given.cloud, given.queries, given.num_steps
    mask = torch.ones(queries.points.shape[:2], dtype=torch.bool)
    mask[:, -2:] = False
    field, found = model.predict_with_spread(inputs, queries, steps, mask)
    torch.testing.assert_close(field, model(inputs, queries, steps))
    parts = model.decompose(inputs, queries, steps)
    places = parts.window_anchors[-1] if parts.window_anchors else parts.anchors
    places = places[:, -1] if places.dim() == 4 else places
    energy = parts.whole().contributions[:, -1].square().sum(-1)[..., :-2]
    away = torch.cdist(places, queries.points[:, :-2]).square()
    spacing = config.domain_extent**2 / config.num_anchors
    total = energy.sum(-1)
    quiet = 1e-3 * total.mean(-1, keepdim=True)
    expected = (energy * away).sum(-1) / (total + quiet) / spacing
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    found.mean().backward()
    assert all(
        parameter.grad is None or torch.isfinite(parameter.grad).all()
        for parameter in model.parameters()
    )


def local(tiny: Experiment, weight: float, **training: float) -> Experiment:
    return tiny.derive(training={"locality_weight": weight, **training})


def test_the_term_counts_in_the_training_alone_and_parts_make_the_whole(
    dataset: Dataset, tiny: Experiment, tmp_path: Path
) -> None:
    task = Task.load(local(tiny, 0.1), dataset, CPU)
    fitting = Fitting(task, RunDirectory(tmp_path / "run"), CPU)
    assert isinstance(fitting.model, WithSpread) and fitting.model.model is fitting.bare
    _, batch = next(iter(task.train.epoch(1)))
    inputs, queries = batch.for_model(task.experiment.model)
    prediction, found = fitting.bare.predict_with_spread(inputs, queries, 2, batch.query_mask)
    expected = float(task.loss(prediction, batch) + 0.1 * found.mean())
    whole = backward(task, fitting.model, batch)
    gradients = [parameter.grad.clone() for parameter in fitting.bare.parameters()]
    assert float(whole) == pytest.approx(expected, rel=1e-5)
    fitting.bare.zero_grad()
    assert float(backward(task, fitting.model, batch, 3)) == pytest.approx(expected, rel=1e-5)
    for parameter, gradient in zip(fitting.bare.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-6)
    assert task.validation is not None
    plain = Task.load(tiny, dataset, CPU)
    assert plain.validation is not None
    losses = [
        each.validation.measure(lambda of, each=each: each.predict(fitting.bare, of), each.loss)
        for each in (task, plain)
    ]
    assert losses[0] == losses[1]
    with pytest.raises(InputError, match=r"locality_weight needs a model whose anchors have pos"):
        local(tiny.derive(model={"anchor_kind": "abstract"}), 0.1)


def test_a_trained_model_has_its_anchors_by_volume_again(
    dataset: Dataset, tiny: Experiment, tmp_path: Path
) -> None:
    experiment = tiny.derive(data={"anchors_by": "volume"}, training={"epochs": 1})
    fit(experiment, dataset, RunDirectory(tmp_path / "run"))
    trained = courant.load(tmp_path / "run", device="cpu")
    case = dataset[dataset.cases("train")[0]]
    inputs, _ = trained.model_inputs(case, 3.0)
    task = Task.load(experiment, dataset, CPU)
    kept = task.train.source.anchors[0]  # type: ignore[attr-defined]
    torch.testing.assert_close(inputs.anchors[0], kept)
    farthest = open_problem(tiny, dataset).anchors.among(inputs.points)[0]
    assert not torch.equal(inputs.anchors[0], farthest)
    learned = replace(experiment.model, anchor_kind="learned")
    assert build(learned).learned_anchors.shape == kept.shape
