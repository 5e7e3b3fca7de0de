"""Transient problems: predict later states from snapshots of the flow and its geometry.

A sample is a window (case, first frame): the I states up to t0, and the states after 1..T steps.

Notable properties:
- Cases differ in their number of points: points are padded to the longest case and `num_points`
  is where the padding starts. Snapshots of all cases are concatenated in `frames`, so a batch is
  one gather on whatever device holds them.
- Each batch draws its encoder and query points with a generator made from (seed, epoch, step).
- A split that is too large for the device is streamed from the store: threads read windows ahead,
  as a TrajectorySet of these windows alone, from which the same code draws the same batches to the
  bit.
- Cases that fit into the local cache are decoded once; of the others each window reads its chunks.
  A cache too small for all cases would otherwise evict every case before its next use.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from courant.data.batch import READERS, Batch, Batches, BatchOrder, join_padded, num_bytes, spread
from courant.data.geometry import DistanceField, distance_field, read_edges
from courant.data.normalisation import Channel, Normaliser
from courant.data_config import TransientData
from courant.experiment import Experiment, Kind
from courant.problems.problem import Problem, Samples, Space, Window, check_array, check_parameters
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset, LocalCache, StoredCase

logger = logging.getLogger("courant.training")

TIME_TOLERANCE = 1e-3
"""Of the interval between two snapshots, by which times may differ and still be the same"""
GEOMETRY_BYTES = 1 << 30
"""Prepared geometries (points, distance field, anchors) kept in memory"""
VALIDATION_BATCH = 16
_ON_CPU = ("num_points", "first_frame", "start_s", "num_frames")


def is_spatial(component: str) -> bool:
    """Whether a component is one of a vector or tensor along the axes, such as y or xy."""
    return bool(component) and set(component) <= set("xyz")


def time_tolerance(time: np.ndarray) -> float:
    """Return the seconds by which a time may miss one of the increasing times (T,)."""
    apart = float(np.diff(time).min()) if len(time) > 1 else max(1.0, abs(float(time[0])))
    return TIME_TOLERANCE * apart


def times_between(time: np.ndarray, first: float, last: float) -> np.ndarray:
    """Return those of the times (T,) that lie between two, both included."""
    slack = time_tolerance(time)
    return time[(time >= first - slack) & (time <= last + slack)]


def read_states(case: StoredCase, channels: Sequence[Channel], frames: slice) -> np.ndarray:
    """Read some channels of the case's snapshots, in their units: (T, N, C)."""
    names = {channel.field for channel in channels}
    return _channels_of({name: np.asarray(case[name][frames]) for name in names}, channels)


