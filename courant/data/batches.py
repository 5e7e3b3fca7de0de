"""Where training batches come from: samples that lie on the device, or a stream from the store. Both give the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from courant.data.samples import Batch, TrajectoryIndex, draw_batch, epoch_batches, list_windows, seeded
from courant.data.trajectories import TrajectorySet
from courant.experiment import TransientData

Source = TypeVar("Source", bound=TrajectoryIndex)


@dataclass(frozen=True)
class BatchOrder:
    """Which windows make up which batch, and which part of a batch is this worker's: a function of these values alone."""

    batch_size: int
    """Over all workers together"""
    samples_per_epoch: int | None
    seed: int
    rank: int = 0
    world: int = 1

    @property
    def shard(self) -> slice:
        return slice(self.rank, None, self.world)

    def num_batches(self, num_windows: int) -> int:
        return max(1, (self.samples_per_epoch or num_windows) // self.batch_size)

    def epoch(self, num_windows: int, epoch: int) -> Iterator[Tensor]:
        """Window numbers of each batch of the epoch, the whole batch's."""
        return epoch_batches(num_windows, self.batch_size, self.samples_per_epoch, self.seed, epoch)

    def points(self, epoch: int, batch: int) -> torch.Generator:
        """What a batch's points are drawn with."""
        return seeded(self.seed, "points", epoch, batch)


class Batches(Protocol):
    """A source of training batches."""

    @property
    def num_cases(self) -> int: ...

    @property
    def num_samples(self) -> int:
        """Different ones: windows, or steady cases."""

    @property
    def num_batches(self) -> int:
        """Batches, that is optimiser steps, in an epoch."""

    @property
    def num_bytes(self) -> int:
        """Held in memory."""

    def epoch(self, epoch: int, begin: int = 0) -> Iterator[tuple[Tensor, Batch]]:
        """From batch `begin` of an epoch on: which samples the whole batch is of, and this worker's part of it on its device."""

    def describe(self, samples: Tensor) -> Sequence[dict[str, object]]:
        """For a record of a batch: case, and start time of a window."""


class WindowBatches(Generic[Source]):
    """What batches of windows say of themselves, wherever their snapshots lie."""

    def __init__(self, trajectories: Source, config: TransientData, order: BatchOrder) -> None:
        self.trajectories, self.config, self.order = trajectories, config, order
        self.windows = list_windows(trajectories, config)

    @property
    def num_batches(self) -> int:
        return self.order.num_batches(len(self.windows))

    @property
    def num_cases(self) -> int:
        return len(self.trajectories.ids)

    @property
    def num_samples(self) -> int:
        return len(self.windows)

    @property
    def num_bytes(self) -> int:
        return self.trajectories.num_bytes

    def describe(self, windows: Tensor) -> list[dict[str, object]]:
        """Case and start time of each window, for a record of a batch."""
        interval = self.trajectories.snapshot_interval_s
        return [
            {
                "case": self.trajectories.ids[case],
                "start_s": float(self.trajectories.start_s[case]) + first * interval,
            }
            for case, first in windows.tolist()
        ]


class ResidentBatches(WindowBatches[TrajectorySet]):
    """Batches gathered from trajectories on the training device."""

    def epoch(self, epoch: int, begin: int = 0) -> Iterator[tuple[Tensor, Batch]]:
        for index, chosen in enumerate(self.order.epoch(len(self.windows), epoch)):
            if index >= begin:
                windows = self.windows[chosen]
                points = self.order.points(epoch, index)
                yield windows, draw_batch(self.trajectories, windows, self.config, points, self.order.shard)
