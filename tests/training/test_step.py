"""A step: losses and rates with exact answers, Muon and AdamW as one optimiser, and what a plain
PyTorch step does, without ever waiting for the device, from a graph as well."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.optim import AdamW, Muon
from torch.utils._python_dispatch import TorchDispatchMode

from courant.experiment import Experiment, TrainingConfig
from courant.model import Courant
from courant.recipes.compared import compared
from courant.runs.checkpoint import load_optimiser
from courant.runs.directory import RunDirectory
from courant.training import optimiser as optimising
from courant.training import step
from courant.training.optimiser import MuonWithAdamW, hidden_matrices, make_optimiser
from courant.training.step import derivative_loss, prediction_loss, relative_l2_loss
from courant.training.train import Task, fit, measure
from simgen.errors import InputError
from simgen.store.read import Dataset
from tests.world import tiny_experiment, tiny_steady

CPU = torch.device("cpu")
RATE, DECAY = 1e-2, 0.1
OPTIONS: dict[str, dict[str, Any]] = {
    "parts": {"accumulate": 2},
    "relative, bfloat16": {"loss": "relative-l2", "precision": "bfloat16"},
    "Muon": {"optimiser": "muon"},
}
EACH = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def test_the_loss_is_the_mean_square_over_steps_real_points_and_channels() -> None:
    prediction, target = torch.zeros(2, 3, 4, 2), torch.full((2, 3, 4, 2), 2.0)
    assert prediction_loss(prediction, target, None) == pytest.approx(4.0)
    mask = torch.tensor([[True, True, False, False], [True, True, True, False]])
    prediction[~mask[:, None, :, None].expand_as(prediction)] = 1e6
    assert prediction_loss(prediction, target, mask) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("schedule", "steps", "expected"),
    [
        ("two-phase", (0, 150, 225, 300), (2.0, 2.0, 1.1, 0.2)),
        ("cosine", (0, 150, 300), (2.0, 1.0, 0.0)),
        ("step", (0, 99, 100, 250), (2.0, 2.0, 1.0, 0.5)),  # StepLR of Table tab:courant-training
    ],
)
def test_a_schedule_has_its_rates_and_a_linear_warm_up_in_front(
    schedule: str, steps: tuple[int, ...], expected: tuple[float, ...]
) -> None:
    options: dict[str, Any] = {"learning_rate": 2.0, "schedule": schedule, "step_epochs": 10}
    training = TrainingConfig(epochs=30, batch_size=1, **options)
    rates = [optimising.learning_rate(training, step, 10) for step in steps]
    assert rates == pytest.approx(expected)
    warm = training.model_copy(update={"warmup_steps": 4})
    rates = [optimising.learning_rate(warm, step, 1000) for step in range(5)]
    assert rates == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0], rel=1e-3)


def test_relative_l2_is_each_samples_error_over_its_norm_in_physical_units() -> None:
    """Values 10 + 2 z: standardised with mean 10 and std 2."""
    truth, prediction = torch.tensor([3.0, 4.0, 0.0, 12.0]), torch.tensor([3.0, 5.0, 1.0, 12.0])
    shaped = [((values.reshape(2, 1, 2, 1) - 10) / 2) for values in (prediction, truth)]
    expected = (1 / 5 + 1 / 12) / 2
    assert relative_l2_loss(shaped[0], shaped[1], None, (5.0,)) == pytest.approx(expected)


def test_relative_l2_does_not_see_padding_and_has_a_gradient_at_a_perfect_prediction() -> None:
    target = torch.randn(1, 1, 3, 2)
    wrong = torch.full((1, 1, 1, 2), 1e6)
    prediction = torch.cat([target[:, :, :2], wrong], dim=2).requires_grad_()
    loss = relative_l2_loss(prediction, target, torch.tensor([[True, True, False]]), (0.0, 0.0))
    assert loss < 1e-5
    loss.backward()
    assert prediction.grad is not None and torch.isfinite(prediction.grad).all()


def test_the_loss_of_derivatives_is_the_relative_error_of_central_differences() -> None:
    """Slopes of 2 and 3 along a grid of 4 x 5 points, predicted as 2.2 and 3.6."""
    i, j = torch.meshgrid(torch.arange(4.0), torch.arange(5.0), indexing="ij")
    truth, prediction = 2 * i + 3 * j, 2.2 * i + 3.6 * j + 7.0
    shaped = [values.reshape(1, 1, 20, 1) for values in (prediction, truth)]
    assert derivative_loss(shaped[0], shaped[1], (4, 5)) == pytest.approx(0.1 + 0.2)
    target = torch.randn(2, 3, 24, 2)
    wrong = target.clone()
    wrong[1] *= 1.5
    assert derivative_loss(wrong, target, (2 * 3, 4)) == pytest.approx(2 * 0.5 / 2), "their mean"
    line = torch.arange(24.0).reshape(1, 1, 24, 1)
    columns = line.reshape(4, 6).T.reshape(1, 1, 24, 1)
    assert derivative_loss(columns, line, (4, 6)) > 0.5, "the last axis is the fastest"


@pytest.mark.parametrize(
    ("truth", "nmae"), [((2.0, 0.0), 0.25), ((0.0, 0.0), 0.5 * 12), ((2.0, 1.0), 0.5 * (0.25 + 0))]
)
def test_a_field_that_is_zero_in_all_validation_samples_is_left_out(truth, nmae) -> None:
    """Such as the velocity across a plane flow."""
    targets = torch.tensor(truth).expand(1, 3, 4, 2)
    batch = SimpleNamespace(targets=targets, scale=None, query_mask=None)
    channels = [SimpleNamespace(field=name) for name in ("u", "w")]
    normaliser = SimpleNamespace(channels=channels, std=(1.0, 1.0), mean=(0, 0))
    off = torch.tensor([0.5, 0.0])
    loss, found = measure(
        cast(Any, lambda: [batch]),
        cast(Any, normaliser),
        lambda batch: batch.targets + off,
        lambda prediction, batch: prediction_loss(prediction, batch.targets, None),
    )
    assert (loss, found) == (pytest.approx(0.125), pytest.approx(nmae))


def gradients(model: nn.Module, seed: int) -> None:
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)


def test_the_hidden_matrices_of_courant_read_no_coordinates_and_give_no_field(
    tiny: Experiment,
) -> None:
    model = Courant(tiny.derive(model={"anchor_kind": "learned"}).model)
    hidden, others = ({id(each) for each in part} for part in hidden_matrices(model))
    names = {name: id(parameter) for name, parameter in model.named_parameters()}
    assert hidden | others == set(names.values()) and not hidden & others
    for name in ("learned_anchors", "embedding.frequencies", "decoder.field.weight"):
        assert names[name] in others, name
    assert names["encoder.blocks.0.cross.query.weight"] in hidden
    assert all(names[name] in others for name in names if name.endswith("bias"))


def test_steps_are_those_of_muon_and_adamw_each_on_its_own_part(tiny: Experiment) -> None:
    ours = Courant(tiny.model)
    theirs = deepcopy(ours)
    chosen = {"optimiser": "muon", "learning_rate": RATE, "weight_decay": DECAY}
    optimiser = make_optimiser(ours, tiny.training.model_copy(update=chosen))
    matrices, others = hidden_matrices(theirs)
    started = deepcopy(matrices)
    apart = (
        Muon(matrices, lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
        AdamW(others, lr=RATE, weight_decay=DECAY),
    )
    for number in range(4):
        if number == 2:
            # What a checkpoint does: the state goes through a copy into a new optimiser.
            saved = deepcopy(optimiser.state_dict())
            optimiser = MuonWithAdamW(ours, lr=RATE, weight_decay=DECAY)
            optimiser.load_state_dict(saved)
        for model in (ours, theirs):
            gradients(model, number)
        for each in (optimiser, *apart):
            each.step()
        for one, other in zip(hidden_matrices(ours)[1], others, strict=True):
            assert torch.equal(one, other)
        for one, other, start in zip(hidden_matrices(ours)[0], matrices, started, strict=True):
            # Muon computes in bfloat16, and the order of a stack's sums may be another.
            assert (one - other).norm() <= 0.02 * (other - start).norm()


@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
def test_products_are_in_float32_where_bfloat16_is_imitated(
    capability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    expected = torch.bfloat16 if capability == "AVX512" else torch.float32
    found = optimising.orthogonal(torch.randn(2, 8, 16), (3.4, -4.8, 2.0), 5, 1e-7)
    assert found.dtype == expected
    assert optimising.precision_on(torch.device("cuda")) == torch.bfloat16


@pytest.mark.parametrize("layer", [nn.Linear(3, 2), nn.Linear(16, 16, bias=False)], ids=str)
def test_a_model_may_have_one_kind_of_parameters_alone(layer: nn.Linear) -> None:
    optimiser = MuonWithAdamW(layer, lr=RATE, weight_decay=DECAY)
    before = layer.weight.detach().clone()
    gradients(layer, 0)
    optimiser.step()
    assert not torch.equal(layer.weight, before)


def tasks(dataset: Dataset, ducts: Dataset, **training: Any) -> Iterator[Task]:
    """One of windows, one of whole steady cases, each batch of other shapes."""
    yield Task.load(tiny_experiment(**training), dataset, CPU)
    whole = {"points_per_sample": None, "queries_per_sample": None}
    yield Task.load(tiny_steady(**training).derive(data=whole), ducts, CPU)


class Run:
    """A model with its step."""

    def __init__(self, task: Task) -> None:
        training = task.experiment.training
        torch.manual_seed(0)
        self.model = model = Courant(task.experiment.model)
        self.optimiser = make_optimiser(model, training, fused=True)
        self.step = step.OptimiserStep(task, model, model, self.optimiser, world=1)

    @property
    def state(self) -> dict[str, Tensor]:
        return self.model.state_dict()


@EACH
def test_replayed_steps_are_the_plain_ones_to_the_bit(
    dataset: Dataset, ducts: Dataset, options: dict[str, Any]
) -> None:
    for task in tasks(dataset, ducts, **options):
        plain, replayed = Run(task), Run(task)
        # Work that a graph would do is done at each replay.
        replayed.step._run = step.Replayed(replayed.step._take, lambda call: call)
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
        assert (loss, taken) == (pytest.approx(expected.item(), rel=1e-4), 1)
    for one, other in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


class NothingFromTheHost(TorchDispatchMode):
    """Fails where a tensor is made from the host's numbers: a GPU would be waited for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten.lift_fresh.default, "a tensor of the host's numbers"
        return func(*args, **(kwargs or {}))


