"""Make batches of stored steady cases; a sample is a whole case.

A batch pads and masks its clouds. The order of cases depends on (seed, epoch) alone, the points
drawn from each on (seed, epoch, batch) alone, as for windows (`courant.data.samples`). So a run
resumes exactly, and workers share a batch as one worker would see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from courant.data.anchor_choice import AnchorChoice
from courant.data.batch import Batch
from courant.data.batches import BatchOrder
from courant.data.geometry import read_edges
from courant.data.known import SteadyInputs, prepare_inputs, read_channels, read_known
from courant.data.normalisation import Normaliser
from courant.data.samples import spread
from courant.data.streaming import read_ahead
from courant.data.trajectories import READERS
from courant.data_config import SteadyData
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset
    from simgen.store.access.stored_case import StoredCase


@dataclass(frozen=True)
class SteadySample:
    """One case as a batch of one, unpadded, with every point of its clouds."""

    case: str
    batch: Batch

    def to(self, device: torch.device | str) -> SteadySample:
        return replace(self, batch=self.batch.map(lambda value: value.to(device)))


class SteadySource:
    """The cases of a split as samples; safe to share between threads."""

    def __init__(
        self,
        dataset: Dataset,
        ids: Sequence[str],
        normaliser: Normaliser,
        config: SteadyData,
        anchors: AnchorChoice,
        with_edges: bool = False,
    ) -> None:
        if not ids:
            raise InputError(f"dataset {dataset.url} {dataset.version}: no cases to read")
        self.ids = tuple(ids)
        self._dataset = dataset
        self._normaliser = normaliser
        self._config = config
        self._choice, self._with_edges = anchors, with_edges
        self._anchors: dict[int, Tensor] = {}

    def read(self, number: int) -> SteadySample:
        """Read case `number` of `ids`; its anchors are sampled once."""
        case = self._dataset[self.ids[number]]
        inputs = prepare_inputs(
            read_known(case, self._normaliser, self._config), self._normaliser, self._config
        )
        points = torch.from_numpy(inputs.points)[None]
        if number not in self._anchors:
            self._anchors[number] = self._choice.among(points)
        normaliser = self._normaliser.at(case.parameters)
        targets = normaliser.standardise(read_solution(case, normaliser))
        edges = read_edges(case) if self._with_edges else None
        return SteadySample(case.id, as_batch(inputs, self._anchors[number], targets, edges))

    def read_all(self, device: torch.device | str) -> list[SteadySample]:
        with ThreadPoolExecutor(READERS) as readers:
            return [sample.to(device) for sample in readers.map(self.read, range(len(self.ids)))]


def read_solution(case: StoredCase, normaliser: Normaliser) -> np.ndarray:
    """Read (N, C): the modelled channels of a solved case, in their units."""
    return read_channels(case, normaliser.channels)


def as_batch(
    inputs: SteadyInputs, anchors: Tensor, targets: np.ndarray, edges: np.ndarray | None = None
) -> Batch:
    """Build a batch of one; targets (M, C) standardised, edges (N, k) of `read_edges`."""
    tensor = {
        name: torch.from_numpy(value)[None]
        for name, value in vars(inputs).items()
        if value is not None
    }
    return Batch(
        **tensor,
        mask=None,
        anchors=anchors,
        query_mask=None,
        targets=torch.from_numpy(targets)[None, None],
        neighbours=None if edges is None else torch.from_numpy(edges)[None],
    )


class SteadyBatches:
    """Provide training batches of steady cases, resident on the device or read ahead by threads."""

    def __init__(
        self,
        source: SteadySource,
        config: SteadyData,
        order: BatchOrder,
        device: torch.device | str = "cpu",
        *,
        resident: bool = True,
    ) -> None:
        self.source = source
        self.config = config
        self.order = order
        self.device = torch.device(device)
        self._resident = source.read_all(device) if resident else None

    @property
    def num_cases(self) -> int:
        return len(self.source.ids)

    num_samples = num_cases

    @property
    def num_batches(self) -> int:
        return self.order.num_batches(self.num_cases)

    @property
    def num_bytes(self) -> int:
        return sum(sample.batch.num_bytes for sample in self._resident or ())

    def describe(self, samples: Tensor) -> list[dict[str, object]]:
        return [{"case": self.source.ids[number]} for number in samples.tolist()]

    def epoch(self, epoch: int, begin: int = 0) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the batches of an epoch from batch `begin` on.

        Each comes with the numbers (B,) of the whole batch's cases, and this worker's part of it.
        """
        jobs = (
            partial(self._make, epoch, index, chosen)
            for index, chosen in enumerate(self.order.epoch(self.num_cases, epoch))
            if index >= begin
        )
        batches = (job() for job in jobs) if self._resident else read_ahead(jobs)
        for samples, batch in batches:
            yield samples, batch.map(lambda value: value.to(self.device, non_blocking=True))

    def _make(self, epoch: int, index: int, chosen: Tensor) -> tuple[Tensor, Batch]:
        # A seed for every sample of the whole batch: its points are the same however many workers
        # share it.
        seeds = torch.randint(2**62, (len(chosen),), generator=self.order.points(epoch, index))
        shard = self.order.shard
        read = self._resident.__getitem__ if self._resident else self.source.read
        drawn = [
            draw(read(number).batch, self.config, torch.Generator().manual_seed(seed))
            for number, seed in zip(chosen[shard].tolist(), seeds[shard].tolist(), strict=True)
        ]
        batch = collate(drawn)
        on_gpu = self.device.type == "cuda" and not self._resident
        return chosen, batch.map(Tensor.pin_memory) if on_gpu else batch


