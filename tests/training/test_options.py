"""Options of the training loop: each does what it says, and a resumed run with it ends with the
same bits.
"""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from courant.experiment import Experiment
from courant.model import Courant
from courant.runs.checkpoint import read_latest_checkpoint
from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord, read_records
from courant.training.optimiser import WeightAverage
from courant.training.step import backward, flops_per_sample
from courant.training.train import Task, TrainingError, fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.training.test_loop import KilledError, kill_at
from tests.world import tiny_experiment, tiny_steady

OPTIONS: list[dict[str, Any]] = [
    {"ema_decay": 0.9},
    {"accumulate": 2},
    {
        "ema_decay": 0.99,
        "accumulate": 2,
        "loss": "relative-l2",
        "schedule": "step",
        "step_epochs": 2,
    },
    {"schedule": "cosine", "nonfinite": "skip"},
    {"optimiser": "muon"},
]


def gradients(task: Task, num_parts: int) -> tuple[float, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = Courant(task.experiment.model)
    _, batch = next(task.train.epoch(1))
    loss = backward(task, model, batch, num_parts)
    return float(loss), [
        parameter.grad for parameter in model.parameters() if parameter.grad is not None
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options))
@pytest.mark.parametrize("kind", ["steady", "transient"])
def test_a_killed_run_goes_on_exactly(
    ducts: Dataset, dataset: Dataset, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    experiment: Experiment = (
        tiny_steady(**options) if kind == "steady" else tiny_experiment(**options)
    )
    data = ducts if kind == "steady" else dataset
    straight, killed = RunDirectory(tmp_path / "straight"), RunDirectory(tmp_path / "killed")
    fit(experiment, data, straight)
    with pytest.raises(KilledError):
        fit(experiment, data, killed, on_epoch=kill_at(3))
    fit(experiment, data, killed)
    assert killed.read_bytes("model.safetensors") == straight.read_bytes("model.safetensors")
    one, other = (read_latest_checkpoint(run) for run in (straight, killed))
    assert one is not None
    assert other is not None
    for kept in ("model", "average"):
        weights = getattr(one, kept)
        assert all(
            torch.equal(value, getattr(other, kept)[name]) for name, value in weights.items()
        )
    curves = [
        [(r.train_loss, r.validation_loss, r.learning_rate) for r in read_records(run)]
        for run in (straight, killed)
    ]
    assert curves[0] == curves[1]


@pytest.mark.parametrize("loss", ["l2", "relative-l2"])
def test_a_batch_in_parts_has_the_loss_and_gradients_of_the_whole(
    ducts: Dataset, loss: str
) -> None:
    experiment = tiny_steady(batch_size=5, loss=loss).derive(
        data={"points_per_sample": None, "queries_per_sample": None}
    )
    task = Task.load(experiment, ducts, torch.device("cpu"))
    assert next(task.train.epoch(1))[1].query_mask is not None, "padding differs between the parts"
    whole, expected = gradients(task, 1)
    for num_parts in (2, 5):
        parts, found = gradients(task, num_parts)
        assert parts == pytest.approx(whole, rel=1e-5)
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-6)


def test_more_parts_than_samples_are_refused(ducts: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"accumulate = 3: a worker's batch has 2 samples"):
        fit(tiny_steady(accumulate=3), ducts, RunDirectory(tmp_path))


