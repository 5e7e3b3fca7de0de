"""Transient problems: predict later states from snapshots of the flow and its geometry.

A sample is a window (case, first frame): the I states up to t0, and the states after 1..T steps.

Notable properties:
- Cases differ in their number of points: points are padded to the longest case and `num_points`
  says where the padding starts. Snapshots of all cases are concatenated in `frames`, so a batch is
  one gather on whatever device holds them.
- Windows of all cases are numbered, a seeded permutation orders them anew each epoch, and each
  batch draws its encoder and query points with a generator made from (seed, epoch, step). Nothing
  passes from batch to batch: a run that resumes in any epoch sees the samples that it would have
  seen.
- A split that is too large for the device is streamed from the store: threads read windows ahead,
  as a TrajectorySet of these windows alone, from which the same code draws the same batches to the
  bit. On a GPU they return pinned memory, which is copied while the device computes.
- Cases that fit into the local cache are decoded once; of the others each window reads its chunks.
  A cache too small for all cases would otherwise evict every case before its next use.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from courant.data.batch import Batch
from courant.data.batches import READERS, Batches, BatchOrder, read_ahead, spread
from courant.data.geometry import (
    AnchorChoice,
    DistanceField,
    distance_field,
    read_edges,
    stack_edges,
)
from courant.data.normalisation import Channel, Normaliser
from courant.data_config import TransientData
from courant.experiment import Experiment, Kind
from courant.problems.problem import (
    Problem,
    Samples,
    Space,
    Window,
    check_array,
    check_distance,
    check_given,
    check_parameters,
    check_points,
    check_steps,
)
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset, LocalCache, StoredCase


TIME_TOLERANCE = 1e-3
"""Of the interval between two snapshots, by which times may differ and still be the same"""
_ON_CPU = ("num_points", "first_frame", "start_s", "num_frames")


def is_spatial(component: str) -> bool:
    """Tell whether a component is one of a vector or tensor along the axes, such as y or xy."""
    return bool(component) and set(component) <= set("xyz")


def time_tolerance(time: np.ndarray) -> float:
    """Return the seconds by which a time may miss one of the increasing times (T,)."""
    apart = float(np.diff(time).min()) if len(time) > 1 else max(1.0, abs(float(time[0])))
    return TIME_TOLERANCE * apart


def times_between(time: np.ndarray, first: float, last: float) -> np.ndarray:
    """Return those of the times (T,) that lie between two, both included."""
    slack = time_tolerance(time)
    return time[(time >= first - slack) & (time <= last + slack)]


@dataclass(frozen=True)
class TrajectorySet:
    """Trajectories of K cases; N = the most points of any case.

    D distance channels, C modelled channels, L anchors.
    """

    ids: tuple[str, ...]
    snapshot_interval_s: float
    points: Tensor
    """(K, N, 3)"""
    distance: Tensor
    """(K, N, D)"""
    anchors: Tensor
    """(K, L, 3), farthest point sampling of each case's points"""
    parameters: Tensor
    """(K, P), the design parameters"""
    num_points: Tensor
    """(K,)"""
    frames: Tensor
    """(F, N, C + G): the snapshots of all cases, one case after another; given channels last"""
    first_frame: Tensor
    """(K,): the first frame of each case in `frames`"""
    start_s: Tensor
    """(K,) float64: the time of its first frame"""
    num_frames: Tensor
    """(K,)"""
    sign: Tensor
    """(K, C + G): a case's state is sign * frame + offset; 1 and 0 except in mirror images, which
    share their case's frames
    """
    offset: Tensor
    """(K, C + G)"""
    num_given: int = 0
    """G: channels that are only inputs"""
    neighbours: Tensor | None = None
    """(K, N, k) int32 of `Batch.neighbours`; None where the model reads no edges"""

    def to(self, device: torch.device | str) -> TrajectorySet:
        """Move what batches are made of to the device; windows are chosen on the CPU."""
        there = {n: t for n, t in vars(self).items() if isinstance(t, Tensor) and n not in _ON_CPU}
        moved: dict[str, Any] = {name: each.to(device) for name, each in there.items()}
        return replace(self, **moved)

    @property
    def num_bytes(self) -> int:
        return sum(
            value.numel() * value.element_size()
            for value in vars(self).values()
            if isinstance(value, Tensor)
        )


