"""Training on a GPU: a step in each mode, the paper's three schedules, and streamed beside resident
batches.

Tasks are made up, of the paper's sizes: what a sample holds costs nothing, its size does. The paper
gives cases, steps and batches (tab:dataset-details, tab:cf-hparams, tab:hvac-hparams,
tab:pump-hparams); cells, and the faces of the pump's boundary, are those of this project's `paper`
presets. Those of the pipe's are chosen: about what the surface of a mesh of so many cells has.
"""

import gc
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any, cast

import torch
from torch import Tensor

from bench.measure import synchronise
from courant.data.batch import Batch, BatchOrder, spread
from courant.data.normalisation import Channel, Normaliser, ParameterRange
from courant.experiment import Experiment, SteadyData, TransientData
from courant.problems import Problem, problem_of
from courant.problems.steady import SteadyBatches, SteadySource
from courant.problems.transient import (
    VALIDATION_BATCH,
    TrajectorySet,
    WindowBatches,
    WindowReader,
    gather,
    list_windows,
    snapshots_per_step,
)
from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.training.step import WARM_UPS
from courant.training.train import Fitting, Task
from tests.baselines.tiny import OWN


@dataclass(frozen=True)
class Sizes:
    """Of a split: cases, the least and most cells of a case, its boundary's faces, and
    snapshots."""

    train: int
    validation: int
    cells: tuple[int, int]
    faces: int = 0
    frames: int = 0


PAPER = {
    "cylinder-flow": Sizes(140, 30, (2_100, 4_600), frames=901),
    "branched-pipe": Sizes(210, 45, (36_000, 38_000), faces=12_000),
    "centrifugal-pump": Sizes(210, 45, (230_000, 372_000), faces=58_774),
}
TINY = {
    "cylinder-flow": Sizes(3, 2, (40, 60), frames=115),
    "branched-pipe": Sizes(3, 2, (60, 80), faces=50),
    "centrifugal-pump": Sizes(3, 2, (60, 80), faces=50),
}
VELOCITY = tuple(Channel("velocity", axis, column, "m/s") for column, axis in enumerate("xyz"))
CHANNELS = {
    "cylinder-flow": VELOCITY[:2],
    "branched-pipe": VELOCITY[::2],
    "centrifugal-pump": (*VELOCITY, Channel("kinematic_pressure", "p", 0, "m2/s2")),
}
PATCH_KINDS = {
    "cylinder-flow": ("inlet", "outlet", "wall", "cylinder"),
    "branched-pipe": ("inlet", "outlet", "wall"),
    "centrifugal-pump": ("inlet", "outlet", "wall", "impeller"),
}
"""Those of the families, which a machine without the store's libraries cannot ask"""


def make_task(
    experiment: Experiment,
    sizes: Sizes,
    device: torch.device,
    streamed: bool = False,
    made_on: torch.device | None = None,
) -> Task:
    """An experiment with data of these sizes, resident on the device or streamed from this
    machine's memory. Data made on a CPU are the same for every device, which takes longer."""
    torch.manual_seed(0)
    made_on = made_on or device
    problem, training = problem_of(experiment, make_normaliser(experiment)), experiment.training
    assert problem.wrong_sizes() == [], problem.wrong_sizes()
    order = BatchOrder(training.batch_size, training.samples_per_epoch, training.seed)
    if isinstance(experiment.data, SteadyData):
        # Whole cases, resident on the device; those of the validation come one at a time.
        source = cast(SteadySource, Source(problem, sizes.train, sizes, made_on))
        unseen = Source(problem, sizes.validation, sizes, made_on).read_all(device)
        steady = SteadyBatches(source, order, device)
        return Task(problem, steady, lambda: iter(unseen))
    # Windows of trajectories; those of the validation as `TransientProblem` draws them.
    config = cast(TransientData, experiment.data)
    seen = make_trajectories(problem, config, sizes.train, sizes, made_on).to(device)
    reader = cast(WindowReader, Reader(seen.to("cpu")))
    train = WindowBatches(reader if streamed else seen, config, order, device)
    others = make_trajectories(problem, config, sizes.validation, sizes, made_on).to(device)
    windows = spread(list_windows(others, config), training.validation_windows)
    draw = partial(gather, others, config=config)

    def samples() -> Iterator[Batch]:
        return (draw(windows=chosen) for chosen in windows.split(VALIDATION_BATCH))

    return Task(problem, train, samples)


def make_normaliser(experiment: Experiment) -> Normaliser:
    """Values are standardised already."""
    channels, count = CHANNELS[experiment.family], experiment.model.num_parameters
    return Normaliser(
        dimension=2 if experiment.family == "cylinder-flow" else 3,
        centre=(0.0,) * 3,
        length_scale=1.0,
        lower=(-1.0,) * 3,
        upper=(1.0,) * 3,
        patch_kinds=PATCH_KINDS[experiment.family],
        stored_kinds=PATCH_KINDS[experiment.family],
        channels=channels,
        mean=(0.0,) * len(channels),
        std=(1.0,) * len(channels),
        distance_kinds=experiment.data.distance_kinds or PATCH_KINDS[experiment.family],
        parameters=tuple(ParameterRange(str(number), -1.0, 1.0) for number in range(count)),
    )