def _channels_of(stored: Mapping[str, np.ndarray], channels: Sequence[Channel]) -> np.ndarray:
    return np.stack([stored[channel.field][..., channel.column] for channel in channels], axis=-1)


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
    data: TransientData
    step_s: float

    def __init__(self, experiment: Experiment, normaliser: Normaliser) -> None:
        super().__init__(experiment, normaliser)
        self.num_steps, self.input_steps = self.data.window_steps, self.data.input_steps
        self.step_s = self.data.step_s

    @property
    def needs(self) -> tuple[str, ...]:
        geometry = ("parameters or distance",) if self.normaliser.stored_kinds else ()
        if self.experiment.model.num_parameters:
            geometry = ("parameters",)
        given = ("given",) if self.normaliser.given else ()
        return ("points", "initial", *geometry, *given)

    def num_features(self) -> tuple[int, ...]:
        known = self.input_steps * len(self.normaliser.channels) + len(self.normaliser.given)
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
                    f"data.mirror_y: nothing defines how {each.name} changes in a mirror image; set"
                    " it to false, or name the field's components by x, y and z"
                )

    def training(self, dataset: Dataset, order: BatchOrder, device: torch.device) -> Batches:
        source = self.open_split(dataset, "train", self.data.mirror_y)
        if isinstance(source, TrajectorySet):
            source = source.to(device)
        return WindowBatches(source, self.data, order, device)

    def validation(self, dataset: Dataset, num: int, device: torch.device) -> Samples:
        source = self.open_split(dataset, "validation")
        windows = spread(list_windows(source, self.data), num)
        if isinstance(source, WindowReader):
            source, windows = source.read(windows, self.data)
        held = source.to(device)
        parts = windows.split(VALIDATION_BATCH)
        return lambda: (full_batch(held, part, self.data) for part in parts)

    def open_split(
        self, dataset: Dataset, split: str, mirror_y: bool = False
    ) -> TrajectorySet | WindowReader:
        """Load the trajectories of a split that fits into memory; else a reader of its windows."""
        reader = WindowReader(dataset, dataset.cases(split), self, mirror_y)
        return reader if reader.all_bytes > self.data.resident_gb * 1e9 else reader.read_all()

    def prepare(self, space: Space, points: np.ndarray, **parts: Any) -> Batch:
        self.check_parts(parts)
        initial, parameters = parts.get("initial"), parts.get("parameters")
        known = ", ".join(channel.name for channel in self.normaliser.channels)
        if self.input_steps > 1:
            known += f" at {self.input_steps} times {self.step_s:g} s apart, the oldest first,"
        if initial is None:
            raise InputError(f"give initial, the state ({known}) at each point")
        if parameters is not None:
            check_parameters(parameters, space)
        elif self.experiment.model.num_parameters:
            raise InputError(f"give parameters={{...}}, the design parameters {space.names}")
        places = self.check_points(points, "points")
        one = (len(places), len(self.normaliser.channels))
        shape = one if self.input_steps == 1 else (self.input_steps, *one)
        states = check_array(initial, shape, f"initial ({known} at each point)")
        states = states.reshape(self.input_steps, len(places), -1)

        def features(at: np.ndarray, name: str, given: str) -> np.ndarray:
            field = parts.get(name)
            if self.normaliser.stored_kinds and field is not None:
                field = self.check_distance(field, len(at), name)
            elif self.normaliser.stored_kinds:
                if parameters is None:
                    raise InputError(
                        f"give the geometry: parameters={{...}} or {name}=(distance, direction)"
                    )
                field = distance_field(space.family, at, parameters)
            return self._features(at, field, self.check_given(parts.get(given), len(at), given))

        at_points, queries = features(places, "distance", "given"), None
        if parts.get("queries") is not None:
            asked = self.check_points(parts["queries"], "queries")
            queries = asked, features(asked, "query_distance", "query_given")
        steps = self.steps(parts.get("steps"))
        return self._batch(places, states, at_points, queries, parameters, steps)

    def case_inputs(
        self, case: StoredCase, start_s: float | None, steps: int | None = None
    ) -> Batch:
        self.check_case(case)
        moments = self.input_times(self.start(case, start_s))
        frames = [self.snapshot(case, moment) for moment in moments.tolist()]
        stride = frames[-1] - frames[-2] if len(frames) > 1 else 1
        known = read_states(
            case, self.normaliser.read_channels, slice(frames[0], frames[-1] + 1, stride)
        )
        states, given = np.split(known, [len(self.normaliser.channels)], axis=-1)
        has_distance = bool(self.normaliser.stored_kinds)
        field = (np.asarray(case.distance), np.asarray(case.direction)) if has_distance else None
        points = np.asarray(case.points)
        features = self._features(points, field, given[-1])
        edges = read_edges(case) if self.reads_edges else None
        steps = self.steps(steps)
        return self._batch(points, states, features, None, case.parameters, steps, edges)

    def windows(self, case: StoredCase) -> Iterator[Window]:
        """Yield one window per step of the rollout, from where training windows begin."""
        times, length = np.asarray(case.time), self.num_steps * self.step_s
        states = read_states(case, self.normaliser.channels, slice(None))
        starts = np.arange(
            self.start(case), times[-1] - length + time_tolerance(times), self.step_s
        )
        if not len(starts):
            raise InputError(
                f"case {case.id} ends at {times[-1]:g} s: no window of {length:g} s fits after"
                f" {self.data.start_s:g} s"
            )
        for start in starts.tolist():
            after = [self.snapshot(case, at) for at in self.times(start, self.num_steps).tolist()]
            yield Window(start, states[self.snapshot(case, start)], states[after])

    def solution(self, case: StoredCase, at_s: float | None) -> np.ndarray | None:
        frame = self._find(case, self.start(case, at_s))
        if frame is None:
            return None
        return read_states(case, self.normaliser.channels, slice(frame, frame + 1))[0]

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
        if asked is None:
            return self.num_steps
        if not isinstance(asked, Integral):
            raise InputError(f"steps = {asked!r:.100} is no whole number")
        if asked < 1:
            raise InputError(f"steps = {asked}: ask for at least one")
        return int(asked)

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
        at, at_features = queries or (points, features)
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