def load_trajectories(
    dataset: Dataset,
    ids: Sequence[str],
    normaliser: Normaliser,
    *,
    anchors: AnchorChoice,
    start_s: float = 0.0,
    mirror_y: bool = False,
    with_edges: bool = False,
) -> TrajectorySet:
    """Read the cases' snapshots from `start_s` on; with `mirror_y` images in y = 0 follow them.

    InputError for snapshots that are not evenly spaced, or not alike, and for lacking edges.
    """
    if not ids:
        raise InputError(f"dataset {dataset.url} {dataset.version}: no cases to read")
    cases = [dataset[case_id] for case_id in ids]
    with ThreadPoolExecutor(READERS) as readers:
        spans = list(readers.map(lambda case: Span.of(case, start_s), cases))
        interval_s = common_interval(dataset, spans)
        clouds = list(readers.map(lambda case: CaseGeometry.read(case, with_edges), cases))
        frames, first_frame = _read_frames(readers, cases, spans, normaliser)
    shown = [(number, cloud) for number, cloud in enumerate(clouds)]
    if mirror_y:
        shown = [(number, image) for number, cloud in shown for image in (cloud, cloud.mirrored())]
    of_case = torch.tensor([number for number, _ in shown])
    return TrajectorySet(
        ids=tuple(cloud.id for _, cloud in shown),
        snapshot_interval_s=interval_s,
        frames=frames,
        first_frame=first_frame[of_case],
        num_frames=torch.tensor([span.num_frames for span in spans])[of_case],
        num_given=len(normaliser.given),
        start_s=torch.tensor([span.start_s for span in spans], dtype=torch.float64)[of_case],
        **prepare_geometry([cloud for _, cloud in shown], normaliser, frames.shape[1], anchors),
    )


def common_interval(dataset: Dataset, spans: Sequence[Span]) -> float:
    """Return the seconds between snapshots; InputError where cases differ in it."""
    # Nine digits: the difference of two times has no more that mean anything.
    intervals = sorted({float(f"{span.interval_s:.9g}") for span in spans})
    if intervals[-1] - intervals[0] > TIME_TOLERANCE * intervals[0]:
        apart = dict.fromkeys(f"{value:g} s" for value in intervals)
        raise InputError(
            f"dataset {dataset.url} {dataset.version}: snapshots lie {', '.join(apart)} apart;"
            " train on cases with one snapshot interval"
        )
    return intervals[0]


def prepare_geometry(
    clouds: Sequence[CaseGeometry], normaliser: Normaliser, most: int, anchors: AnchorChoice
) -> dict[str, Tensor]:
    """Prepare everything that a TrajectorySet holds of its cases besides their snapshots."""
    points = torch.stack([_pad(normaliser.points(cloud.points), most) for cloud in clouds])
    num_points = torch.tensor([len(cloud.points) for cloud in clouds])
    sign = torch.tensor(
        [[cloud.sign(channel) for channel in normaliser.read_channels] for cloud in clouds]
    )
    mean = torch.tensor(normaliser.mean + normaliser.given_mean)
    std = torch.tensor(normaliser.std + normaliser.given_std)
    edges = [cloud.neighbours for cloud in clouds if cloud.neighbours is not None]
    return {
        "points": points,
        "distance": torch.stack(
            [
                _pad(normaliser.distance_channels(cloud.field, len(cloud.points)), most)
                for cloud in clouds
            ]
        ),
        "anchors": anchors.among(points, torch.arange(most) < num_points[:, None]),
        "parameters": torch.stack(
            [torch.from_numpy(normaliser.design(cloud.parameters)) for cloud in clouds]
        ),
        "num_points": num_points,
        **({"neighbours": stack_edges(edges, most)} if edges else {}),
        "sign": sign,
        # The mirrored value -v, standardised: (-v - mean) / std = -(v - mean) / std - 2 mean / std.
        "offset": (sign - 1) * mean / std,
    }


def read_states(case: StoredCase, channels: Sequence[Channel], frames: slice) -> np.ndarray:
    """Read the modelled channels of the case's snapshots, in their units: (T, N, C)."""
    stored = {
        name: np.asarray(case[name][frames]) for name in {channel.field for channel in channels}
    }
    return np.stack([stored[channel.field][..., channel.column] for channel in channels], axis=-1)


