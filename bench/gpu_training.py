"""Training on a GPU: a step in each mode, the paper's three schedules, and streamed beside resident
batches."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from bench.gpu_tasks import PAPER, TINY, make_task
from bench.measure import synchronise
from courant.experiment import Experiment
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.training.loop import EpochClock, Fitting
from courant.training.step import WARM_UPS

#: Training hours and GB that the paper prints, on an A100.
PUBLISHED = {
    "cylinder-flow": (7.1, 21.8),
    "branched-pipe": (4.5, 3.4),
    "centrifugal-pump": (2.3, 14.6),
}


@dataclass(frozen=True)
class Mode:
    """How a step is computed."""

    precision: str
    graphs: bool
    compile: bool = False
    tf32: bool = False
    optimiser: str = "adamw"

    @property
    def name(self) -> str:
        parts = ["TF32" if self.tf32 else self.precision] + ["compile"] * self.compile
        parts += ["Muon"] * (self.optimiser == "muon")
        return ", ".join([*parts, "CUDA graph" if self.graphs else "eager"])

    def of(self, experiment: Experiment) -> Experiment:
        options = {
            "precision": self.precision,
            "compile": self.compile,
            "cuda_graphs": self.graphs,
            "optimiser": self.optimiser,
        }
        return experiment.derive(training=options)


STEP_MODES = (
    Mode("float32", graphs=False),
    Mode("float32", graphs=True),
    Mode("float32", graphs=True, tf32=True),
    Mode("bfloat16", graphs=False),
    Mode("bfloat16", graphs=True),
    Mode("bfloat16", graphs=True, compile=True),
    Mode("float32", graphs=False, optimiser="muon"),
    Mode("float32", graphs=True, optimiser="muon"),
    Mode("bfloat16", graphs=True, optimiser="muon"),
)
STEADY_STEP_MODES = (Mode("float32", graphs=False), Mode("bfloat16", graphs=False))
SCHEDULE_MODES = (
    Mode("float32", graphs=False),
    Mode("float32", graphs=True),
    Mode("bfloat16", graphs=True),
)
COMPILED = Mode("bfloat16", graphs=True, compile=True)
"""For windows alone: whole cases have one shape each, and would be compiled one by one"""


def runnable(modes: Sequence[Mode], device: torch.device) -> list[Mode]:
    """Without a GPU there are no graphs, and compiling takes longer than all the rest."""
    return [mode for mode in modes if device.type == "cuda" or not (mode.graphs or mode.compile)]


@contextmanager
def matmul_precision(tf32: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    yield
    torch.set_float32_matmul_precision(before)


@contextmanager
def fitting(
    experiment: Experiment, device: torch.device, short: bool, streamed: bool = False
) -> Iterator[Fitting]:
    """The training loop on made-up data, in a folder that is gone afterwards."""
    sizes = (TINY if short else PAPER)[experiment.family]
    with tempfile.TemporaryDirectory(prefix="bench-gpu-") as folder:
        torch.compiler.reset()
        _forget(device)
        yield Fitting.of(
            make_task(experiment, sizes, device, streamed), RunDirectory(folder), device
        )


def _forget(device: torch.device) -> None:
    """Give back the memory of trainings before, whose steps refer to themselves."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def shortened(experiment: Experiment, short: bool) -> Experiment:
    """On a machine without a GPU: that it runs, no more."""
    if not short:
        return experiment
    small = (
        {"batch_size": 4, "samples_per_epoch": 12} if experiment.family == "cylinder-flow" else {}
    )
    return experiment.derive(training=small, model={"width": 24, "num_anchors": 16})


