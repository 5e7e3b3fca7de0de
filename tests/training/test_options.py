"""Options of the training loop: each does what it is for."""

import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from courant.model import Courant
from courant.runs.checkpoint import read_latest_checkpoint
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.optimiser import WeightAverage
from courant.training.step import backward, flops_per_sample
from courant.training.train import Task, TrainingError, fit
from simgen.errors import InputError
from simgen.store.read import Dataset
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


@pytest.mark.parametrize("wrong", [{"accumulate": 3}, {"workers": 3}])
def test_a_batch_that_does_not_divide_is_an_error(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="batch_size = 2 does not divide over"):
        tiny_steady(**wrong)


def test_the_average_is_the_exponential_one_and_what_the_run_keeps(
    ducts: Dataset, tmp_path: Path
) -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(0.0)
    average = WeightAverage(model, decay=0.5)
    model.weight.data.fill_(1.0)
    average.take_in(model, torch.tensor(average.share(step=0)))
    assert average.weights["weight"].item() == pytest.approx(0.9), "d = (1 + 0) / (10 + 0)"
    average.take_in(model, torch.tensor(average.share(step=100)))
    assert average.weights["weight"].item() == pytest.approx(0.95)
    with average.applied_to(model):
        assert model.weight.item() == pytest.approx(0.95)
    assert model.weight.item() == 1.0
    run = RunDirectory(tmp_path)
    fit(tiny_steady(ema_decay=0.9, epochs=1), ducts, run)
    kept = read_latest_checkpoint(run)
    assert kept is not None and kept.best_epoch == 1
    for name, value in kept.best.items():
        assert torch.equal(value, kept.average[name]), name
    assert not all(torch.equal(value, kept.average[name]) for name, value in kept.model.items())


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call with an epoch and batches: in the next fits their targets are not finite."""
    load = Task.load

    def prepare(epoch: int, batches: set[int]) -> None:
        def loaded(*arguments: Any) -> Task:
            task = load(*arguments)
            epochs = task.train.epoch

            def with_nan(number: int) -> Iterator[Any]:
                for index, (samples, batch) in enumerate(epochs(number)):
                    is_spoiled = number == epoch and index in batches
                    yield samples, batch.map(lambda x: x * math.nan) if is_spoiled else batch

            task.train.epoch = with_nan  # type: ignore[method-assign]
            return task

        monkeypatch.setattr(Task, "load", loaded)

    return prepare


def test_a_step_that_is_not_finite_is_skipped_and_counted_or_stops_the_run(
    ducts: Dataset, tmp_path: Path, spoiled: Any
) -> None:
    spoiled(2, {1, 4})
    run = RunDirectory(tmp_path / "skips")
    fit(tiny_steady(nonfinite="skip"), ducts, run)
    records = read_records(run)
    assert [record.skipped_batches for record in records] == [0, 2, 0, 0]
    assert all(math.isfinite(record.train_loss) for record in records)
    assert records[1].line().endswith("2 batches skipped")
    assert records[-1].train_loss < records[0].train_loss
    with pytest.raises(TrainingError, match=r"training diverged: loss nan.*in epoch 2, batch 2"):
        fit(tiny_steady(), ducts, RunDirectory(tmp_path / "stops"))
    spoiled(2, set(range(100)))
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


@pytest.mark.parametrize(
    "model",
    [
        {"num_query_features": 0},
        {"num_parameters": 0},
        {"anchor_kind": "learned"},
        {"gaussian_window": "both"},
    ],
)
def test_the_papers_ablations_train(ducts: Dataset, tmp_path: Path, model: dict[str, Any]) -> None:
    """Rows of tab:feature_ablation_nmae."""
    fit(tiny_steady(epochs=1).derive(model=model), ducts, RunDirectory(tmp_path))


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