@EACH
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


def test_moments_of_a_checkpoint_go_on_whatever_took_the_steps_before(tiny: Experiment) -> None:
    """A checkpoint of another device names another way to compute a step."""
    model = nn.Linear(3, 2)
    older = AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    gradients(model, 0)
    older.step()
    saved = deepcopy(older.state_dict())
    saved["param_groups"][0]["capturable"] = True
    newer = make_optimiser(model, tiny.training, fused=True)
    load_optimiser(newer, saved)
    (group,) = newer.param_groups
    assert (group["fused"], group["capturable"]) == (True, False)
    group["lr"].fill_(RATE)
    twin = deepcopy(model)
    other = AdamW(twin.parameters(), lr=RATE, weight_decay=0.01)
    other.load_state_dict(older.state_dict())
    for each, optimiser in ((model, newer), (twin, other)):
        gradients(each, 1)
        optimiser.step()
    torch.testing.assert_close(model.weight, twin.weight)


def test_graphs_that_cannot_be_are_an_error_before_anything_is_read(
    dataset: Dataset, tiny: Experiment, tmp_path: Any
) -> None:
    graphed = tiny.derive(training={"cuda_graphs": True})
    with pytest.raises(InputError, match=r"cuda_graphs = true, but training runs on cpu"):
        fit(graphed, dataset, RunDirectory(tmp_path))
    assert RunDirectory(tmp_path).names() == []
    adaptive = graphed.derive(model={"solver": "dopri5"})
    with pytest.raises(InputError, match=r"2 workers exchange .* and the solver dopri5 waits"):
        step.uses_graphs(adaptive, torch.device("cuda"), world=2)
    assert step.uses_graphs(graphed, torch.device("cuda"))


