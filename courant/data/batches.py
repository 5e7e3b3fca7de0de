"""Provide training batches, resident on the device or streamed; both give the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from courant.data.batch import Batch
from courant.data.samples import TrajectoryIndex, draw_batch, epoch_batches, list_windows, seeded
from courant.data.trajectories import TrajectorySet
from courant.data_config import TransientData

Source = TypeVar("Source", bound=TrajectoryIndex)


@dataclass(frozen=True)
class BatchOrder:
    """Decide which windows make up which batch, and which part of it is this worker's.

    The order depends on these values alone.
    """

    batch_size: int
    """Summed over all workers"""
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
        """Return the window numbers of each whole batch of the epoch."""
        return epoch_batches(num_windows, self.batch_size, self.samples_per_epoch, self.seed, epoch)

    def points(self, epoch: int, batch: int) -> torch.Generator:
        """Return the random generator for a batch's points."""
        return seeded(self.seed, "points", epoch, batch)


class Batches(Protocol):
    """A source of training batches."""

    @property
    def num_cases(self) -> int: ...

    @property
    def num_samples(self) -> int:
        """Number of distinct samples: windows, or steady cases."""

    @property
    def num_batches(self) -> int:
        """Batches, that is optimiser steps, in an epoch."""

    @property
    def num_bytes(self) -> int:
        """Bytes held in memory."""

    def epoch(self, epoch: int, begin: int = 0) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the batches of an epoch from batch `begin` on.

        Each comes with the samples of the whole batch, and this worker's part of it on its device.
        """

    def describe(self, samples: Tensor) -> Sequence[dict[str, object]]:
        """Describe a batch for a record: case, and start time of a window."""


class WindowBatches(Generic[Source]):
    """Common parts of window batches, wherever their snapshots are kept."""

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
        """Return case and start time of each window, for a record of a batch."""
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
                yield (
                    windows,
                    draw_batch(self.trajectories, windows, self.config, points, self.order.shard),
                )
