"""The optimiser step: what a plain PyTorch step does, without ever waiting for the device, from a
graph as well."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.optim import AdamW
from torch.utils._python_dispatch import TorchDispatchMode

from courant.experiment import Experiment
from courant.model import Courant
from courant.runs.checkpoint import Checkpoint, load_optimiser
from courant.runs.directory import RunDirectory
from courant.training import step
from courant.training.optimiser import WeightAverage, make_optimiser
from courant.training.step import WARM_UPS, OptimiserStep, Replayed, check_graphs
from courant.training.train import Task, fit
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.world import tiny_experiment, tiny_steady

CPU = torch.device("cpu")
OPTIONS: dict[str, dict[str, Any]] = {
    "parts, average": {"accumulate": 2, "ema_decay": 0.9},
    "relative, bfloat16": {"loss": "relative-l2", "precision": "bfloat16"},
    "Muon": {"optimiser": "muon"},
}


def tasks(dataset: Dataset, ducts: Dataset, **training: Any) -> Iterator[Task]:
    """One of windows, one of whole steady cases, each batch of other shapes."""
    yield Task.load(tiny_experiment(**training), dataset, CPU)
    whole = tiny_steady(**training).derive(
        data={"points_per_sample": None, "queries_per_sample": None}
    )
    yield Task.load(whole, ducts, CPU)


class Run:
    """A model with its step."""

    def __init__(self, task: Task) -> None:
        training = task.experiment.training
        torch.manual_seed(0)
        self.model = Courant(task.experiment.model)
        self.optimiser = make_optimiser(self.model, training, fused=True)
        self.average = WeightAverage(self.model, training.ema_decay) if training.ema_decay else None
        self.step = OptimiserStep(
            task, self.model, self.model, self.optimiser, self.average, world=1
        )

    @property
    def state(self) -> dict[str, Tensor]:
        averaged = (
            {f"average.{name}": value for name, value in self.average.weights.items()}
            if self.average
            else {}
        )
        return {**self.model.state_dict(), **averaged}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_replayed_steps_are_the_plain_ones_to_the_bit(
    dataset: Dataset, ducts: Dataset, options: dict[str, Any]
) -> None:
    for task in tasks(dataset, ducts, **options):
        plain, replayed = Run(task), Run(task)
        # Work that a graph would do is done at each replay.
        replayed.step._run = Replayed(replayed.step._take, lambda call: call)
        number = 0
        for epoch in range(1, 5):
            for _, batch in task.train.epoch(epoch):
                rate = 1e-3 / (1 + number)
                outcomes = [run.step(batch, number, rate) for run in (plain, replayed)]
                assert torch.equal(*outcomes)
                number += 1
        assert all(torch.equal(value, plain.state[name]) for name, value in replayed.state.items())


def test_a_step_is_pytorch_s_own(dataset: Dataset, tiny: Experiment) -> None:
    task = Task.load(tiny, dataset, CPU)
    run, model = Run(task), Courant(tiny.model)
    model.load_state_dict(run.model.state_dict())
    reference = AdamW(model.parameters(), weight_decay=tiny.training.weight_decay)
    for number, (_, batch) in enumerate(task.train.epoch(1)):
        rate = 1e-2 / (1 + number)
        loss, _, taken = run.step(batch, number, rate).tolist()
        reference.param_groups[0]["lr"] = rate
        reference.zero_grad()
        expected = task.loss(task.predict(model, batch), batch)
        expected.backward()
        nn.utils.clip_grad_norm_(model.parameters(), tiny.training.clip_norm)
        reference.step()
        assert taken == 1
        assert loss == pytest.approx(expected.item(), rel=1e-4)
    for one, other in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


class NothingFromTheHost(TorchDispatchMode):
    """Fails where a tensor is made from the host's numbers: a GPU would be waited for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten.lift_fresh.default, "a tensor of the host's numbers"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_step_asks_the_device_nothing_and_takes_nothing_from_the_host(
    dataset: Dataset, ducts: Dataset, options: dict[str, Any]
) -> None:
    """A fake tensor has no values: to look at one fails, where on a GPU the host would wait."""
    for task in tasks(dataset, ducts, **options):
        batches = [batch for _, batch in task.train.epoch(1)][:2]
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            run = Run(task)
            with NothingFromTheHost():
                for number, batch in enumerate(batches):
                    outcome = run.step(batch.map(fake.from_tensor), number, 1e-3)
            assert outcome.shape == (3,)
            with pytest.raises(DataDependentOutputException):
                outcome.tolist()


def test_moments_of_a_checkpoint_go_on_whatever_took_the_steps_before(
    tiny: Experiment, tmp_path: Any
) -> None:
    """Checkpoints of earlier releases, or of another device, name other ways to compute a step."""
    model = nn.Linear(3, 2)
    older = AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    model(torch.ones(4, 3)).square().sum().backward()
    older.step()
    saved = deepcopy(older.state_dict())
    saved["param_groups"][0]["capturable"] = True
    newer = make_optimiser(model, tiny.training, fused=True)
    checkpoint = Checkpoint(1, {}, saved, {}, 1, 0.0, {})
    load_optimiser(newer, checkpoint, RunDirectory(tmp_path))
    group = newer.param_groups[0]
    assert (group["fused"], group["capturable"]) == (True, False)
    assert isinstance(group["lr"], Tensor)
    twin = deepcopy(model)
    other = AdamW(twin.parameters(), lr=1e-2, weight_decay=0.01)
    other.load_state_dict(older.state_dict())
    group["lr"].fill_(1e-2)
    for each, optimiser in ((model, newer), (twin, other)):
        optimiser.zero_grad()
        each(torch.ones(4, 3)).square().sum().backward()
        optimiser.step()
    torch.testing.assert_close(model.weight, twin.weight)


def test_graphs_that_cannot_be_are_an_error_before_anything_is_read(
    dataset: Dataset, tiny: Experiment, tmp_path: Any
) -> None:
    graphed = tiny.derive(training={"cuda_graphs": True})
    with pytest.raises(
        InputError, match=r"training\.cuda_graphs = true, but training runs on cpu; leave it out"
    ):
        fit(graphed, dataset, RunDirectory(tmp_path))
    assert RunDirectory(tmp_path).names() == []
    adaptive = graphed.derive(model={"solver": "dopri5"})
    with pytest.raises(
        InputError, match="2 workers exchange gradients and the solver dopri5 waits for the device"
    ):
        check_graphs(adaptive, torch.device("cuda"), world=2)
    check_graphs(graphed, torch.device("cuda"), world=1)


def test_beyond_so_many_shapes_the_rest_is_computed_plainly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call does the work once; what was returned is not overwritten by a later replay."""
    monkeypatch.setattr(step, "MOST_GRAPHS", 1)
    recorded, total, outputs = list[int](), torch.zeros(1), list[Tensor]()

    def record(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        recorded.append(1)
        return call

    replayed = Replayed(lambda inputs: total.add_(inputs["x"].sum()), record)
    for number in range(WARM_UPS + 2):
        for size in (2, 3):
            outputs.append(replayed({"x": torch.full((size,), float(number))}).clone())
    assert recorded == [1]
    assert outputs == [0, 0, 2, 5, 9, 15, 21, 30]