def test_graphs_are_used_where_one_gpu_trains_alone_and_nothing_waits(tiny: Experiment) -> None:
    gpu = torch.device("cuda")
    assert step.uses_graphs(tiny, gpu) and not step.uses_graphs(tiny, torch.device("cpu"))
    assert not step.uses_graphs(tiny, gpu, world=2)
    assert not step.uses_graphs(tiny.derive(training={"cuda_graphs": False}), gpu)
    assert not step.uses_graphs(tiny.derive(model={"solver": "dopri5"}), gpu)
    for kind, replayed in (("upt", True), ("transolver", False)):
        assert step.uses_graphs(compared(tiny, kind), gpu) is replayed


def test_beyond_so_many_shapes_the_rest_is_computed_plainly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call does the work once; what was returned is not overwritten by a later replay."""
    monkeypatch.setattr(step, "MOST_GRAPHS", 1)
    recorded, total, outputs = list[int](), torch.zeros(1), list[Tensor]()

    def record(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        recorded.append(1)
        return call

    replayed = step.Replayed(lambda inputs: total.add_(inputs["x"].sum()), record)
    for number in range(step.WARM_UPS + 2):
        for size in (2, 3):
            outputs.append(replayed({"x": torch.full((size,), float(number))}).clone())
    assert recorded == [1]
    assert outputs == [0, 0, 2, 5, 9, 15, 21, 30]
