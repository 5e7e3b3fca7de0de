"""Options of the training loop: each does what it is for."""

import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import courant
from courant.experiment import Experiment
from courant.model import Courant
from courant.models import build
from courant.problems import open_problem
from courant.problems.steady import SteadyBatches
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training import train
from courant.training.step import WithSpread, backward, flops_per_sample
from courant.training.train import Fitting, Task, TrainingError, fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.model.clouds import CHOICES, random_inputs, random_model
from tests.world import tiny_steady

CPU = torch.device("cpu")


def gradients(task: Task, num_parts: int) -> tuple[float, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = Courant(task.experiment.model)
    _, batch = next(task.train.epoch(1))
    loss = float(backward(task, model, batch, num_parts))
    return loss, [each.grad for each in model.parameters() if each.grad is not None]


@pytest.mark.parametrize("loss", ["l2", "relative-l2"])
def test_a_batch_in_parts_has_the_loss_and_gradients_of_the_whole(
    ducts: Dataset, loss: str
) -> None:
    experiment = tiny_steady(batch_size=5, loss=loss).derive(
        data={"points_per_sample": None, "queries_per_sample": None}
    )
    task = Task.load(experiment, ducts, CPU)
    assert next(task.train.epoch(1))[1].query_mask is not None, "padding differs between the parts"
    whole, expected = gradients(task, 1)
    for num_parts in (2, 5):
        parts, found = gradients(task, num_parts)
        assert parts == pytest.approx(whole, rel=1e-5)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)