def make_trajectories(
    problem: Problem, config: TransientData, num: int, sizes: Sizes, device: torch.device
) -> TrajectorySet:
    """Waves that travel through a channel, each case with its own speed, points and number of
    them."""
    least, most = sizes.cells
    num_points = torch.linspace(least, most, num).long()
    points = (2 * torch.rand(num, most, 3, device=device) - 1) * torch.tensor(
        [1.0, 0.33, 0.0], device=device
    )
    real = torch.arange(most, device=device) < num_points.to(device)[:, None]
    time = torch.arange(sizes.frames, device=device)
    model = problem.experiment.model
    frames = torch.empty(num * sizes.frames, most, model.num_outputs, device=device)
    for case in range(num):
        phase = 9 * points[case, :, 0] - (0.05 + 0.002 * case) * time[:, None]
        waves = torch.stack([phase.sin(), phase.cos() * (1 - 9 * points[case, :, 1] ** 2)], dim=-1)
        frames[case * sizes.frames : (case + 1) * sizes.frames] = waves * real[case, :, None]
    return TrajectorySet(
        ids=tuple(f"case-{number}" for number in range(num)),
        snapshot_interval_s=1.0,
        points=points * real[..., None],
        distance=distances(points, model.num_query_features) * real[..., None],
        anchors=problem.anchors.among(points, real),
        parameters=torch.zeros(num, model.num_parameters, device=device),
        num_points=num_points,
        frames=frames,
        first_frame=sizes.frames * torch.arange(num),
        start_s=torch.full((num,), config.start_s, dtype=torch.float64),
        num_frames=torch.full((num,), sizes.frames),
        sign=torch.ones(num, frames.shape[2], device=device),
        offset=torch.zeros(num, frames.shape[2], device=device),
    )