@dataclass(frozen=True)
class Span:
    """The snapshots of a case that are read."""

    num_points: int
    first: int
    num_frames: int
    start_s: float
    interval_s: float

    @classmethod
    def of(cls, case: StoredCase, start_s: float) -> Span:
        if case.time is None:
            raise InputError(
                f"case {case.id} is steady and has no trajectory; a transient experiment needs"
                " snapshots in time"
            )
        time = np.asarray(case.time, dtype=np.float64)
        first = int(np.searchsorted(time, start_s - time_tolerance(time)))
        if len(time) - first < 2:
            raise InputError(
                f"case {case.id} has {len(time) - first} snapshots from {start_s:g} s on; lower"
                " data.start_s or solve longer"
            )
        steps = np.diff(time[first:])
        if np.ptp(steps) > TIME_TOLERANCE * steps.mean():
            raise InputError(
                f"case {case.id}: snapshots lie {steps.min():g} to {steps.max():g} s apart;"
                " expected one interval"
            )
        return cls(
            case.num_points, first, len(time) - first, float(time[first]), float(steps.mean())
        )


def _read_frames(
    readers: ThreadPoolExecutor,
    cases: Sequence[StoredCase],
    spans: Sequence[Span],
    normaliser: Normaliser,
) -> tuple[Tensor, Tensor]:
    """Read all cases' snapshots (F, N, C), standardised, and the first frame of each case.

    Written in place: only one copy is in memory.
    """
    num_frames = torch.tensor([span.num_frames for span in spans])
    first_frame = torch.cumsum(num_frames, 0) - num_frames
    most = max(span.num_points for span in spans)
    frames = torch.zeros(int(num_frames.sum()), most, len(normaliser.read_channels))

    def read(case: StoredCase, span: Span, begin: int) -> None:
        states = read_states(case, normaliser.read_channels, slice(span.first, None))
        frames[begin : begin + span.num_frames, : span.num_points] = torch.from_numpy(
            normaliser.standardise_read(states)
        )

    list(readers.map(read, cases, spans, first_frame.tolist()))
    return frames, first_frame


@dataclass(frozen=True)
class CaseGeometry:
    """A case's geometry in physical units, before padding."""

    id: str
    points: np.ndarray
    field: DistanceField | None
    """None in data without one"""
    parameters: Mapping[str, float]
    neighbours: np.ndarray | None = None
    """(N, k) of `read_edges`, which a mirror image shares; None where they are not asked for"""
    is_mirrored: bool = False

    @classmethod
    def read(cls, case: StoredCase, with_edges: bool = False) -> CaseGeometry:
        has_distance = bool(case.dataset.schema.measured_kinds)
        field = (case.distance, case.direction) if has_distance else None
        edges = read_edges(case) if with_edges else None
        return cls(case.id, case.points, field, case.parameters, edges)

    def mirrored(self) -> CaseGeometry:
        """Return the image in the plane y = 0."""
        flip = np.array([1, -1, 1], self.points.dtype)
        return replace(
            self,
            id=f"{self.id} mirrored",
            points=self.points * flip,
            field=None if self.field is None else (self.field[0], self.field[1] * flip),
            is_mirrored=True,
        )

    def sign(self, channel: Channel) -> float:
        """Return -1 for components that change their sign in a mirror image, else 1.

        Those with an odd number of y: of vectors y, of tensors xy and yz.
        """
        odd = is_spatial(channel.component) and channel.component.count("y") % 2
        return -1.0 if self.is_mirrored and odd else 1.0


def _pad(values: np.ndarray, length: int) -> Tensor:
    """Pad (N, c) to (length, c) with zeros."""
    return torch.from_numpy(np.pad(values, ((0, length - len(values)), (0, 0))))


logger = logging.getLogger("courant.training")


def list_windows(trajectories: TrajectorySet | WindowReader, config: TransientData) -> Tensor:
    """(W, 2) int64 rows (case, first frame within the case), all cases' windows in order."""
    step = snapshots_per_step(trajectories, config)
    stride = _multiple(config.stride_s, trajectories.snapshot_interval_s, "stride_s")
    reach = (config.num_states - 1) * step
    rows = []
    for case in range(len(trajectories.ids)):
        late = (
            config.start_s - float(trajectories.start_s[case])
        ) / trajectories.snapshot_interval_s
        first = max(0, math.ceil(late - TIME_TOLERANCE))
        starts = torch.arange(first, max(first, int(trajectories.num_frames[case]) - reach), stride)
        rows.append(torch.stack([torch.full_like(starts, case), starts], dim=1))
    windows = torch.cat(rows)
    if lacking := [trajectories.ids[n] for n, row in enumerate(rows) if not len(row)]:
        logger.warning(
            "%d of %d cases are too short for a window of %d x %g s, such as %s: nothing is"
            " learned from them",
            len(lacking),
            len(rows),
            config.num_states - 1,
            config.step_s,
            lacking[0],
        )
    if len(windows) == 0:
        longest = float(
            (
                trajectories.start_s
                + (trajectories.num_frames - 1) * trajectories.snapshot_interval_s
            ).max()
        )
        raise InputError(
            f"no window of {config.num_states - 1} x {config.step_s:g} s fits from"
            f" {config.start_s:g} s to the last snapshot at {longest:g} s; lower data.start_s or"
            " data.window_steps, or solve longer"
        )
    return windows