# --- trajectories, in memory or read window by window


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
        moved = {n: t.to(device) for n, t in self._tensors().items() if n not in _ON_CPU}
        return replace(self, **moved)  # type: ignore[arg-type]

    @property
    def num_bytes(self) -> int:
        return num_bytes(self._tensors().values())

    def _tensors(self) -> dict[str, Tensor]:
        return {name: each for name, each in vars(self).items() if isinstance(each, Tensor)}


@dataclass(frozen=True)
class SnapshotRange:
    """The snapshots of a case that are read."""

    num_points: int
    first: int
    num_frames: int
    start_s: float
    interval_s: float

    @classmethod
    def of(cls, case: StoredCase, start_s: float) -> SnapshotRange:
        """Find the snapshots from a time on; InputError where they are no even trajectory."""
        if case.time is None:
            raise InputError(
                f"case {case.id} is steady and has no trajectory; a transient experiment needs"
                " snapshots in time"
            )
        time = np.asarray(case.time, dtype=np.float64)
        first = int(np.searchsorted(time, start_s - time_tolerance(time)))
        num = len(time) - first
        if num < 2:
            raise InputError(
                f"case {case.id} has {num} snapshots from {start_s:g} s on; lower"
                " data.start_s or solve longer"
            )
        steps = np.diff(time[first:])
        if np.ptp(steps) > TIME_TOLERANCE * steps.mean():
            raise InputError(
                f"case {case.id}: snapshots lie {steps.min():g} to {steps.max():g} s apart;"
                " expected one interval"
            )
        return cls(case.num_points, first, num, float(time[first]), float(steps.mean()))


def common_interval(dataset: Dataset, ranges: Sequence[SnapshotRange]) -> float:
    """Return the seconds between snapshots; InputError where cases differ in it."""
    # Nine digits: the difference of two times has no more that mean anything.
    intervals = sorted({float(f"{each.interval_s:.9g}") for each in ranges})
    if intervals[-1] - intervals[0] > TIME_TOLERANCE * intervals[0]:
        apart = dict.fromkeys(f"{value:g} s" for value in intervals)
        raise InputError(
            f"dataset {dataset.url} {dataset.version}: snapshots lie {', '.join(apart)} apart;"
            " train on cases with one snapshot interval"
        )
    return intervals[0]