def test_the_average_follows_the_weights_and_is_what_the_run_keeps(
    ducts: Dataset, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    fit(tiny_steady(ema_decay=0.9, epochs=2), ducts, run)
    checkpoint = read_latest_checkpoint(run)
    assert checkpoint is not None
    assert any(
        not torch.equal(value, checkpoint.average[name]) for name, value in checkpoint.model.items()
    )
    best = checkpoint.best if checkpoint.best_epoch == 2 else None
    assert best is None or all(
        torch.equal(value, checkpoint.average[name]) for name, value in best.items()
    )


def test_the_average_is_the_exponential_one() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(0.0)
    average = WeightAverage(model, decay=0.5)
    model.weight.data.fill_(1.0)
    average.take_in(model, torch.tensor(average.share(step=0)))
    assert average.weights["weight"].item() == pytest.approx(0.9), (
        "d = (1 + 0) / (10 + 0) at the first step"
    )
    average.take_in(model, torch.tensor(average.share(step=100)))
    assert average.weights["weight"].item() == pytest.approx(0.95)
    with average.applied_to(model):
        assert model.weight.item() == pytest.approx(0.95)
    assert model.weight.item() == 1.0


def spoil(task: Task, epoch: int, spoiled: set[int]) -> None:
    """Give some batches of one epoch a target that is not finite."""
    epochs = task.train.epoch

    def with_nan(number: int) -> Any:
        for index, (samples, batch) in enumerate(epochs(number)):
            yield (
                samples,
                batch.map(lambda value: value * math.nan)
                if number == epoch and index in spoiled
                else batch,
            )

    task.train.epoch = with_nan  # type: ignore[method-assign]


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call with an epoch and batches: the next fits find them spoiled."""
    load = Task.load

    def prepare(epoch: int, batches: set[int]) -> None:
        def loaded(*arguments: Any) -> Task:
            task = load(*arguments)
            spoil(task, epoch, batches)
            return task

        monkeypatch.setattr(Task, "load", loaded)

    return prepare


def test_a_step_that_is_not_finite_is_skipped_and_counted(
    ducts: Dataset, tmp_path: Path, spoiled: Any
) -> None:
    spoiled(2, {1, 4})
    run = RunDirectory(tmp_path)
    fit(tiny_steady(nonfinite="skip"), ducts, run)
    records = read_records(run)
    assert [record.skipped_batches for record in records] == [0, 2, 0, 0]
    assert all(math.isfinite(record.train_loss) for record in records)
    assert records[1].line().endswith("2 batches skipped")
    assert records[-1].train_loss < records[0].train_loss


def test_by_default_it_stops_the_run_with_the_batch_on_record(
    ducts: Dataset, tmp_path: Path, spoiled: Any
) -> None:
    spoiled(2, {1})
    run = RunDirectory(tmp_path)
    with pytest.raises(TrainingError, match=r"training diverged: loss nan.*in epoch 2, batch 2"):
        fit(tiny_steady(), ducts, run)
    windows = run.read_json("failure-worker-0.json")["windows"]
    assert {window["case"] for window in windows} <= set(ducts.cases("train"))


def test_an_epoch_without_one_finite_step_stops_the_run_all_the_same(
    ducts: Dataset, tmp_path: Path, spoiled: Any
) -> None:
    spoiled(2, set(range(100)))
    with pytest.raises(TrainingError, match="training diverged"):
        fit(tiny_steady(nonfinite="skip"), ducts, RunDirectory(tmp_path))


def test_every_epoch_says_what_it_made_of_the_machine(ducts: Dataset, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    fit(tiny_steady(epochs=2), ducts, run)
    for record in read_records(run):
        assert 0 <= (record.data_wait_share or 0.0) < 1
        assert 0 < (record.processor_s or 0.0) < 60
        assert (record.peak_memory_gb or 0.0) > 0.01
        assert (record.flops_per_s or 0.0) > 1e6


def test_operations_grow_with_the_batch_s_queries_and_leave_the_random_state(
    ducts: Dataset,
) -> None:
    few, many = (
        Task.load(
            tiny_steady().derive(data={"queries_per_sample": num}), ducts, torch.device("cpu")
        )
        for num in (10, 40)
    )
    before = torch.get_rng_state()
    counted = [flops_per_sample(task, next(task.train.epoch(1))[1]) for task in (few, many)]
    assert torch.equal(torch.get_rng_state(), before)
    assert counted[1] > counted[0] > 0
    model = tiny_steady().model
    # The decoder's query projection alone: M x (2 d) x d multiply-adds forward, twice that
    # backward, two operations each.
    least = 3 * 2 * 30 * 2 * model.width * model.width
    assert counted[1] - counted[0] > least


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_steps_learn_the_same(ducts: Dataset, tmp_path: Path) -> None:
    runs = {compiled: RunDirectory(tmp_path / str(compiled)) for compiled in (False, True)}
    records: dict[bool, list[EpochRecord]] = {}
    for compiled, run in runs.items():
        fit(tiny_steady(epochs=2, compile=compiled), ducts, run)
        records[compiled] = read_records(run)
    for plain, compiled_ in zip(records[False], records[True], strict=True):
        assert compiled_.train_loss == pytest.approx(plain.train_loss, rel=1e-3)