def step_modes(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """Optimiser steps in each mode: milliseconds, peak memory, and the loss after as many steps
    from one start. Steady cases of other shapes each gain nothing from graphs in so few steps."""
    rows = []
    for recipe in PUBLISHED:
        modes = STEP_MODES if recipe == "cylinder-flow" else STEADY_STEP_MODES
        for mode in runnable(modes, device):
            experiment = mode.of(shortened(get_recipe(recipe), short))
            with matmul_precision(mode.tf32), fitting(experiment, device, short) as run:
                taken = time_steps(run, device, 3 if short else 30)
            rows.append({"recipe": recipe, "mode": mode.name, **taken})
            print(rows[-1], flush=True)
    return rows


def time_steps(run: Fitting, device: torch.device, count: int) -> dict[str, Any]:
    """Steps on six batches that are drawn as in training, after six that compile and plan for their
    shapes, and as many again in which graphs are recorded."""
    batches = cycle([batch for _, batch in islice(run.task.train.epoch(1), 6)])
    began = time.perf_counter()
    for number in range(6):
        run.step(next(batches), number, 3e-4)
    synchronise(device)
    first = time.perf_counter() - began
    for number in range(6, 18):
        run.step(next(batches), number, 3e-4)
    synchronise(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    began = time.perf_counter()
    for number in range(18, 18 + count):
        outcome = run.step(next(batches), number, 3e-4)
    launched = time.perf_counter() - began
    synchronise(device)
    return {
        "ms": 1e3 * (time.perf_counter() - began) / count,
        "host_ms": 1e3 * launched / count,
        "first_six_s": first,
        "peak_gb": torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0,
        "loss": outcome[0].item(),
    }


def kernels(
    device: torch.device, short: bool, most: int = 22
) -> dict[str, list[tuple[str, float, int]]]:
    """Where an eager step spends the GPU's time: kernels, milliseconds, launches."""
    found = {}
    for recipe in list(PUBLISHED)[: 1 if short else None]:
        for precision in ("float32", "bfloat16"):
            experiment = Mode(precision, graphs=False).of(shortened(get_recipe(recipe), short))
            with fitting(experiment, device, short) as run:
                time_steps(run, device, 2)
                batches = cycle(run.task.train.epoch(1))
                with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as record:
                    for number in range(2):
                        run.step(next(batches)[1], number, 3e-4)
                    synchronise(device)
            events = sorted(record.key_averages(), key=lambda event: -event.self_device_time_total)
            rows = [
                (event.key[:110], event.self_device_time_total / 2e3, event.count // 2)
                for event in events[:most]
            ]
            found[f"{recipe}, {precision}"] = rows
    return found


def schedules(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """Whole epochs of the paper's recipes through the training loop, and what their schedules come
    to."""
    rows = []
    for recipe, (hours, gigabytes) in PUBLISHED.items():
        compiled = (COMPILED,) if recipe == "cylinder-flow" else ()
        for mode in runnable((*SCHEDULE_MODES, *compiled), device):
            experiment = mode.of(shortened(get_recipe(recipe), short))
            with matmul_precision(mode.tf32), fitting(experiment, device, short) as run:
                row = {"recipe": recipe, "mode": mode.name, **time_epochs(run, device)}
            row |= {"published_hours": hours, "published_gb": gigabytes}
            rows.append(row)
            print(row, flush=True)
    return rows


def time_epochs(run: Fitting, device: torch.device) -> dict[str, Any]:
    """The last of a few epochs (graphs of shapes that come once an epoch are recorded in the
    third), and a validation."""
    training = run.experiment.training
    count = WARM_UPS + 2 if training.cuda_graphs else 2
    records = [run.epoch(epoch, validate=epoch == count) for epoch in range(1, count + 1)]
    began = time.perf_counter()
    assert run.task.validation is not None
    run.validate(run.task.validation)
    validation_s = time.perf_counter() - began
    epoch_s = records[-1].seconds
    first_s = sum(record.seconds - epoch_s for record in records)
    return {
        "epoch_s": epoch_s,
        "validation_s": validation_s,
        "schedule_s": training.epochs * epoch_s
        + training.epochs / training.validate_every * validation_s
        + first_s,
        "samples_per_s": records[-1].samples_per_s,
        "tflops": (records[-1].flops_per_s or 0.0) / 1e12,
        "data_wait_share": records[-1].data_wait_share,
        "peak_gb": records[-1].peak_memory_gb,
        "losses": [record.train_loss for record in records],
    }


def streaming(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """Cyl.Flow from memory on the device, and streamed from this machine's memory through threads
    and pinned memory."""
    rows = []
    for streamed in (False, True):
        mode = Mode("bfloat16", graphs=device.type == "cuda")
        experiment = mode.of(shortened(get_recipe("cylinder-flow"), short))
        with fitting(experiment, device, short, streamed) as run:
            run.train_epoch(1, EpochClock(device))
            clock = EpochClock(device)
            run.train_epoch(2, clock)
            clock.stop()
            samples = run.task.train.num_batches * experiment.training.batch_size
        rows.append(
            {
                "batches": "streamed" if streamed else "resident",
                "samples_per_s": samples / clock.seconds,
                "wait_share": clock.waited_s / clock.seconds,
            }
        )
        print(rows[-1], flush=True)
    return rows