class WindowReader:
    """Read the trajectories of cases from the store: all of them, or window by window.

    With `mirror_y`, after each case comes its image in y = 0. `ids`, `start_s` and `num_frames` are
    as in a TrajectorySet of these cases. Safe to share between threads. InputError for snapshots
    that are not evenly spaced, or not alike, and for lacking edges.
    """

    def __init__(
        self,
        dataset: Dataset,
        ids: Sequence[str],
        problem: TransientProblem,
        mirror_y: bool = False,
    ) -> None:
        if not ids:
            raise InputError(f"dataset {dataset.url} {dataset.version}: no cases to read")
        self.dataset, self.problem, self.normaliser = dataset, problem, problem.normaliser
        self._cases = list(ids)
        with ThreadPoolExecutor(READERS) as readers:
            self._ranges = list(
                readers.map(lambda case: SnapshotRange.of(dataset[case], problem.data.start_s), ids)
            )
        self.snapshot_interval_s = common_interval(dataset, self._ranges)
        self._most = max(each.num_points for each in self._ranges)
        images = (False, True) if mirror_y else (False,)
        self._shown = [(number, image) for number in range(len(ids)) for image in images]
        self.ids = tuple(f"{ids[n]} mirrored" if image else ids[n] for n, image in self._shown)
        shown = [self._ranges[number] for number, _ in self._shown]
        self.start_s = torch.tensor([each.start_s for each in shown], dtype=torch.float64)
        self.num_frames = torch.tensor([each.num_frames for each in shown])
        from cachetools import LRUCache  # as the store's libraries, only where cases are stored

        self._geometries: LRUCache[int, dict[str, Tensor]] = LRUCache(
            GEOMETRY_BYTES, getsizeof=lambda geometry: num_bytes(geometry.values())
        )
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Bytes held in memory."""
        return int(self._geometries.currsize)

    @property
    def all_bytes(self) -> float:
        """The memory that all snapshots take, with every case padded to the largest."""
        design = self.dataset.design.loc[self._cases]
        width = len(self.normaliser.read_channels)
        return 4.0 * float(design["num_snapshots"].sum() * design["num_points"].max() * width)

    def read_all(self) -> TrajectorySet:
        """Read all trajectories; images share the frames of their case."""
        num_frames = torch.tensor([each.num_frames for each in self._ranges])
        first_frame = torch.cumsum(num_frames, 0) - num_frames
        channels = self.normaliser.read_channels
        frames = torch.zeros(int(num_frames.sum()), self._most, len(channels))

        def read(case: str, snapshots: SnapshotRange, begin: int) -> None:
            states = read_states(self.dataset[case], channels, slice(snapshots.first, None))
            # Written in place: only one copy is in memory.
            frames[begin : begin + snapshots.num_frames, : snapshots.num_points] = torch.from_numpy(
                self.normaliser.standardise_read(states)
            )

        with ThreadPoolExecutor(READERS) as readers:
            list(readers.map(read, self._cases, self._ranges, first_frame.tolist()))
            geometries = list(readers.map(self._prepare, range(len(self._shown))))
        of_case = torch.tensor([number for number, _ in self._shown])
        return TrajectorySet(
            ids=self.ids,
            snapshot_interval_s=self.snapshot_interval_s,
            frames=frames,
            first_frame=first_frame[of_case],
            num_frames=self.num_frames,
            num_given=len(self.normaliser.given),
            start_s=self.start_s,
            **_joined(geometries),
        )

    def read(self, windows: Tensor, config: TransientData) -> tuple[TrajectorySet, Tensor]:
        """Read (B, 2) windows as B trajectories; return these, and the windows' places in them."""
        num, stride = config.num_states, snapshots_per_step(self, config)
        channels = self.normaliser.read_channels
        frames = torch.zeros(len(windows), num, self._most, len(channels))
        for states, (number, first) in zip(frames, windows.tolist(), strict=True):
            case = self._shown[number][0]
            begin = self._ranges[case].first + first
            values = self._states(
                self.dataset[self._cases[case]],
                slice(begin, begin + (num - 1) * stride + 1, stride),
            )
            states[:, : self._ranges[case].num_points] = torch.from_numpy(
                self.normaliser.standardise_read(values)
            )
        numbers, first_frames = windows.unbind(1)
        trajectories = TrajectorySet(
            ids=tuple(self.ids[number] for number in numbers.tolist()),
            snapshot_interval_s=self.snapshot_interval_s * stride,
            frames=frames.flatten(0, 1),
            first_frame=num * torch.arange(len(windows)),
            num_frames=torch.full((len(windows),), num),
            num_given=len(self.normaliser.given),
            start_s=self.start_s[numbers] + first_frames * self.snapshot_interval_s,
            **_joined([self._geometry(number) for number in numbers.tolist()]),
        )
        places = torch.arange(len(windows))
        return trajectories, torch.stack([places, torch.zeros_like(places)], dim=1)

    def _states(self, case: StoredCase, frames: slice) -> np.ndarray:
        """Read the channels of some snapshots, in their units: (T, N, C)."""
        channels = self.normaliser.read_channels
        names = sorted({channel.field for channel in channels})
        if case.id in self._cached:
            arrays = self._cache.arrays(case, *names)
            return _channels_of({name: arrays[name][frames] for name in names}, channels)
        # Chunks are read whole, whatever the stride.
        return read_states(case, channels, slice(frames.start, frames.stop))[:: frames.step]

    @cached_property
    def _cache(self) -> LocalCache:
        # Training from memory does without the store's libraries, so they are imported only here.
        from simgen.store.read import LocalCache

        data = self.problem.data
        # The cache removes files, and an experiment may name any folder: it gets one of its own.
        return LocalCache(Path(data.cache_folder) / "courant-arrays", int(data.cache_gb * 1e9))

    @cached_property
    def _cached(self) -> frozenset[str]:
        """The first cases whose fields fit into the cache together."""
        components = {field.name: len(field.components) for field in self.dataset.schema.fields}
        names = {each.field for each in self.normaliser.read_channels}
        design = self.dataset.design.loc[self._cases]
        size = 4 * sum(components[name] for name in names)
        total = (design["num_points"] * design["num_snapshots"] * size).cumsum()
        return frozenset(design.index[(total <= self._cache.max_bytes).to_numpy()])

    def _geometry(self, number: int) -> dict[str, Tensor]:
        with self._lock:
            found = self._geometries.get(number)
        if found is None:
            found = self._prepare(number)
            with self._lock, suppress(ValueError):  # larger than all that is kept
                self._geometries[number] = found
        return found

    def _prepare(self, number: int) -> dict[str, Tensor]:
        """Prepare what a TrajectorySet holds of one case besides its snapshots, as K = 1."""
        index, is_mirrored = self._shown[number]
        case, normaliser = self.dataset[self._cases[index]], self.normaliser
        flip = np.array([1, -1 if is_mirrored else 1, 1], np.float32)
        field = None
        if normaliser.stored_kinds:
            field = np.asarray(case.distance), np.asarray(case.direction) * flip
        points = torch.from_numpy(normaliser.points(case.points * flip))
        distance = torch.from_numpy(normaliser.distance_channels(field, len(points)))
        channels = normaliser.read_channels
        sign = torch.tensor([mirror_sign(each) if is_mirrored else 1.0 for each in channels])
        mean = torch.tensor(normaliser.mean + normaliser.given_mean)
        std = torch.tensor(normaliser.std + normaliser.given_std)
        padded = join_padded([points[None]], length=self._most)
        is_real = torch.arange(self._most) < len(points)
        geometry = {
            "points": padded,
            "distance": join_padded([distance[None]], length=self._most),
            "anchors": self.problem.anchors.among(padded, is_real[None]),
            "parameters": torch.from_numpy(normaliser.design(case.parameters))[None],
            "num_points": torch.tensor([len(points)]),
            "sign": sign[None],
            # The mirrored value -v, standardised:
            # (-v - mean) / std = -(v - mean) / std - 2 mean / std.
            "offset": ((sign - 1) * mean / std)[None],
        }
        if self.problem.reads_edges:
            edges = torch.from_numpy(read_edges(case))[None]
            geometry["neighbours"] = join_padded([edges], -1, self._most)
        return geometry


