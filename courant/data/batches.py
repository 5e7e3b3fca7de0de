"""The order of training batches, and reading ahead; a source of batches as the training sees it.

The order depends on (seed, epoch) alone, random draws within a batch on (seed, epoch, step) alone.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from courant.data.batch import Batch

READERS = 4
"""Threads that read the store"""
AHEAD = 8
"""Batches read ahead of the one in use"""
T = TypeVar("T")


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


def epoch_batches(
    num_windows: int, batch_size: int, samples: int | None, seed: int, epoch: int
) -> Iterator[Tensor]:
    """Return the epoch's batches of window numbers.

    Permutations are concatenated and cut to `samples`; a short last batch is dropped.
    """
    wanted = samples or num_windows
    rounds = math.ceil(max(wanted, batch_size) / num_windows)
    generator = seeded(seed, "windows", epoch)
    order = torch.cat([torch.randperm(num_windows, generator=generator) for _ in range(rounds)])
    for batch in range(max(1, wanted // batch_size)):
        yield order[batch * batch_size : (batch + 1) * batch_size]


def spread(windows: Tensor, num: int) -> Tensor:
    """Choose at most `num` windows, spread evenly over cases and times."""
    num = min(num, len(windows))
    return windows[torch.linspace(0, len(windows) - 1, num).round().long()]


def seeded(*key: object) -> torch.Generator:
    """Return a CPU generator that depends on the key alone."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def read_ahead(jobs: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield the jobs' results in order, computed ahead in threads."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="stream") as threads:
        pending: deque[Future[T]] = deque()
        try:
            for job in jobs:
                pending.append(threads.submit(job))
                if len(pending) > AHEAD:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
