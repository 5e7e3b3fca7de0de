"""Made-up training tasks of the paper's sizes, made where they are trained: what a sample holds
costs nothing, its size does.

The paper gives cases, steps and batches (tab:dataset-details, tab:cf-hparams, tab:hvac-hparams,
tab:pump-hparams); cells are those of this
project's `paper` presets. Faces of the boundary are chosen: about what the surface of a mesh of so
many cells has.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from courant.data.anchor_choice import AnchorChoice
from courant.data.batch import Batch
from courant.data.batches import BatchOrder, ResidentBatches
from courant.data.channels import Channel
from courant.data.normalisation import Normaliser
from courant.data.samples import list_windows, spread
from courant.data.steady import SteadyBatches, SteadySample
from courant.data.streaming import StreamingBatches
from courant.data.trajectories import TrajectorySet
from courant.experiment import Experiment
from courant.training.task import Task
from courant.training.validation import validate_samples, validate_windows


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
    "cylinder-flow": Sizes(3, 2, (40, 60), frames=150),
    "branched-pipe": Sizes(4, 2, (280, 320), faces=270),
    "centrifugal-pump": Sizes(4, 2, (280, 320), faces=270),
}


def make_task(
    experiment: Experiment, sizes: Sizes, device: torch.device, streamed: bool = False
) -> Task:
    """An experiment with data of these sizes, resident on the device or streamed from this
    machine's memory."""
    torch.manual_seed(0)
    training = experiment.training
    order = BatchOrder(training.batch_size, training.samples_per_epoch, training.seed)
    normaliser = make_normaliser(experiment)
    if isinstance(experiment, Experiment):
        train = SteadyBatches(
            Source(experiment, sizes.train, sizes, device), experiment.data, order, device
        )  # type: ignore[arg-type]
        samples = Source(experiment, sizes.validation, sizes, device).read_all(device)
        return Task(experiment, normaliser, train, validate_samples(samples, normaliser))
    assert isinstance(experiment, Experiment)
    trajectories = make_trajectories(experiment, sizes.train, sizes, device)
    batches: ResidentBatches | StreamingBatches = ResidentBatches(
        trajectories, experiment.data, order
    )
    if streamed:
        batches = StreamingBatches(Reader(trajectories.to("cpu")), experiment.data, order, device)  # type: ignore[arg-type]
    unseen = make_trajectories(experiment, sizes.validation, sizes, device)
    windows = spread(list_windows(unseen, experiment.data), training.validation_windows)
    return Task(
        experiment,
        normaliser,
        batches,
        validate_windows(unseen, windows, experiment.data, normaliser),
    )


def make_normaliser(experiment: Experiment) -> Normaliser:
    """Values are standardised already."""
    count = experiment.model.num_outputs
    return Normaliser(
        dimension=3,
        centre=(0.0,) * 3,
        length_scale=1.0,
        lower=(-1.0,) * 3,
        upper=(1.0,) * 3,
        patch_kinds=("wall",),
        channels=tuple(Channel("field", str(number), number, "1") for number in range(count)),
        mean=(0.0,) * count,
        std=(1.0,) * count,
    )


def make_trajectories(
    experiment: Experiment, num: int, sizes: Sizes, device: torch.device
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
    frames = torch.empty(num * sizes.frames, most, experiment.model.num_outputs, device=device)
    for case in range(num):
        phase = 9 * points[case, :, 0] - (0.05 + 0.002 * case) * time[:, None]
        waves = torch.stack([phase.sin(), phase.cos() * (1 - 9 * points[case, :, 1] ** 2)], dim=-1)
        frames[case * sizes.frames : (case + 1) * sizes.frames] = waves * real[case, :, None]
    model = experiment.model
    return TrajectorySet(
        ids=tuple(f"case-{number}" for number in range(num)),
        snapshot_interval_s=1.0,
        points=points * real[..., None],
        distance=distances(points, model.num_query_features) * real[..., None],
        anchors=AnchorChoice(model.num_anchors).among(points, real),
        num_points=num_points,
        frames=frames,
        first_frame=sizes.frames * torch.arange(num),
        start_s=torch.full((num,), experiment.data.start_s, dtype=torch.float64),
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
    """Steady cases, as `courant.data.steady.SteadySource` has them; made once."""

    def __init__(
        self, experiment: Experiment, num: int, sizes: Sizes, device: torch.device
    ) -> None:
        self.ids = tuple(f"case-{number}" for number in range(num))
        cells = torch.linspace(*sizes.cells, num).long().tolist()
        self._samples = [
            self._make(experiment, number, count, sizes.faces, device)
            for number, count in enumerate(cells)
        ]

    def read_all(self, device: torch.device | str) -> list[SteadySample]:
        return [sample.to(device) for sample in self._samples]

    def _make(
        self, experiment: Experiment, number: int, cells: int, faces: int, device: torch.device
    ) -> SteadySample:
        model = experiment.model
        # Numbers of faces differ from case to case as numbers of cells do.
        queries, cloud = (
            2 * torch.rand(1, count, 3, device=device) - 1 for count in (cells, faces + 8 * number)
        )
        targets = (
            queries
            @ torch.ones(3, 1, device=device)
            * torch.arange(1.0, 1 + model.num_outputs, device=device)
        ).sin()
        batch = Batch(
            points=cloud,
            features=torch.randn(1, cloud.shape[1], model.num_features, device=device),
            mask=None,
            anchors=AnchorChoice(model.num_anchors).among(cloud),
            query_points=queries,
            query_features=distances(queries, model.num_query_features),
            query_mask=None,
            targets=targets[:, None],
            parameters=2 * torch.rand(1, model.num_parameters, device=device) - 1,
        )
        return SteadySample(self.ids[number], batch)


class Reader:
    """Windows of trajectories in this machine's memory, as
    `courant.data.window_reader.WindowReader` reads them from its cache."""

    def __init__(self, trajectories: TrajectorySet) -> None:
        self._all = trajectories
        self.ids, self.snapshot_interval_s = trajectories.ids, trajectories.snapshot_interval_s
        self.start_s, self.num_frames = trajectories.start_s, trajectories.num_frames
        self.num_bytes = 0

    def read(self, windows: Tensor, steps: int, stride: int) -> TrajectorySet:
        case, first = windows.unbind(1)
        frames = torch.cat(
            [
                self._all.frames[begin : begin + steps * stride + 1 : stride]
                for begin in (self._all.first_frame[case] + first).tolist()
            ]
        )
        chosen = {
            name: getattr(self._all, name)[case]
            for name in ("points", "distance", "anchors", "num_points", "sign", "offset")
        }
        return TrajectorySet(
            ids=tuple(self.ids[number] for number in case.tolist()),
            snapshot_interval_s=self.snapshot_interval_s * stride,
            frames=frames,
            first_frame=(steps + 1) * torch.arange(len(windows)),
            num_frames=torch.full((len(windows),), steps + 1),
            start_s=self.start_s[case] + first * self.snapshot_interval_s,
            **chosen,
        )