def draw(sample: Batch, config: SteadyData, generator: torch.Generator) -> Batch:
    """Choose random points of a batch of one, without repeats; all where None.

    Encoder points and queries are drawn separately.
    """
    cloud = _choose(sample.points, config.points_per_sample, generator)
    queries = _choose(sample.query_points, config.queries_per_sample, generator)
    return replace(
        sample,
        points=cloud(sample.points),
        features=cloud(sample.features),
        query_points=queries(sample.query_points),
        query_features=queries(sample.query_features),
        targets=queries(sample.targets[:, 0])[:, None],
        neighbours=None if config.points_per_sample is not None else sample.neighbours,
    )


def _choose(
    points: Tensor, num: int | None, generator: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """Return a function that takes the same `num` rows of every (1, N, c)."""
    if num is None or num >= points.shape[1]:
        return lambda values: values
    chosen = torch.randperm(points.shape[1], generator=generator)[:num]
    on_device = chosen.to(points.device, non_blocking=True)
    return lambda values: values[:, on_device]


def collate(samples: Sequence[Batch]) -> Batch:
    """Join batches of one into one batch, padding clouds with zeros to the longest.

    Clouds are masked where they differ in length.
    """
    if len(samples) == 1:
        return samples[0]
    scales = [sample.scale for sample in samples if sample.scale is not None]
    edges = [sample.neighbours for sample in samples if sample.neighbours is not None]
    return Batch(
        points=_stack([sample.points for sample in samples]),
        features=_stack([sample.features for sample in samples]),
        mask=_mask([sample.points for sample in samples]),
        anchors=torch.cat([sample.anchors for sample in samples]),
        query_points=_stack([sample.query_points for sample in samples]),
        query_features=_stack([sample.query_features for sample in samples]),
        query_mask=_mask([sample.query_points for sample in samples]),
        targets=_stack([sample.targets for sample in samples]),
        parameters=torch.cat([sample.parameters for sample in samples]),
        scale=torch.cat(scales) if scales else None,
        neighbours=_stack_edges(edges) if edges else None,
    )


def _stack(values: Sequence[Tensor]) -> Tensor:
    """Stack (1, ..., n_i, c) arrays to (B, ..., max n, c)."""
    most = max(value.shape[-2] for value in values)
    return torch.cat([pad(value, (0, 0, 0, most - value.shape[-2])) for value in values])


def _stack_edges(lists: Sequence[Tensor]) -> Tensor:
    """Stack neighbour lists (1, n_i, k_i) to (B, max n, max k), with -1 where there is none."""
    most, width = (max(each.shape[axis] for each in lists) for axis in (1, 2))
    return torch.cat(
        [pad(each, (0, width - each.shape[2], 0, most - each.shape[1]), value=-1) for each in lists]
    )


def _mask(clouds: Sequence[Tensor]) -> Tensor | None:
    """Return (B, max n), True at real points; None where all have the same number."""
    lengths = torch.tensor([cloud.shape[1] for cloud in clouds])
    most, device = int(lengths.max()), clouds[0].device
    if bool((lengths == most).all()):
        return None
    return torch.arange(most, device=device) < lengths.to(device, non_blocking=True)[:, None]


def load_steady_batches(
    dataset: Dataset,
    normaliser: Normaliser,
    config: SteadyData,
    order: BatchOrder,
    anchors: AnchorChoice,
    device: torch.device | str = "cpu",
    with_edges: bool = False,
) -> SteadyBatches:
    """Return training batches on the device, resident or streamed.

    They are resident if the training split fits into `config.resident_gb`.
    """
    ids = dataset.cases("train")
    source = SteadySource(dataset, ids, normaliser, config, anchors, with_edges)
    num_points = dataset.design.loc[ids, "num_points"]
    # Clouds of all kinds grow with the mesh, so the first case's bytes per cell represent all
    # cases.
    size = source.read(0).batch.num_bytes / num_points.iloc[0] * num_points.sum()
    return SteadyBatches(
        source, config, order, device, resident=bool(size <= config.resident_gb * 1e9)
    )


def load_steady_samples(
    dataset: Dataset,
    split: str,
    normaliser: Normaliser,
    config: SteadyData,
    num: int,
    anchors: AnchorChoice,
    device: torch.device | str = "cpu",
    with_edges: bool = False,
) -> list[SteadySample]:
    """Load at most `num` cases of a split on the device, with every point.

    Spread over the order in which they were published: later ones count as well.
    """
    ids = dataset.cases(split)
    chosen = [ids[n] for n in spread(torch.arange(len(ids)), num).tolist()]
    source = SteadySource(dataset, chosen, normaliser, config, anchors, with_edges)
    return source.read_all(device)
