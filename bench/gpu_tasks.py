"""Made-up training tasks of the paper's sizes, made where they are trained: what a sample holds
costs nothing, its size does.

The paper gives cases, steps and batches (tab:dataset-details, tab:cf-hparams, tab:hvac-hparams,
tab:pump-hparams); cells are those of this project's `paper` presets. Faces of the boundary are
chosen: about what the surface of a mesh of so many cells has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from courant.data.batch import Batch
from courant.data.batches import Batches, BatchOrder, spread
from courant.data.normalisation import Channel, Normaliser, ParameterRange
from courant.data_config import SteadyData, TransientData
from courant.experiment import Experiment
from courant.problems import Problem, problem_of
from courant.problems.problem import Samples
from courant.problems.steady import SteadyBatches, SteadySource
from courant.problems.transient import (
    VALIDATION_BATCH,
    ResidentBatches,
    StreamingBatches,
    TrajectorySet,
    WindowReader,
    full_batch,
    list_windows,
)
from courant.training.loop import Task, Validation


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
    "cylinder-flow": Sizes(140, 30, (2_000, 2_600), frames=901),
    "branched-pipe": Sizes(210, 45, (36_000, 38_000), faces=12_000),
    "centrifugal-pump": Sizes(210, 45, (230_000, 372_000), faces=45_000),
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
        train, samples = steady(problem, experiment.data, sizes, order, device, made_on)
    else:
        config = cast(TransientData, experiment.data)
        train, samples = transient(problem, config, sizes, order, device, streamed, made_on)
    return Task(problem, train, Validation(samples, problem.normaliser))


def steady(
    problem: Problem,
    config: SteadyData,
    sizes: Sizes,
    order: BatchOrder,
    device: torch.device,
    made_on: torch.device,
) -> tuple[Batches, Samples]:
    """Whole cases, resident on the device; those of the validation come one at a time."""
    source = cast(SteadySource, Source(problem, sizes.train, sizes, made_on))
    unseen = Source(problem, sizes.validation, sizes, made_on).read_all(device)
    train = SteadyBatches(source, config, order, device)
    return train, lambda: iter(unseen)


def transient(
    problem: Problem,
    config: TransientData,
    sizes: Sizes,
    order: BatchOrder,
    device: torch.device,
    streamed: bool,
    made_on: torch.device,
) -> tuple[Batches, Samples]:
    """Windows of trajectories; those of the validation as `TransientProblem` draws them."""
    trajectories = make_trajectories(problem, config, sizes.train, sizes, made_on).to(device)
    train: Batches
    if streamed:
        reader = cast(WindowReader, Reader(trajectories.to("cpu")))
        train = StreamingBatches(reader, config, order, device)
    else:
        train = ResidentBatches(trajectories, config, order)
    unseen = make_trajectories(problem, config, sizes.validation, sizes, made_on).to(device)
    num = problem.experiment.training.validation_windows
    windows = spread(list_windows(unseen, config), num).split(VALIDATION_BATCH)
    draw = partial(full_batch, unseen, config=config)
    return train, lambda: (draw(windows=chosen) for chosen in windows)


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
        channels=channels,
        mean=(0.0,) * len(channels),
        std=(1.0,) * len(channels),
        distance_kinds=experiment.data.distance_kinds or (),
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
        self.ids = tuple(f"case-{number}" for number in range(num))
        cells = torch.linspace(*sizes.cells, num).long().tolist()
        self._samples = [
            # Numbers of faces differ from case to case as numbers of cells do.
            make_steady_sample(problem, count, sizes.faces + 8 * number, device)
            for number, count in enumerate(cells)
        ]

    def read_all(self, device: torch.device | str) -> list[Batch]:
        return [sample.map(lambda value: value.to(device)) for sample in self._samples]


def make_steady_sample(problem: Problem, cells: int, faces: int, device: torch.device) -> Batch:
    """Random clouds of a boundary and of a mesh, with smooth fields."""
    model = problem.experiment.model
    queries, cloud = (2 * torch.rand(1, count, 3, device=device) - 1 for count in (cells, faces))
    slopes = torch.arange(1.0, 1 + model.num_outputs, device=device)
    targets = (queries.sum(-1, keepdim=True) * slopes).sin()
    return Batch(
        points=cloud,
        features=torch.randn(1, faces, model.num_features, device=device),
        mask=None,
        anchors=problem.anchors.among(cloud),
        query_points=queries,
        query_features=distances(queries, model.num_query_features),
        query_mask=None,
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
        self.num_bytes = 0

    def read(self, windows: Tensor, num: int, stride: int) -> TrajectorySet:
        case, first = windows.unbind(1)
        frames = torch.cat(
            [
                self._all.frames[begin : begin + (num - 1) * stride + 1 : stride]
                for begin in (self._all.first_frame[case] + first).tolist()
            ]
        )
        names = ("points", "distance", "anchors", "parameters", "num_points", "sign", "offset")
        chosen = {name: getattr(self._all, name)[case] for name in names}
        return TrajectorySet(
            ids=tuple(self.ids[number] for number in case.tolist()),
            snapshot_interval_s=self.snapshot_interval_s * stride,
            frames=frames,
            first_frame=num * torch.arange(len(windows)),
            num_frames=torch.full((len(windows),), num),
            start_s=self.start_s[case] + first * self.snapshot_interval_s,
            **chosen,
        )
