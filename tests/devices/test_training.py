"""Training on each kind of device: every kind of model, with every option of the optimiser's step.

A machine without a GPU shows here that the tests run; `make gpu` runs them where there is one. They
need neither the store nor Ray: data are made up.
"""

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.gpu_training import TINY, make_task, shortened
from courant.experiment import Experiment
from courant.models import BASELINES
from courant.recipes import get_recipe
from courant.recipes.compared import compared
from courant.runs.directory import RunDirectory
from courant.training.step import uses_graphs
from courant.training.train import Fitting
from simgen.errors import InputError
from tests.baselines.tiny import OWN

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
DEVICES = [pytest.param(CPU, id="cpu"), pytest.param(CUDA, id="cuda", marks=needs_gpu)]
COURANT: Mapping[str, dict[str, Any]] = {
    "courant": {},
    "windows": {"gaussian_window": "both"},
    "learned anchors": {"anchor_kind": "learned"},
    "abstract queries": {"anchor_kind": "abstract"},
    "two members": {"num_members": 2},
}
OPTIONS: Mapping[str, dict[str, Any]] = {
    "AdamW": {},
    "Muon": {"optimiser": "muon"},
    "parts": {"accumulate": 2},
    "Muon, skips": {"optimiser": "muon", "nonfinite": "skip"},
    "relative": {"loss": "relative-l2", "schedule": "cosine", "warmup_steps": 2},
    "bfloat16": {"precision": "bfloat16"},
}
FAMILIES = [pytest.param("cylinder-flow", marks=needs_gpu), "branched-pipe"]
"""Windows take long on a CPU, where other tests train them"""
MODELS = [*COURANT, *BASELINES]
GRAPHED = [(model, "AdamW") for model in MODELS] + [("courant", name) for name in OPTIONS][1:]


def tiny(family: str, model: str = "courant", **training: Any) -> Experiment:
    """A recipe of the paper with a tiny model: few epochs, batches of two cases or more."""
    recipe = shortened(get_recipe(family), short=True)
    if model in COURANT:
        chosen = recipe.derive(model=COURANT[model])
    else:
        chosen = compared(recipe, model, has_mesh=False).derive(model=OWN[model])
    batch = max(2, recipe.training.batch_size)
    usual = {"epochs": 4, "batch_size": batch, "validation_windows": 4, "cuda_graphs": False}
    return chosen.derive(training={**usual, **training})


def start(experiment: Experiment, device: torch.device, folder: Path) -> Fitting:
    """The training on made-up data, the same on every device; goes on where the folder has some."""
    task = make_task(experiment, TINY[experiment.family], device, made_on=CPU)
    torch.compiler.reset()
    return Fitting(task, RunDirectory(folder), device)


def losses(run: Fitting, last: int) -> list[float]:
    """Train and keep epochs up to this one."""
    records = []
    for epoch in range(run.state.epoch + 1, last + 1):
        records.append(run.epoch(epoch, validate=True))
        run.write(records[-1], keep=True)
    return [loss for of in records for loss in (of.train_loss, of.validation_loss or 0.0)]


def weights(run: Fitting) -> Tensor:
    return torch.cat([value.detach().flatten().cpu() for value in run.bare.parameters()])


def apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.fixture(autouse=True)
def plain_products() -> Iterator[None]:
    """Products on a GPU are those of float32, as on a CPU."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("model", MODELS)
def test_every_model_learns_as_in_float32_on_a_cpu_and_goes_on_from_a_checkpoint(
    model: str, family: str, device: torch.device, tmp_path: Path
) -> None:
    experiment = tiny(family, model)
    here, there = (start(experiment, each, tmp_path / each.type) for each in (CPU, device))
    assert {value.device.type for value in there.bare.state_dict().values()} == {device.type}
    if device.type == "cpu":
        here = start(experiment, CPU, tmp_path / "twin")
    assert losses(there, 1) == pytest.approx(losses(here, 1), rel=1e-3)
    later = start(experiment, device, tmp_path / device.type)
    assert later.state.epoch == 1
    assert torch.equal(weights(later), weights(there))
    assert losses(later, 2) == pytest.approx(losses(there, 2), rel=1e-4)
    assert apart(weights(later), weights(there)) < 1e-4
    # Weights of any device are read on a CPU.
    back = start(experiment, CPU, tmp_path / device.type)
    assert torch.equal(weights(back), weights(there))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_option_of_a_step_leads_to_the_losses_of_a_cpu(
    family: str, options: dict[str, Any], device: torch.device, tmp_path: Path
) -> None:
    experiment = tiny(family, **options)
    found = losses(start(experiment, device, tmp_path / "device"), 4)
    assert found[-2] < found[0]
    if device.type != "cpu":
        expected = losses(start(experiment, CPU, tmp_path / "cpu"), 4)
        # Muon computes in bfloat16 where that is fast.
        rounded = "muon" in options.values() or "bfloat16" in options.values()
        assert found == pytest.approx(expected, rel=2e-2 if rounded else 1e-3)


@needs_gpu
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_training_goes_on_on_another_kind_of_device(optimiser: str, tmp_path: Path) -> None:
    experiment = tiny("branched-pipe", optimiser=optimiser)
    expected = losses(start(experiment, CPU, tmp_path / "straight"), 4)
    found: list[float] = []
    for epoch, device in enumerate((CPU, CUDA, CPU, CUDA), start=1):
        found += losses(start(experiment, device, tmp_path / "moved"), epoch)
    assert found == pytest.approx(expected, rel=2e-2)


@needs_gpu
@pytest.mark.parametrize(("model", "options"), GRAPHED)
@pytest.mark.parametrize("family", FAMILIES)
def test_steps_replayed_from_cuda_graphs_are_the_plain_ones(
    family: str, model: str, options: str, tmp_path: Path
) -> None:
    plain, graphed = (
        start(
            tiny(family, model, **OPTIONS[options], cuda_graphs=graphs),
            CUDA,
            tmp_path / str(graphs),
        )
        for graphs in (False, True)
    )
    if plain.experiment.model.waits_for_device:
        with pytest.raises(InputError, match="waits for the device"):
            uses_graphs(graphed.experiment, CUDA, world=1)
        return
    assert losses(graphed, 4) == pytest.approx(losses(plain, 4), rel=1e-3)
    assert graphed.step._run._replays, "steps were replayed"  # type: ignore[attr-defined]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_step_that_is_not_finite_leaves_everything_as_it_is(
    optimiser: str, device: torch.device, tmp_path: Path
) -> None:
    experiment = tiny("cylinder-flow", optimiser=optimiser)
    run = start(experiment, device, tmp_path)
    batches = cycle([batch for _, batch in run.task.train.epoch(1)])

    def step(number: int, spoilt: bool) -> bool:
        batch = next(batches)
        if spoilt:
            batch = replace(batch, targets=batch.targets * math.nan)
        return bool(run.step(batch, number, 1e-3)[2])

    assert step(0, spoilt=False)
    before, kept = weights(run), deepcopy(run.optimiser.state_dict()["state"])
    assert not step(1, spoilt=True)
    assert torch.equal(weights(run), before)
    for number, state in run.optimiser.state_dict()["state"].items():
        assert all(torch.equal(value, kept[number][name]) for name, value in state.items())
    assert step(2, spoilt=False)
    assert not torch.equal(weights(run), before)
    assert bool(weights(run).isfinite().all())


@pytest.mark.parametrize("device", DEVICES)
def test_batches_that_are_streamed_are_those_that_are_resident(device: torch.device) -> None:
    experiment = tiny("cylinder-flow")
    tasks = [
        make_task(experiment, TINY["cylinder-flow"], device, streamed, made_on=CPU)
        for streamed in (False, True)
    ]
    for (samples, batch), (others, other) in zip(
        *(task.train.epoch(1) for task in tasks), strict=True
    ):
        assert torch.equal(samples, others)
        for name, value in batch.tensors.items():
            assert value.device.type == device.type
            torch.testing.assert_close(other.tensors[name], value)


@needs_gpu
def test_a_training_step_does_not_wait_for_the_gpu(tmp_path: Path) -> None:
    """Neither optimiser: torch warns of each call that waits."""
    for optimiser in ("adamw", "muon"):
        run = start(tiny("cylinder-flow", optimiser=optimiser), CUDA, tmp_path / optimiser)
        batches = [batch for _, batch in run.task.train.epoch(1)]
        run.step(batches[0], 0, 1e-3)
        torch.cuda.set_sync_debug_mode("error")
        try:
            run.step(batches[1], 1, 1e-3)
        finally:
            torch.cuda.set_sync_debug_mode("default")