def mirror_sign(channel: Channel) -> float:
    """Return -1 for components that change their sign in a mirror image in y = 0, else 1.

    Those with an odd number of y: of vectors y, of tensors xy and yz.
    """
    return -1.0 if is_spatial(channel.component) and channel.component.count("y") % 2 else 1.0


def _joined(geometries: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """Join cases' geometries; lists of neighbours differ in their width."""
    joined: dict[str, Any] = {}
    for name in geometries[0]:
        parts = [geometry[name] for geometry in geometries]
        joined[name] = join_padded(parts, -1) if name == "neighbours" else torch.cat(parts)
    return joined


# --- windows and batches of them


def list_windows(trajectories: TrajectorySet | WindowReader, config: TransientData) -> Tensor:
    """(W, 2) int64 rows (case, first frame within the case), all cases' windows in order."""
    interval = trajectories.snapshot_interval_s
    step = snapshots_per_step(trajectories, config)
    stride = _multiple(config.stride_s, interval, "stride_s")
    rows = []
    for case in range(len(trajectories.ids)):
        late = (config.start_s - float(trajectories.start_s[case])) / interval
        first = max(0, math.ceil(late - TIME_TOLERANCE))
        end = int(trajectories.num_frames[case]) - (config.num_states - 1) * step
        starts = torch.arange(first, max(first, end), stride)
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
        last = (trajectories.start_s + (trajectories.num_frames - 1) * interval).max()
        raise InputError(
            f"no window of {config.num_states - 1} x {config.step_s:g} s fits from"
            f" {config.start_s:g} s to the last snapshot at {float(last):g} s; lower data.start_s"
            " or data.window_steps, or solve longer"
        )
    return windows


def snapshots_per_step(trajectories: TrajectorySet | WindowReader, config: TransientData) -> int:
    """Return the snapshots from one step of a window to the next."""
    return _multiple(config.step_s, trajectories.snapshot_interval_s, "step_s")


def _multiple(duration: float, interval: float, name: str) -> int:
    """Return how many snapshot intervals a duration spans; InputError unless a whole number."""
    count = round(duration / interval)
    if count < 1 or abs(duration / interval - count) > TIME_TOLERANCE:
        raise InputError(
            f"data.{name} = {duration:g} s is no multiple of the snapshot interval, {interval:g} s"
        )
    return count


class WindowBatches(Batches):
    """Training batches of windows; a sample is a row (case, first frame)."""

    def __init__(
        self,
        source: TrajectorySet | WindowReader,
        config: TransientData,
        order: BatchOrder,
        device: torch.device,
    ) -> None:
        super().__init__(order, device, streamed=not isinstance(source, TrajectorySet))
        self.source, self.config = source, config
        self.num_cases = len(source.ids)
        self.samples = list_windows(source, config)

    @property
    def num_bytes(self) -> int:
        return self.source.num_bytes

    def describe(self, samples: Tensor) -> list[dict[str, object]]:
        source = self.source
        return [
            {
                "case": source.ids[case],
                "start_s": float(source.start_s[case]) + first * source.snapshot_interval_s,
            }
            for case, first in samples.tolist()
        ]

    def make(self, samples: Tensor, generator: torch.Generator) -> Batch:
        shard, source, windows = self.order.shard, self.source, samples
        if not isinstance(source, TrajectorySet):
            # Points are drawn for the whole batch; the windows of other workers are never read.
            source, places = source.read(samples[shard], self.config)
            windows = torch.zeros_like(samples)
            windows[shard] = places
        return draw_batch(source, windows, self.config, generator, shard)


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
    most, device = trajectories.points.shape[1], trajectories.points.device

    def draw(num: int | None) -> Tensor | None:
        """Draw (B, num) distinct point numbers of each window's case, padding last; None = all."""
        if num is None or num >= most:
            return None
        keys = torch.rand(len(windows), most, generator=generator)[shard]
        num_points = trajectories.num_points[windows[shard, 0]]
        keys.masked_fill_(torch.arange(most) >= num_points[:, None], 2.0)
        on_device = keys.to(device, non_blocking=True)
        return on_device.topk(num, dim=1, largest=False, sorted=False).indices

    points, queries = draw(config.points_per_sample), draw(config.queries_per_sample)
    batch = _gather(trajectories, windows[shard], config, points, queries)
    if not config.shift:
        return batch
    drawn = torch.rand(len(windows), 1, 3, generator=generator)[shard]
    shift = config.shift * (2 * drawn.to(device, non_blocking=True) - 1)
    shift = shift * (batch.points != 0).any(dim=1, keepdim=True)  # a 2D case stays at z = 0
    return replace(
        batch,
        points=batch.points + shift,
        anchors=batch.anchors + shift,
        query_points=batch.query_points + shift,
    )


def full_batch(trajectories: TrajectorySet, windows: Tensor, config: TransientData) -> Batch:
    """Return the batch of `windows` with every mesh point, in the encoder and as a query.

    This is what a prediction has.
    """
    return _gather(trajectories, windows, config, None, None)


def _gather(
    trajectories: TrajectorySet,
    windows: Tensor,
    config: TransientData,
    points: Tensor | None,
    queries: Tensor | None,
) -> Batch:
    """Gather the windows at some points (B, N) and queries (B, M); None = all."""
    device = trajectories.points.device
    numbers, start = windows.unbind(1)
    step = snapshots_per_step(trajectories, config)
    moments = trajectories.first_frame[numbers] + start
    moments = moments[:, None] + step * torch.arange(config.num_states)
    num_points = trajectories.num_points[numbers]
    # Without waiting for the copy; `num_points` stays on the CPU.
    case, times = (index.to(device, non_blocking=True) for index in (numbers, moments))
    sign, offset = trajectories.sign[case][:, None, None], trajectories.offset[case][:, None, None]

    def geometry(chosen: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return positions, distance field and mask."""
        if chosen is None:
            places = torch.arange(trajectories.points.shape[1], device=device)
            positions, distance = trajectories.points[case], trajectories.distance[case]
        else:
            places = chosen
            positions = trajectories.points[case[:, None], chosen]
            distance = trajectories.distance[case[:, None], chosen]
        # Padding is chosen last, so the number chosen shows whether it is included; looking at the
        # mask itself would wait for the device.
        if places.shape[-1] <= int(num_points.min()):
            return positions, distance, None
        return positions, distance, places < num_points.to(device, non_blocking=True)[:, None]

    def states(at: Tensor, chosen: Tensor | None) -> Tensor:
        """Gather (B, T) frames at the chosen points as (B, T, M, C)."""
        if chosen is None:
            frames = trajectories.frames[at]
        else:
            frames = trajectories.frames[at[:, :, None], chosen[:, None, :]]
        return frames * sign + offset

    positions, distance, mask = geometry(points)
    query_positions, query_features, query_mask = geometry(queries)
    past, future = times.split([config.input_steps, config.window_steps], dim=1)
    read, targets = states(past, points), states(future, queries)
    modelled = targets.shape[-1] - trajectories.num_given
    # (B, I, N, C) becomes (B, N, I C).
    known = read[..., :modelled].transpose(1, 2).flatten(2)
    if trajectories.num_given:
        # Given fields are known only at the start, whatever the time of the prediction.
        known = torch.cat([known, read[:, -1, :, modelled:]], dim=-1)
        targets = targets[..., :modelled]
        given = states(past[:, -1:], queries)[:, 0, :, modelled:]
        query_features = torch.cat([given, query_features], dim=-1)
    # A part of the points has no edges of the whole.
    has_edges = points is None and trajectories.neighbours is not None
    return Batch(
        points=positions,
        features=torch.cat([known, distance], dim=-1),
        mask=mask,
        anchors=trajectories.anchors[case],
        query_points=query_positions,
        query_features=query_features,
        query_mask=query_mask,
        targets=targets,
        parameters=trajectories.parameters[case],
        neighbours=trajectories.neighbours[case] if has_edges else None,  # type: ignore[index]
    )