def snapshots_per_step(trajectories: TrajectorySet | WindowReader, config: TransientData) -> int:
    """Return the snapshots from one step of a window to the next."""
    return _multiple(config.step_s, trajectories.snapshot_interval_s, "step_s")


def draw_batch(
    trajectories: TrajectorySet,
    windows: Tensor,
    config: TransientData,
    generator: torch.Generator,
    shard: slice = slice(None),
) -> Batch:
    """Draw the batch of `windows` (B, 2); encoder and query points are drawn separately.

    `shard` is a worker's part of the batch: points are drawn for the whole batch first, so that a
    window gets the same points however many workers share it.
    """
    points = _draw(trajectories, windows, config.points_per_sample, generator, shard)
    queries = _draw(trajectories, windows, config.queries_per_sample, generator, shard)
    batch = _gather(trajectories, windows[shard], config, points, queries)
    if not config.shift:
        return batch
    drawn = torch.rand(len(windows), 1, 3, generator=generator)[shard]
    shift = config.shift * (2 * drawn.to(batch.points.device, non_blocking=True) - 1)
    shift = shift * (batch.points != 0).any(dim=1, keepdim=True)  # a 2D case stays at z = 0
    return replace(
        batch,
        points=batch.points + shift,
        anchors=batch.anchors + shift,
        query_points=batch.query_points + shift,
    )


def full_batch(trajectories: TrajectorySet, windows: Tensor, config: TransientData) -> Batch:
    """Return the batch of `windows` with every mesh point, in the encoder and as a query.

    This is what the predictor sees.
    """
    return _gather(trajectories, windows, config, None, None)


def _draw(
    trajectories: TrajectorySet,
    windows: Tensor,
    num: int | None,
    generator: torch.Generator,
    shard: slice,
) -> Tensor | None:
    """Draw (B, num) distinct random point numbers of each window's case; None = all.

    Where a case has fewer points, padding comes last.
    """
    most = trajectories.points.shape[1]
    if num is None or num >= most:
        return None
    keys = torch.rand(len(windows), most, generator=generator)[shard]
    num_points = trajectories.num_points[windows[shard, 0]]
    keys.masked_fill_(torch.arange(most) >= num_points[:, None], 2.0)
    return _to(trajectories, keys).topk(num, dim=1, largest=False, sorted=False).indices


def _gather(
    trajectories: TrajectorySet,
    windows: Tensor,
    config: TransientData,
    points: Tensor | None,
    queries: Tensor | None,
) -> Batch:
    case, start = windows.unbind(1)
    step = snapshots_per_step(trajectories, config)
    begin = trajectories.first_frame[case] + start
    times = begin[:, None] + step * torch.arange(config.num_states)
    num_points = trajectories.num_points[case]
    case, times = (_to(trajectories, index) for index in (case, times))
    positions, distance, mask = _geometry(trajectories, case, points, num_points)
    query_positions, query_distance, query_mask = _geometry(trajectories, case, queries, num_points)
    past, future = times.split([config.input_steps, config.window_steps], dim=1)
    states = _states(trajectories, case, past, points)
    targets = _states(trajectories, case, future, queries)
    modelled = targets.shape[-1] - trajectories.num_given
    # (B, I, N, C) becomes (B, N, I C).
    known = states[..., :modelled].transpose(1, 2).flatten(2)
    if trajectories.num_given:
        # Given fields are known only at the start, whatever the time of the prediction.
        known = torch.cat([known, states[:, -1, :, modelled:]], dim=-1)
        targets = targets[..., :modelled]
        given = _states(trajectories, case, past[:, -1:], queries)[:, 0, :, modelled:]
        query_distance = torch.cat([given, query_distance], dim=-1)
    return Batch(
        points=positions,
        features=torch.cat([known, distance], dim=-1),
        mask=mask,
        anchors=trajectories.anchors[case],
        query_points=query_positions,
        query_features=query_distance,
        query_mask=query_mask,
        targets=targets,
        parameters=trajectories.parameters[case],
        # A part of the points has no edges of the whole.
        neighbours=(
            None
            if points is not None or trajectories.neighbours is None
            else trajectories.neighbours[case]
        ),
    )


