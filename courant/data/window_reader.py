"""Read a split's trajectories from the store window by window, through a local cache.

Notable properties:
- The result is a TrajectorySet of the requested windows, so that batches are drawn from it by the
  same code as from trajectories in memory, and come out the same to the bit.
- Cases that fit into the cache are decoded once; for the others each window reads its chunks. A
  cache too small for all cases would otherwise evict every case before its next use.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from courant.data.anchor_choice import AnchorChoice
from courant.data.normalisation import Normaliser
from courant.data.trajectories import (
    READERS,
    Cloud,
    Span,
    TrajectorySet,
    common_interval,
    prepare_geometry,
)
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.local_cache import LocalCache
    from simgen.store.access.reader import Dataset
    from simgen.store.access.stored_case import StoredCase

GEOMETRY_BYTES = 1 << 30
"""Prepared geometries (points, distance field, anchors) kept in memory"""

Geometry = dict[str, Any]


class WindowReader:
    """Read windows of the trajectories of K cases.

    `ids`, `start_s` and `num_frames` are as in a TrajectorySet of these cases. Picklable; safe to
    share between threads. Raises InputError like `load_trajectories`.
    """

    def __init__(
        self,
        dataset: Dataset,
        ids: Sequence[str],
        normaliser: Normaliser,
        cache: LocalCache,
        *,
        anchors: AnchorChoice,
        start_s: float = 0.0,
        mirror_y: bool = False,
        with_edges: bool = False,
    ) -> None:
        if not ids:
            raise InputError(f"dataset {dataset.url} {dataset.version}: no cases to read")
        self.dataset, self.normaliser, self.cache = dataset, normaliser, cache
        self._choice, self._with_edges = anchors, with_edges
        with ThreadPoolExecutor(READERS) as readers:
            spans = list(readers.map(lambda case: Span.of(dataset[case], start_s), ids))
        self.snapshot_interval_s = common_interval(dataset, spans)
        self._most = max(span.num_points for span in spans)
        images = (False, True) if mirror_y else (False,)
        self._shown = [
            (case, span, image) for case, span in zip(ids, spans, strict=True) for image in images
        ]
        self.ids = tuple(f"{case} mirrored" if image else case for case, _, image in self._shown)
        self.start_s = torch.tensor(
            [span.start_s for _, span, _ in self._shown], dtype=torch.float64
        )
        self.num_frames = torch.tensor([span.num_frames for _, span, _ in self._shown])
        self._cached = _that_fit(dataset, ids, normaliser, cache.max_bytes)
        self._geometries = _Recent(GEOMETRY_BYTES)

    @property
    def num_bytes(self) -> int:
        """Bytes held in memory."""
        return self._geometries.num_bytes

    def read(self, windows: Tensor, num: int, stride: int) -> TrajectorySet:
        """Read (B, 2) windows as B trajectories of `num` snapshots.

        From one to the next there are `stride` stored ones.
        """
        rows = [(number, first, *self._shown[number]) for number, first in windows.tolist()]
        shape = (len(rows), num, self._most, len(self.normaliser.read_channels))
        frames = torch.zeros(shape)
        for states, (_, first, case, span, _) in zip(frames, rows, strict=True):
            begin = span.first + first
            values = self._states(
                self.dataset[case], slice(begin, begin + (num - 1) * stride + 1, stride)
            )
            states[:, : span.num_points] = torch.from_numpy(
                self.normaliser.standardise_read(values)
            )
        geometries = [self._geometry(number) for number, *_ in rows]
        return TrajectorySet(
            ids=tuple(self.ids[number] for number, *_ in rows),
            snapshot_interval_s=self.snapshot_interval_s * stride,
            frames=frames.flatten(0, 1),
            first_frame=num * torch.arange(len(rows)),
            num_frames=torch.full((len(rows),), num),
            num_given=len(self.normaliser.given),
            start_s=self.start_s[windows[:, 0]] + windows[:, 1] * self.snapshot_interval_s,
            **{name: _joined(name, geometries) for name in geometries[0]},
        )

    def _states(self, case: StoredCase, frames: slice) -> np.ndarray:
        """Read the modelled channels of some snapshots, in their units: (T, N, C)."""
        channels = self.normaliser.read_channels
        names = sorted({channel.field for channel in channels})
        if case.id in self._cached:
            stored = {
                name: values[frames] for name, values in self.cache.arrays(case, *names).items()
            }
        else:
            stored = {
                name: np.asarray(case[name][frames.start : frames.stop])[:: frames.step]
                for name in names
            }
        return np.stack(
            [stored[channel.field][..., channel.column] for channel in channels], axis=-1
        )

    def _geometry(self, number: int) -> Geometry:
        geometry = self._geometries.get(number)
        if geometry is None:
            case, _, image = self._shown[number]
            cloud = Cloud.read(self.dataset[case], self._with_edges)
            geometry = prepare_geometry(
                [cloud.mirrored() if image else cloud], self.normaliser, self._most, self._choice
            )
            self._geometries.put(number, geometry)
        return geometry


def _joined(name: str, geometries: Sequence[Geometry]) -> Tensor:
    """Join what the geometries have under a name; lists of neighbours differ in their width."""
    parts = [geometry[name] for geometry in geometries]
    if name == "neighbours":
        width = max(part.shape[-1] for part in parts)
        parts = [pad(part, (0, width - part.shape[-1]), value=-1) for part in parts]
    return torch.cat(parts)


def _that_fit(
    dataset: Dataset, ids: Sequence[str], normaliser: Normaliser, max_bytes: int
) -> frozenset[str]:
    """Return the first cases whose modelled fields fit into the cache together."""
    components = {field.name: len(field.components) for field in dataset.schema.fields}
    width = 4 * sum(components[name] for name in {each.field for each in normaliser.read_channels})
    design = dataset.design.loc[list(ids)]
    total = (design["num_points"] * design["num_snapshots"] * width).cumsum()
    return frozenset(design.index[(total <= max_bytes).to_numpy()])


class _Recent:
    """The most recently used geometries, up to a number of bytes; pickles empty."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self.num_bytes = max_bytes, 0
        self._held: OrderedDict[int, Geometry] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._max_bytes,)

    def get(self, number: int) -> Geometry | None:
        with self._lock:
            if number in self._held:
                self._held.move_to_end(number)
            return self._held.get(number)

    def put(self, number: int, geometry: Geometry) -> None:
        with self._lock:
            if number in self._held:
                return
            self._held[number] = geometry
            self.num_bytes += _bytes(geometry)
            while self.num_bytes > self._max_bytes:
                self.num_bytes -= _bytes(self._held.popitem(last=False)[1])


def _bytes(geometry: Geometry) -> int:
    return sum(value.numel() * value.element_size() for value in geometry.values())