def test_a_training_is_validated_twenty_times_at_most() -> None:
    for epochs in (1, 7, 20, 29, 30, 399):
        chosen = tiny_steady().training.with_epochs(epochs)
        times = -(-epochs // chosen.validate_every)
        assert times == epochs if epochs <= 20 else 10 < times <= 20


@pytest.mark.parametrize("wrong", [{"accumulate": 3}, {"workers": 3}])
def test_a_batch_that_does_not_divide_is_an_error(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="batch_size = 2 does not divide over"):
        tiny_steady(**wrong)


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call with batches: in the next fits their targets in epoch 2 are not finite."""
    epochs = SteadyBatches.epoch

    def prepare(batches: set[int]) -> None:
        def with_nan(self: SteadyBatches, number: int) -> Iterator[Any]:
            for index, (samples, batch) in enumerate(epochs(self, number)):
                is_spoiled = number == 2 and index in batches
                yield samples, batch.map(lambda x: x * math.nan) if is_spoiled else batch

        monkeypatch.setattr(SteadyBatches, "epoch", with_nan)

    return prepare


def test_a_step_that_is_not_finite_is_skipped_and_counted_or_stops_the_run(
    ducts: Dataset, tmp_path: Path, spoiled: Any
) -> None:
    spoiled({1, 4})
    run = RunDirectory(tmp_path / "skips")
    fit(tiny_steady(nonfinite="skip"), ducts, run)
    records = read_records(run)
    assert [record.skipped_batches for record in records] == [0, 2, 0, 0]
    assert all(math.isfinite(record.train_loss) for record in records)
    assert records[1].line().endswith("2 batches skipped")
    assert records[-1].train_loss < records[0].train_loss
    with pytest.raises(TrainingError, match=r"training diverged: loss nan.*in epoch 2, batch 2"):
        fit(tiny_steady(), ducts, RunDirectory(tmp_path / "stops"))
    spoiled(set(range(100)))
    with pytest.raises(TrainingError, match="training diverged"):
        fit(tiny_steady(nonfinite="skip"), ducts, RunDirectory(tmp_path / "nothing left"))


def test_operations_grow_with_the_queries_and_leave_the_random_state(ducts: Dataset) -> None:
    few, many = (
        Task.load(tiny_steady().derive(data={"queries_per_sample": num}), ducts, CPU)
        for num in (10, 40)
    )
    before = torch.get_rng_state()
    counted = [flops_per_sample(task, next(task.train.epoch(1))[1]) for task in (few, many)]
    assert torch.equal(torch.get_rng_state(), before)
    width = tiny_steady().model.width
    # The decoder's query projection alone: M x (2 d) x d multiply-adds forward, twice that
    # backward, two operations each.
    assert counted[1] - counted[0] > 3 * 2 * 30 * 2 * width * width


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_steps_learn_the_same(ducts: Dataset, tmp_path: Path) -> None:
    losses = []
    for compiled in (False, True):
        run = RunDirectory(tmp_path / str(compiled))
        fit(tiny_steady(epochs=2, compile=compiled), ducts, run)
        losses.append([record.train_loss for record in read_records(run)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize(("call", "left"), [("torch.set_num_threads", 1000), ("use_threads", 0)])
def test_no_thread_computes_with_a_subnormal_number(call: str, left: int) -> None:
    code = f"""
import torch
from courant.training.workers import use_threads
{call}(2)
print(torch.get_num_threads(), int((torch.full((4_000_000,), 1e-30) * 1e-9 != 0).sum()) // 4000)
"""
    found = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert found.split() == ["2", str(left)]


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


def test_the_term_counts_in_the_training_alone_and_parts_make_the_whole(
    dataset: Dataset, tiny: Experiment, tmp_path: Path
) -> None:
    near = {"locality_weight": 0.1}
    task = Task.load(tiny.derive(training=near), dataset, CPU)
    fitting = Fitting(task, RunDirectory(tmp_path / "run"), CPU)
    assert isinstance(fitting.model, WithSpread) and fitting.model.model is fitting.bare
    _, batch = next(iter(task.train.epoch(1)))
    inputs, queries = batch.for_model(task.experiment.model)
    prediction, found = fitting.bare.predict_with_spread(inputs, queries, 2, batch.query_mask)
    expected = float(task.loss(prediction, batch) + 0.1 * found.mean())
    whole = backward(task, fitting.model, batch)
    assert float(whole) == pytest.approx(expected, rel=1e-5)
    assert float(backward(task, fitting.model, batch, 3)) == pytest.approx(expected, rel=1e-5)
    assert float(task.loss(prediction, batch)) < expected, "the loss of a validation"
    with pytest.raises(InputError, match=r"locality_weight needs a model whose anchors have pos"):
        tiny.derive(model={"anchor_kind": "abstract"}, training=near)


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


def test_learned_anchors_start_far_apart_in_the_domain_whatever_the_seed(
    dataset: Dataset, tiny: Experiment
) -> None:
    normaliser = open_problem(tiny, dataset).normaliser

    def start_of(kind: str = "learned", start: str = "cloud", seed: int = 42) -> torch.Tensor:
        given: dict[str, Any] = {"model": {"anchor_kind": kind}, "data": {"anchor_start": start}}
        seeded = tiny.derive(**given, training={"seed": seed})
        found = train.anchor_start(seeded, dataset, normaliser)
        return torch.zeros(0) if found is None else found

    start = start_of()
    assert start.shape == (tiny.model.num_anchors, 3)
    assert torch.all(start[:, 2] == 0)  # a plane flow
    cells = np.concatenate([normaliser.points(dataset[c].points) for c in dataset.cases("train")])
    assert max(np.linalg.norm(cells - place, axis=1).min() for place in start.numpy()) == 0
    spread = np.linalg.norm(cells.max(0) - cells.min(0)) / np.sqrt(len(start))
    assert torch.pdist(start).min() > 0.3 * spread
    assert len(start_of(start="box")) == len(start_of(kind="sampled")) == 0
    assert torch.equal(start, start_of(seed=7))
    for dimension in (2, 3):
        model = build(replace(tiny.model, anchor_kind="learned", dimension=dimension))
        train.place_learned_anchors(model, start)
        assert torch.equal(model.learned_anchors, start[:, :dimension])