def _geometry(
    trajectories: TrajectorySet, case: Tensor, chosen: Tensor | None, num_points: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gather positions, distance field and mask of the chosen points of each window's case.

    num_points (B,) are the cases', on the CPU.
    """
    if chosen is None:
        numbers = torch.arange(trajectories.points.shape[1], device=case.device)
        positions, distance = trajectories.points[case], trajectories.distance[case]
    else:
        numbers = chosen
        positions = trajectories.points[case[:, None], chosen]
        distance = trajectories.distance[case[:, None], chosen]
    # Padding is chosen last, so the number chosen tells whether it is included; looking at the mask
    # itself would wait for the device.
    if numbers.shape[-1] <= int(num_points.min()):
        return positions, distance, None
    return positions, distance, numbers < _to(trajectories, num_points)[:, None]


def _to(trajectories: TrajectorySet, index: Tensor) -> Tensor:
    """Copy the index to the snapshots' device without waiting for the copy."""
    return index.to(trajectories.points.device, non_blocking=True)


def _states(
    trajectories: TrajectorySet, case: Tensor, times: Tensor, chosen: Tensor | None
) -> Tensor:
    """Gather (B, T) frames of (B,) cases at the chosen points as (B, T, M, C)."""
    if chosen is None:
        frames = trajectories.frames[times]
    else:
        frames = trajectories.frames[times[:, :, None], chosen[:, None, :]]
    return (
        frames * trajectories.sign[case][:, None, None] + trajectories.offset[case][:, None, None]
    )


def _multiple(duration: float, interval: float, name: str) -> int:
    """Return how many snapshot intervals a duration spans; InputError unless a whole number."""
    count = round(duration / interval)
    if count < 1 or abs(duration / interval - count) > TIME_TOLERANCE:
        raise InputError(
            f"data.{name} = {duration:g} s is no multiple of the snapshot interval, {interval:g} s"
        )
    return count


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
            cloud = CaseGeometry.read(self.dataset[case], self._with_edges)
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


class WindowBatches:
    """Common parts of window batches, wherever their snapshots are kept."""

    def __init__(
        self, trajectories: TrajectorySet | WindowReader, config: TransientData, order: BatchOrder
    ) -> None:
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


class ResidentBatches(WindowBatches):
    """Batches gathered from trajectories on the training device."""

    trajectories: TrajectorySet

    def epoch(self, epoch: int, begin: int = 0) -> Iterator[tuple[Tensor, Batch]]:
        for index, chosen in enumerate(self.order.epoch(len(self.windows), epoch)):
            if index >= begin:
                windows = self.windows[chosen]
                points = self.order.points(epoch, index)
                yield (
                    windows,
                    draw_batch(self.trajectories, windows, self.config, points, self.order.shard),
                )


class StreamingBatches(WindowBatches):
    """Iterate over the batches of an epoch, and of the next one when iterated again.

    Picklable with its state.
    """

    trajectories: WindowReader

    def __init__(
        self,
        reader: WindowReader,
        config: TransientData,
        order: BatchOrder,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(reader, config, order)
        self.device = torch.device(device)

    def epoch(self, epoch: int, begin: int = 0) -> Iterator[tuple[Tensor, Batch]]:
        """Yield the batches of an epoch from batch `begin` on.

        Each comes with the windows (B, 2) of the whole batch, and this worker's part on its device.
        """
        chosen = enumerate(self.order.epoch(len(self.windows), epoch))
        jobs = (
            partial(self._read, epoch, index, self.windows[of])
            for index, of in chosen
            if index >= begin
        )
        for windows, batch in read_ahead(jobs):
            yield windows, batch.map(lambda value: value.to(self.device, non_blocking=True))

    def _read(self, epoch: int, index: int, windows: Tensor) -> tuple[Tensor, Batch]:
        """Read this worker's windows and draw the batch from them; runs in a thread."""
        shard = self.order.shard
        stride = snapshots_per_step(self.trajectories, self.config)
        read = self.trajectories.read(windows[shard], self.config.num_states, stride)
        # Points are drawn for the whole batch; the windows of other workers are never read.
        numbered = torch.zeros_like(windows)
        numbered[shard, 0] = torch.arange(len(read.ids))
        batch = draw_batch(read, numbered, self.config, self.order.points(epoch, index), shard)
        return windows, batch.map(Tensor.pin_memory) if self.device.type == "cuda" else batch


def load_batches(
    dataset: Dataset,
    normaliser: Normaliser,
    config: TransientData,
    order: BatchOrder,
    anchors: AnchorChoice,
    device: torch.device | str = "cpu",
    with_edges: bool = False,
) -> Batches:
    """Return training batches on the device, resident or streamed."""
    split = _open_split(dataset, "train", normaliser, config, anchors, with_edges, config.mirror_y)
    if isinstance(split, WindowReader):
        return StreamingBatches(split, config, order, device)
    return ResidentBatches(split.to(device), config, order)


def load_windows(
    dataset: Dataset,
    split: str,
    normaliser: Normaliser,
    config: TransientData,
    num: int,
    anchors: AnchorChoice,
    device: torch.device | str = "cpu",
    with_edges: bool = False,
) -> tuple[TrajectorySet, Tensor]:
    """Load at most `num` windows, spread evenly over a split.

    Returns trajectories on the device that hold the windows, and the windows' places in them.
    If the split is larger than `config.resident_gb`, only these windows are read.
    """
    source = _open_split(dataset, split, normaliser, config, anchors, with_edges)
    windows = spread(list_windows(source, config), num)
    if isinstance(source, TrajectorySet):
        return source.to(device), windows
    read = source.read(windows, config.num_states, snapshots_per_step(source, config))
    num_read = len(windows)
    return read.to(device), torch.stack(
        [torch.arange(num_read), torch.zeros(num_read, dtype=torch.long)], dim=1
    )


def resident_bytes(dataset: Dataset, split: str, normaliser: Normaliser) -> float:
    """Return the memory that a split's snapshots take, with every case padded to the largest."""
    design = dataset.design.loc[dataset.cases(split)]
    values = (
        design["num_snapshots"].sum() * design["num_points"].max() * len(normaliser.read_channels)
    )
    return 4.0 * float(values)


def _open_split(
    dataset: Dataset,
    split: str,
    normaliser: Normaliser,
    config: TransientData,
    anchors: AnchorChoice,
    with_edges: bool,
    mirror_y: bool = False,
) -> TrajectorySet | WindowReader:
    """Load the trajectories of a split that fits into memory; else a reader of its windows."""
    ids = dataset.cases(split)
    if resident_bytes(dataset, split, normaliser) > config.resident_gb * 1e9:
        return WindowReader(
            dataset,
            ids,
            normaliser,
            _cache(config),
            anchors=anchors,
            start_s=config.start_s,
            mirror_y=mirror_y,
            with_edges=with_edges,
        )
    return load_trajectories(
        dataset,
        ids,
        normaliser,
        anchors=anchors,
        start_s=config.start_s,
        mirror_y=mirror_y,
        with_edges=with_edges,
    )


def _cache(config: TransientData) -> LocalCache:
    # Training from memory does without the store's libraries, so they are imported only here.
    from simgen.store.read import LocalCache

    # The cache removes files, and an experiment may name any folder: it gets a folder of its own.
    return LocalCache(Path(config.cache_folder) / "courant-arrays", int(config.cache_gb * 1e9))


VALIDATION_BATCH = 16


class TransientProblem(Problem):
    """Windows of a trajectory: the I states up to t0, and the states after 1..T steps."""

    kind: ClassVar[Kind] = "transient"
    takes = (
        "initial",
        "parameters",
        "distance",
        "queries",
        "query_distance",
        "given",
        "query_given",
        "steps",
    )

    def __init__(self, experiment: Experiment, normaliser: Normaliser) -> None:
        super().__init__(experiment, normaliser)
        self.data = cast(TransientData, experiment.data)

    @property
    def needs(self) -> tuple[str, ...]:
        geometry = ["parameters or distance"] if self.normaliser.stored_kinds else []
        if self.experiment.model.num_parameters:
            geometry = ["parameters"]
        return ("points", "initial", *geometry, *self.needed_of_data())

    @property
    def num_steps(self) -> int:
        return self.data.window_steps

    @property
    def input_steps(self) -> int:
        return self.data.input_steps

    @property
    def step_s(self) -> float:
        return self.data.step_s

    def num_features(self) -> tuple[int, ...]:
        modelled, given = len(self.normaliser.channels), len(self.normaliser.given)
        known = self.input_steps * modelled + given
        return (known + self.normaliser.num_distance_channels, known)

    def check(self) -> None:
        if self.data.mirror_y and self.experiment.model.num_parameters:
            raise InputError(
                "data.mirror_y with model.num_parameters: the parameters of a mirrored design are"
                " not known; set one of them to false or 0"
            )
        of_field = Counter(each.field for each in self.normaliser.read_channels)
        for each in self.normaliser.read_channels if self.data.mirror_y else ():
            if of_field[each.field] > 1 and not is_spatial(each.component):
                raise InputError(
                    f"data.mirror_y: nothing says how {each.name} changes in a mirror image; set it"
                    " to false, or name the field's components by x, y and z"
                )

    def training(self, dataset: Dataset, order: BatchOrder, device: torch.device) -> Batches:
        return load_batches(
            dataset, self.normaliser, self.data, order, self.anchors, device, self.reads_edges
        )

    def validation(self, dataset: Dataset, num: int, device: torch.device) -> Samples:
        how = (num, self.anchors, device, self.reads_edges)
        held, windows = load_windows(dataset, "validation", self.normaliser, self.data, *how)
        draw = partial(full_batch, held, config=self.data)
        return lambda: (draw(windows=chosen) for chosen in windows.split(VALIDATION_BATCH))

    def prepare(self, space: Space, points: np.ndarray, **parts: Any) -> Batch:
        self.check_parts(parts)
        initial, parameters = parts.get("initial"), parts.get("parameters")
        if initial is None:
            raise InputError(f"give initial, the state ({self._known}) at each point")
        if parameters is not None:
            check_parameters(parameters, space.parameters, space.family)
        elif self.experiment.model.num_parameters:
            raise InputError(f"give parameters={{...}}, the design parameters {space.names}")
        places = check_points(points, "points", self.normaliser)
        one = (len(places), len(self.normaliser.channels))
        shape = one if self.input_steps == 1 else (self.input_steps, *one)
        states = check_array(initial, shape, f"initial ({self._known} at each point)")
        states = states.reshape(self.input_steps, len(places), -1)

        def features(at: np.ndarray, distance: str, given: str) -> np.ndarray:
            field = self._distance(at, parts.get(distance), distance, parameters, space.family)
            known = check_given(parts.get(given), len(at), self.normaliser, given)
            return self._features(at, field, known)

        at_points = features(places, "distance", "given")
        queries = None
        if parts.get("queries") is not None:
            asked = check_points(parts["queries"], "queries", self.normaliser)
            queries = asked, features(asked, "query_distance", "query_given")
        return self._batch(
            places, states, at_points, queries, parameters, self.steps(parts.get("steps"))
        )

    def case_inputs(
        self, case: StoredCase, start_s: float | None, steps: int | None = None
    ) -> Batch:
        self.check_case(case)
        moments = self.input_times(self.start(case, start_s))
        frames = [self.snapshot(case, moment) for moment in moments.tolist()]
        known = read_states(
            case,
            self.normaliser.read_channels,
            slice(frames[0], frames[-1] + 1, frames[-1] - frames[-2] if len(frames) > 1 else 1),
        )
        states, given = np.split(known, [len(self.normaliser.channels)], axis=-1)
        has_distance = bool(self.normaliser.stored_kinds)
        field = (np.asarray(case.distance), np.asarray(case.direction)) if has_distance else None
        points = np.asarray(case.points)
        features = self._features(points, field, given[-1])
        edges = read_edges(case) if self.reads_edges else None
        return self._batch(
            points, states, features, None, case.parameters, self.steps(steps), edges
        )

    def windows(self, case: StoredCase) -> Iterator[Window]:
        """Yield one window per step of the rollout, from where training windows begin."""
        times = np.asarray(case.time)
        states = read_states(case, self.normaliser.channels, slice(None))
        last = times[-1] - self.num_steps * self.step_s
        starts = np.arange(self.start(case), last + time_tolerance(times), self.step_s)
        if not len(starts):
            raise InputError(
                f"case {case.id} ends at {times[-1]:g} s: no window of"
                f" {self.num_steps * self.step_s:g} s fits after {self.data.start_s:g} s"
            )
        for start in starts.tolist():
            after = [
                self.snapshot(case, moment) for moment in self.times(start, self.num_steps).tolist()
            ]
            yield Window(start, states[self.snapshot(case, start)], states[after])

    def solution(self, case: StoredCase, at_s: float | None) -> np.ndarray | None:
        frame = self._find(case, self.start(case, at_s))
        return None if frame is None else self._state(case, frame)

    def start(self, case: StoredCase, asked: float | None = None) -> float:
        """Return the last known state's time in the first training window."""
        if asked is not None:
            return asked
        time = np.asarray(case.time)
        late = time[time >= self.data.start_s - time_tolerance(time)]
        if not len(late):
            raise InputError(
                f"case {case.id} ends at {time[-1]:g} s, before data.start_s ="
                f" {self.data.start_s:g} s"
            )
        return float(late[0]) + (self.input_steps - 1) * self.step_s

    def shown_start(self, case: StoredCase) -> float:
        """Choose the start so that the last predicted state is the case's last."""
        return float(np.asarray(case.time)[-1] - self.num_steps * self.step_s)

    def times(self, start_s: float, steps: int) -> np.ndarray:
        return start_s + self.step_s * np.arange(1, steps + 1)

    def input_times(self, start_s: float) -> np.ndarray:
        return start_s + self.step_s * np.arange(1 - self.input_steps, 1)

    def steps(self, asked: int | None) -> int:
        return self.num_steps if asked is None else check_steps(asked)

    def steps_to_end(self, case: StoredCase, start_s: float | None) -> int:
        last = float(np.asarray(case.time)[-1])
        return int((last - self.start(case, start_s)) / self.step_s + TIME_TOLERANCE)

    def presented(self, values: np.ndarray) -> np.ndarray:
        return values

    def share_of_solve(self, case: StoredCase) -> float | None:
        end = case.settings.get("end_time")
        return self.num_steps * self.step_s / end if end else None

    def snapshot(self, case: StoredCase, at_s: float) -> int:
        """Return the number of the case's snapshot at a time; InputError where there is none."""
        frame = self._find(case, at_s)
        if frame is None:
            time = np.asarray(case.time)
            nearest = time[np.abs(time - at_s).argmin()]
            raise InputError(
                f"case {case.id} has no snapshot at {at_s:g} s; its snapshots run from {time[0]:g}"
                f" to {time[-1]:g} s, the nearest is {nearest:g} s"
            )
        return frame

    def _find(self, case: StoredCase, at_s: float) -> int | None:
        time = np.asarray(case.time)
        away = np.abs(time - at_s)
        nearest = int(away.argmin())
        return nearest if away[nearest] <= time_tolerance(time) else None

    def _state(self, case: StoredCase, frame: int) -> np.ndarray:
        """(N, C)"""
        return read_states(case, self.normaliser.channels, slice(frame, frame + 1))[0]

    @property
    def _known(self) -> str:
        channels = ", ".join(channel.name for channel in self.normaliser.channels)
        if self.input_steps == 1:
            return channels
        return f"{channels} at {self.input_steps} times {self.step_s:g} s apart, the oldest first,"

    def _features(
        self, points: np.ndarray, field: DistanceField | None, given: np.ndarray
    ) -> np.ndarray:
        """Return (N, G + D) normalised: given fields at the start, and the distance field."""
        distance = self.normaliser.distance_channels(field, len(points))
        return np.concatenate([self.normaliser.standardise_given(given), distance], axis=-1)

    def _batch(
        self,
        points: np.ndarray,
        states: np.ndarray,
        features: np.ndarray,
        queries: tuple[np.ndarray, np.ndarray] | None,
        parameters: Mapping[str, float] | None,
        num_steps: int,
        edges: np.ndarray | None = None,
    ) -> Batch:
        """Build a batch of one from points (N, 3) m, the states (I, N, C) and `_features` there.

        queries: other points (M, 3) m and the features there; None = the points.
        """
        normaliser = self.normaliser
        known = normaliser.standardise(states).transpose(1, 0, 2).reshape(len(points), -1)
        positions = torch.from_numpy(normaliser.points(points))[None]
        at, at_features = (points, features) if queries is None else queries
        design = np.zeros(0, np.float32) if parameters is None else normaliser.design(parameters)
        return Batch(
            points=positions,
            features=torch.from_numpy(np.concatenate([known, features], axis=-1))[None],
            mask=None,
            anchors=self.anchors.among(positions),
            query_points=torch.from_numpy(normaliser.points(at))[None],
            query_features=torch.from_numpy(at_features)[None],
            query_mask=None,
            targets=torch.zeros(1, num_steps, 0, len(normaliser.channels)),
            parameters=torch.from_numpy(design)[None],
            neighbours=None if edges is None else torch.from_numpy(edges)[None],
        )

    def _distance(
        self,
        points: np.ndarray,
        given: DistanceField | None,
        name: str,
        parameters: Mapping[str, float] | None,
        family: str,
    ) -> DistanceField | None:
        if not self.normaliser.stored_kinds:
            return None
        if given is not None:
            return check_distance(given, len(points), self.normaliser.stored_kinds, name)
        if parameters is None:
            raise InputError(
                f"give the geometry: parameters={{...}} or {name}=(distance, direction)"
            )
        return distance_field(family, points, parameters)