def distances(points: Tensor, num: int) -> Tensor:
    """(..., 3) -> (..., num) smooth functions of the place."""
    return torch.cat([(points * (1 + number)).sin() for number in range(-(-num // 3))], dim=-1)[
        ..., :num
    ]


class Source:
    """Steady cases, as `courant.problems.steady.SteadySource` has them; made once."""

    def __init__(self, problem: Problem, num: int, sizes: Sizes, device: torch.device) -> None:
        self.problem, self.ids = problem, tuple(f"case-{number}" for number in range(num))
        cells = torch.linspace(*sizes.cells, num).long().tolist()
        self._samples = [
            # Numbers of faces differ from case to case as numbers of cells do.
            make_steady_sample(problem, count, sizes.faces + 8 * number, device)
            for number, count in enumerate(cells)
        ]

    def read_all(self, device: torch.device | str) -> list[Batch]:
        return [sample.map(lambda value: value.to(device)) for sample in self._samples]


def make_steady_sample(problem: Problem, cells: int, faces: int, device: torch.device) -> Batch:
    """Random clouds of a mesh and of what the encoder reads, with smooth fields."""
    model, data = problem.experiment.model, cast(SteadyData, problem.experiment.data)
    queries, cloud = (2 * torch.rand(1, count, 3, device=device) - 1 for count in (cells, faces))
    if data.encoder == "mesh":
        cloud = queries
    slopes = torch.arange(1.0, 1 + model.num_outputs, device=device)
    targets = (queries.sum(-1, keepdim=True) * slopes).sin()
    return Batch(
        points=cloud,
        features=torch.randn(1, cloud.shape[1], model.num_features, device=device),
        anchors=problem.anchors.among(cloud),
        query_points=queries,
        query_features=distances(queries, model.num_query_features),
        targets=targets[:, None],
        parameters=2 * torch.rand(1, model.num_parameters, device=device) - 1,
    )


class Reader:
    """Windows of trajectories in this machine's memory, as
    `courant.problems.transient.WindowReader` reads them from its cache."""

    def __init__(self, trajectories: TrajectorySet) -> None:
        self._all = trajectories
        self.ids, self.snapshot_interval_s = trajectories.ids, trajectories.snapshot_interval_s
        self.start_s, self.num_frames = trajectories.start_s, trajectories.num_frames

    def read(self, windows: Tensor, config: TransientData) -> tuple[TrajectorySet, Tensor]:
        case, first = windows.unbind(1)
        num, stride = config.num_states, snapshots_per_step(self._all, config)
        frames = torch.cat(
            [
                self._all.frames[begin : begin + (num - 1) * stride + 1 : stride]
                for begin in (self._all.first_frame[case] + first).tolist()
            ]
        )
        names = ("points", "distance", "anchors", "parameters", "num_points", "sign", "offset")
        chosen = {name: getattr(self._all, name)[case] for name in names}
        read = TrajectorySet(
            ids=tuple(self.ids[number] for number in case.tolist()),
            snapshot_interval_s=self.snapshot_interval_s * stride,
            frames=frames,
            first_frame=num * torch.arange(len(windows)),
            num_frames=torch.full((len(windows),), num),
            start_s=self.start_s[case] + first * self.snapshot_interval_s,
            **chosen,
        )
        places = torch.arange(len(windows))
        return read, torch.stack([places, torch.zeros_like(places)], dim=1)


#: Training hours and GB that the paper prints, on an A100, by recipe and what its name ends in.
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "cylinder-flow": {
        "": (7.1, 21.8),
        "transolver": (11.8, 23.1),
        "upt": (24.4, 37.4),
        "mgn": (27.8, 42.4),
        "fno": (4.9, 22.2),
    },
    "branched-pipe": {
        "": (4.5, 3.4),
        "gwa": (4.9, 4.2),
        "full-mesh": (12.6, 6.1),
        "transolver": (2.2, 18.4),
        "upt": (8.4, 3.3),
        "mgn": (9.4, 78.8),
    },
    "centrifugal-pump": {
        "": (2.3, 14.6),
        "gwa": (2.4, 18.9),
        "full-mesh": (8.3, 26.4),
        "transolver": (7.3, 73.6),
        "upt": (4.4, 12.6),
    },
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
        # Give back the memory of trainings before, whose steps refer to themselves.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        yield Fitting(make_task(experiment, sizes, device, streamed), RunDirectory(folder), device)


def shortened(experiment: Experiment, short: bool) -> Experiment:
    """On a machine without a GPU: that it runs, no more."""
    if not short:
        return experiment
    small = (
        {"batch_size": 4, "samples_per_epoch": 12} if experiment.family == "cylinder-flow" else {}
    )
    tiny = {"width": 24, "num_anchors": 16}
    return experiment.derive(training=small, model=OWN.get(experiment.model.kind, tiny))


def models(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """A plain step of each model of the paper's tables, beside what the paper's hours come to.

    `times` and `memory` are over those of Courant on the same data: on the full mesh, what the
    boundary cloud saves. A model that does not fit into the memory has no numbers.
    """
    rows: list[dict[str, Any]] = []
    for recipe, trainings in PUBLISHED.items():
        beside: dict[str, Any] = {}
        for model, (hours, gigabytes) in trainings.items():
            published = get_recipe("-".join(filter(None, (recipe, model))))
            if model == "mgn":  # made-up points have no mesh
                published = published.derive(model={"edges": "nearest"})
            training = published.training
            an_epoch = training.samples_per_epoch or PAPER[recipe].train
            num_steps = training.epochs * -(-an_epoch // training.batch_size)
            row: dict[str, Any] = {"recipe": recipe, "model": model or "courant"}
            for mode in STEADY_STEP_MODES:
                try:
                    with fitting(mode.of(shortened(published, short)), device, short) as run:
                        taken = time_steps(run, device, 3 if short else 10)
                except torch.OutOfMemoryError:
                    taken = {"ms": math.nan, "peak_gb": math.nan}
                row |= {f"{mode.precision} {key}": taken[key] for key in ("ms", "peak_gb")}
            row |= {"paper ms": 3.6e6 * hours / num_steps, "paper GB": gigabytes}
            beside = beside or row
            row["times"] = row["float32 ms"] / beside["float32 ms"]
            row["memory"] = row["float32 peak_gb"] / (beside["float32 peak_gb"] or math.nan)
            rows.append(row)
    return rows


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


def schedules(device: torch.device, short: bool) -> list[dict[str, Any]]:
    """Whole epochs of the paper's recipes through the training loop, and what their schedules come
    to."""
    rows = []
    for recipe, trainings in PUBLISHED.items():
        hours, gigabytes = trainings[""]
        compiled = (COMPILED,) if recipe == "cylinder-flow" else ()
        for mode in runnable((*SCHEDULE_MODES, *compiled), device):
            experiment = mode.of(shortened(get_recipe(recipe), short))
            with matmul_precision(mode.tf32), fitting(experiment, device, short) as run:
                row = {"recipe": recipe, "mode": mode.name, **time_epochs(run, device)}
            row |= {"published_hours": hours, "published_gb": gigabytes}
            rows.append(row)
    return rows


def time_epochs(run: Fitting, device: torch.device) -> dict[str, Any]:
    """The last of a few epochs (graphs of shapes that come once an epoch are recorded in the
    third), and a validation."""
    training = run.task.experiment.training
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
            run.train_epoch(1)
            began = time.perf_counter()
            *_, waited_s = run.train_epoch(2)
            seconds = time.perf_counter() - began
            samples = run.task.train.num_batches * experiment.training.batch_size
        rows.append(
            {
                "batches": "streamed" if streamed else "resident",
                "samples_per_s": samples / seconds,
                "wait_share": waited_s / seconds,
            }
        )
    return rows
