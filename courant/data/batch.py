"""Define a batch of training samples, and the order in which an epoch draws them.

The order depends on (seed, epoch) alone, random draws within a batch on (seed, epoch, step) alone:
a run that resumes in any epoch draws the samples that it would have drawn.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from courant.field_model import Inputs, ModelConfig, Queries

READERS = 4  # Threads that read the store
AHEAD = 8  # Batches read ahead of the one in use
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """B samples, normalised: the model's inputs and targets.

    Features are those of transient windows; `courant.problems.steady` documents the steady ones. N
    encoder points, M queries, T window steps, I input steps; C channels, G given ones, D distance
    channels, L anchors.
    """

    points: Tensor  # (B, N, 3)
    features: Tensor
    """(B, N, I C + G + D): snapshots up to the start, oldest first, given fields, distance field"""
    mask: Tensor | None = None  # (B, N): True at real points; None where nothing is padded
    anchors: Tensor  # (B, L, 3) sampled from the cloud; L = 0 for a model that needs none
    query_points: Tensor  # (B, M, 3)
    query_features: Tensor  # (B, M, G + D)
    query_mask: Tensor | None = None  # (B, M)
    targets: Tensor  # (B, T, M, C); T = 1 in steady problems, M = 0 where a prediction is asked for
    parameters: Tensor  # (B, P) design parameters
    scale: Tensor | None = None
    """(B, C), by how much each sample's units are those of the split; None where they are them"""
    neighbours: Tensor | None = None
    """(B, N, k) int32, the points that share a face with each, -1 beyond them; None if unread"""

    def for_model(self, config: ModelConfig) -> tuple[Inputs, Queries]:
        """Return what a model of these sizes reads; a size that leaves out a part drops it."""
        d, width = config.dimension, config.num_query_features
        inputs = Inputs(
            points=self.points[..., :d],
            # The distance field is last: a model without it reads the channels before.
            features=self.features[..., : config.num_features],
            mask=self.mask,
            parameters=self.parameters if config.num_parameters else None,
            anchors=self.anchors[..., :d] if config.num_sampled_anchors else None,
            neighbours=self.neighbours if config.reads_edges else None,
        )
        features = self.query_features[..., :width] if width else None
        return inputs, Queries(self.query_points[..., :d], features)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors that are not None, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    @property
    def num_steps(self) -> int:
        """T, the states that are predicted."""
        return self.targets.shape[1]

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        return replace(self, **{name: function(value) for name, value in self.tensors.items()})


@dataclass(frozen=True)
class BatchOrder:
    """Decide which samples make up which batch, and which part of it is this worker's."""

    batch_size: int  # Summed over all workers
    samples_per_epoch: int | None
    seed: int
    rank: int = 0
    world: int = 1

    @property
    def shard(self) -> slice:
        return slice(self.rank, None, self.world)

    def num_batches(self, num_samples: int) -> int:
        return max(1, (self.samples_per_epoch or num_samples) // self.batch_size)

    def epoch(self, num_samples: int, epoch: int) -> Iterator[Tensor]:
        """Yield the sample numbers of each batch: permutations cut to `samples_per_epoch`."""
        wanted = self.samples_per_epoch or num_samples
        rounds = math.ceil(max(wanted, self.batch_size) / num_samples)
        generator = seeded(self.seed, "windows", epoch)
        order = torch.cat([torch.randperm(num_samples, generator=generator) for _ in range(rounds)])
        for batch in range(self.num_batches(num_samples)):
            yield order[batch * self.batch_size : (batch + 1) * self.batch_size]

    def points(self, epoch: int, batch: int) -> torch.Generator:
        """Return the random generator for a batch's points."""
        return seeded(self.seed, "points", epoch, batch)


class Batches(ABC):
    """Training batches of numbered samples, from memory or, if `streamed`, read ahead by threads.

    On a GPU threads return pinned memory, which is copied while the device computes.
    """

    num_cases: int
    samples: Tensor  # (S, ...): a row for each distinct sample

    def __init__(self, order: BatchOrder, device: torch.device, streamed: bool) -> None:
        self.order, self.device, self.streamed = order, device, streamed

    @abstractmethod
    def describe(self, samples: Tensor) -> list[dict[str, object]]:
        """Describe samples for a record: case, and start time of a window."""

    @abstractmethod
    def make(self, samples: Tensor, generator: torch.Generator) -> Batch:
        """Return this worker's part of the batch of `samples`; points are drawn for the whole."""

    @property
    def num_batches(self) -> int:
        """Batches, that is optimiser steps, in an epoch."""
        return self.order.num_batches(len(self.samples))

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the samples of each batch, and this worker's part of it on its device."""
        is_pinned = self.streamed and self.device.type == "cuda"

        def make(index: int, samples: Tensor) -> tuple[Tensor, Batch]:
            batch = self.make(samples, self.order.points(epoch, index))
            return samples, batch.map(Tensor.pin_memory) if is_pinned else batch

        chosen = self.order.epoch(len(self.samples), epoch)
        jobs = (partial(make, index, self.samples[each]) for index, each in enumerate(chosen))
        for samples, batch in read_ahead(jobs) if self.streamed else (job() for job in jobs):
            yield samples, batch.map(lambda value: value.to(self.device, non_blocking=True))


def spread(samples: Tensor, num: int) -> Tensor:
    """Choose at most `num` samples, spread evenly over cases and times."""
    num = min(num, len(samples))
    return samples[torch.linspace(0, len(samples) - 1, num).round().long()]


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


def join_padded(parts: Sequence[Tensor], fill: float = 0, length: int = 0) -> Tensor:
    """Join (b_i, ..., n_i, c_i) along the first axis, filled up to the longest n and c."""
    most = max(length, *(part.shape[-2] for part in parts))
    width = max(part.shape[-1] for part in parts)
    sides = [(0, width - part.shape[-1], 0, most - part.shape[-2]) for part in parts]
    return torch.cat([pad(part, side, value=fill) for part, side in zip(parts, sides, strict=True)])


def num_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(value.numel() * value.element_size() for value in tensors)
