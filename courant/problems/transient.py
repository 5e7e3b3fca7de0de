"""Transient problems: predict later states from snapshots of the flow and its geometry.

A sample is a window (case, first frame): the I states up to t0, and the states after 1..T steps.
Points are padded to the longest case, and snapshots of all cases are concatenated in `frames`, so a
batch is one gather on whatever device holds them. A split that is too large for the device is
streamed: threads read windows ahead, as a TrajectorySet of these windows alone, from which the same
code draws the same batches. Cases that fit into the local cache are decoded once.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from courant.data.batch import READERS, Batch, Batches, BatchOrder, join_padded, num_bytes, spread
from courant.data.geometry import distance_field, read_edges
from courant.data.normalisation import Channel, Normaliser
from courant.experiment import Experiment, Kind, TransientData
from courant.problems.problem import Problem, Samples, Window, check_array, read_states
from simgen.case import is_spatial
from simgen.design_space import Parameter
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.read import Dataset, LocalCache, StoredCase

logger = logging.getLogger("courant.training")

TIME_TOLERANCE = 1e-3  # of the interval between two snapshots: times that are nearer are the same
GEOMETRY_BYTES = 1 << 30  # of prepared points, distance fields and anchors kept in memory
VALIDATION_BATCH = 16
_ON_CPU = ("num_points", "first_frame", "start_s", "num_frames")


def time_tolerance(time: np.ndarray) -> float:
    """Return the seconds by which a time may miss one of the increasing times (T,)."""
    apart = float(np.diff(time).min()) if len(time) > 1 else max(1.0, abs(float(time[0])))
    return TIME_TOLERANCE * apart


def times_between(time: np.ndarray, first: float, last: float) -> np.ndarray:
    """Return those of the times (T,) that lie between two, both included."""
    slack = time_tolerance(time)
    return time[(time >= first - slack) & (time <= last + slack)]


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
        return lambda: (gather(held, part, self.data) for part in parts)

    def open_split(
        self, dataset: Dataset, split: str, mirror_y: bool = False
    ) -> TrajectorySet | WindowReader:
        """Load the trajectories of a split that fits into memory; else a reader of its windows."""
        reader = WindowReader(dataset, dataset.cases(split), self, mirror_y)
        return reader if reader.all_bytes > self.data.resident_gb * 1e9 else reader.read_all()

    def prepare(self, space: Sequence[Parameter], points: np.ndarray, **parts: Any) -> Batch:
        self.check_parts(parts)
        initial, parameters = parts.get("initial"), parts.get("parameters")
        known = ", ".join(channel.name for channel in self.normaliser.channels)
        if self.input_steps > 1:
            known += f" at {self.input_steps} times {self.step_s:g} s apart, the oldest first,"
        if initial is None:
            raise InputError(f"give initial, the state ({known}) at each point")
        if parameters is not None or self.experiment.model.num_parameters:
            self.check_parameters(parameters, space)
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
                field = distance_field(self.experiment.family, at, parameters)
            return self.features_at(at, field, self.check_given(parts.get(given), len(at), given))

        at_points = features(places, "distance", "given")
        asked, at_queries = places, at_points
        if parts.get("queries") is not None:
            asked = self.check_points(parts["queries"], "queries")
            at_queries = features(asked, "query_distance", "query_given")
        cloud, queries = self.normaliser.points(places), self.normaliser.points(asked)
        read, steps = self._known(states, at_points), self.steps(parts.get("steps"))
        return self.sample(cloud, read, queries, at_queries, parameters, num_steps=steps)

    def _known(self, states: np.ndarray, at_points: np.ndarray) -> np.ndarray:
        """Return the encoder's features from states (I, N, C) and `features_at` their points."""
        known = self.normaliser.standardise(states).transpose(1, 0, 2)
        return np.concatenate([known.reshape(len(at_points), -1), at_points], axis=-1)

    def case_inputs(self, case: StoredCase, start_s: float | None, steps: int | None) -> Batch:
        self.check_case(case)
        moments = self.input_times(self.start(case, start_s))
        frames = [self.snapshot(case, moment) for moment in moments.tolist()]
        stride = frames[-1] - frames[-2] if len(frames) > 1 else 1
        span, channels = slice(frames[0], frames[-1] + 1, stride), self.normaliser.read_channels
        known = read_states(case, channels, span)
        states, given = np.split(known, [len(self.normaliser.channels)], axis=-1)
        field = (case.distance, case.direction) if self.normaliser.stored_kinds else None
        at_points = self.features_at(case.points, field, given[-1])
        edges = read_edges(case) if self.reads_edges else None
        cloud, steps = self.normaliser.points(case.points), self.steps(steps)
        known = self._known(states, at_points)
        return self.sample(
            cloud, known, cloud, at_points, case.parameters, num_steps=steps, edges=edges
        )

    def windows(self, case: StoredCase) -> Iterator[Window]:
        """Yield one window per step of the rollout, from where training windows begin."""
        times, length = np.asarray(case.time), self.num_steps * self.step_s
        states = read_states(case, self.normaliser.channels, slice(None))
        last = times[-1] - length + time_tolerance(times)
        starts = np.arange(self.start(case), last, self.step_s)
        if not len(starts):
            raise InputError(
                f"case {case.id} ends at {times[-1]:g} s: no window of {length:g} s fits after"
                f" {self.data.start_s:g} s"
            )
        for start in starts.tolist():
            after = start + self.step_s * np.arange(self.num_steps + 1)
            first, *others = (self.snapshot(case, at) for at in after.tolist())
            yield Window(start, states[first], states[others])

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

    def steps(self, asked: int | None) -> int:
        if asked is None:
            return self.num_steps
        if not isinstance(asked, Integral) or asked < 1:
            raise InputError(f"steps = {asked!r:.100}: ask for a whole number, at least one")
        return int(asked)

    def steps_to_end(self, case: StoredCase, start_s: float | None) -> int:
        last = float(np.asarray(case.time)[-1])
        return int((last - self.start(case, start_s)) / self.step_s + TIME_TOLERANCE)

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


@dataclass(frozen=True)
class TrajectorySet:
    """Trajectories of K cases; N = the most points of any; D, C channels, L anchors."""

    ids: tuple[str, ...]
    snapshot_interval_s: float
    points: Tensor  # (K, N, 3)
    distance: Tensor  # (K, N, D)
    anchors: Tensor  # (K, L, 3), farthest point sampling of each case's points
    parameters: Tensor  # (K, P), the design parameters
    num_points: Tensor  # (K,)
    frames: Tensor
    """(F, N, C + G): the snapshots of all cases, one case after another; given channels last"""
    first_frame: Tensor  # (K,): the first frame of each case in `frames`
    start_s: Tensor  # (K,) float64: the time of its first frame
    num_frames: Tensor  # (K,)
    sign: Tensor
    """(K, C + G): states are sign * frame + offset; 1 and 0 but in mirror images of cases"""
    offset: Tensor  # (K, C + G)
    num_given: int = 0  # G: channels that are only inputs
    neighbours: Tensor | None = None
    """(K, N, k) int32 of `Batch.neighbours`; None where the model reads no edges"""

    def to(self, device: torch.device | str) -> TrajectorySet:
        """Move what batches are made of to the device; windows are chosen on the CPU."""
        moved: dict[str, Any] = {
            name: each.to(device)
            for name, each in vars(self).items()
            if isinstance(each, Tensor) and name not in _ON_CPU
        }
        return replace(self, **moved)


def even_times(case: StoredCase, start_s: float) -> tuple[np.ndarray, float]:
    """Return the times of snapshots from `start_s` on, and their interval; InputError if uneven."""
    time = np.asarray(case.time, dtype=np.float64)
    late = time[time >= start_s - time_tolerance(time)]
    if len(late) < 2:
        raise InputError(
            f"case {case.id} has {len(late)} snapshots from {start_s:g} s on; lower data.start_s or"
            " solve longer"
        )
    steps = np.diff(late)
    if np.ptp(steps) > TIME_TOLERANCE * steps.mean():
        raise InputError(
            f"case {case.id}: snapshots lie {steps.min():g} to {steps.max():g} s apart;"
            " expected one interval"
        )
    return late, float(steps.mean())


def common_interval(dataset: Dataset, intervals: Iterable[float]) -> float:
    """Return the seconds between snapshots; InputError where cases differ in it."""
    # Nine digits: the difference of two times has no more that mean anything.
    found = sorted({float(f"{each:.9g}") for each in intervals})
    if found[-1] - found[0] > TIME_TOLERANCE * found[0]:
        apart = dict.fromkeys(f"{value:g} s" for value in found)
        raise InputError(
            f"dataset {dataset.url} {dataset.version}: snapshots lie {', '.join(apart)} apart;"
            " train on cases with one snapshot interval"
        )
    return found[0]


class WindowReader:
    """Read the trajectories of cases from the store: all of them, or window by window.

    With `mirror_y`, after each case comes its image in y = 0. `ids`, `start_s` and `num_frames` are
    as in a TrajectorySet of these cases. Safe to share between threads.
    """

    def __init__(
        self,
        dataset: Dataset,
        ids: Sequence[str],
        problem: TransientProblem,
        mirror_y: bool = False,
    ) -> None:
        self.dataset, self.problem, self.normaliser = dataset, problem, problem.normaliser
        self._cases = list(ids)
        with ThreadPoolExecutor(READERS) as readers:
            cases = list(readers.map(dataset.__getitem__, ids))
            found = list(readers.map(lambda case: even_times(case, problem.data.start_s), cases))
        self.snapshot_interval_s = common_interval(dataset, (interval for _, interval in found))
        times = [late for late, _ in found]
        ends = [len(np.asarray(case.time)) for case in cases]
        self._spans = [slice(e - len(t), e, 1) for e, t in zip(ends, times, strict=True)]
        self._most = max(case.num_points for case in cases)
        images = (False, True) if mirror_y else (False,)
        self._shown = [(number, image) for number in range(len(ids)) for image in images]
        self.ids = tuple(f"{ids[n]} mirrored" if image else ids[n] for n, image in self._shown)
        starts = [times[number][0] for number, _ in self._shown]
        self.start_s = torch.tensor(starts, dtype=torch.float64)
        self.num_frames = torch.tensor([len(times[number]) for number, _ in self._shown])
        from cachetools import LRUCache, cached  # only where cases are stored

        kept: Any = LRUCache(GEOMETRY_BYTES, lambda of: num_bytes(of.values()))
        self._geometry = cached(kept, lock=threading.Lock())(self._prepare)

    @property
    def all_bytes(self) -> float:
        """The memory that all snapshots take, with every case padded to the largest."""
        rows = [self.dataset.records[case] for case in self._cases]
        snapshots = sum(row["num_snapshots"] for row in rows)
        width = max(row["num_points"] for row in rows) * len(self.normaliser.read_channels)
        return 4.0 * snapshots * width

    def read_all(self) -> TrajectorySet:
        """Read all trajectories; images share the frames of their case."""
        cases = range(len(self._spans))
        frames, first_frame = self._frames(cases, self._spans, cached=())
        with ThreadPoolExecutor(READERS) as readers:
            geometries = list(readers.map(self._geometry, range(len(self._shown))))
        return TrajectorySet(
            ids=self.ids,
            snapshot_interval_s=self.snapshot_interval_s,
            frames=frames,
            first_frame=first_frame[torch.tensor([case for case, _ in self._shown])],
            num_frames=self.num_frames,
            num_given=len(self.normaliser.given),
            start_s=self.start_s,
            **_joined(geometries),
        )

    def read(self, windows: Tensor, config: TransientData) -> tuple[TrajectorySet, Tensor]:
        """Read (B, 2) windows as B trajectories; return these, and the windows' places in them."""
        num, stride = config.num_states, snapshots_per_step(self, config)
        numbers, first_frames = windows.unbind(1)
        cases = [self._shown[number][0] for number in numbers.tolist()]
        starts = zip(cases, first_frames.tolist(), strict=True)
        begins = [self._spans[case].start + first for case, first in starts]
        spans = [slice(begin, begin + (num - 1) * stride + 1, stride) for begin in begins]
        frames, first_frame = self._frames(cases, spans, self._cached)
        trajectories = TrajectorySet(
            ids=tuple(self.ids[number] for number in numbers.tolist()),
            snapshot_interval_s=self.snapshot_interval_s * stride,
            frames=frames,
            first_frame=first_frame,
            num_frames=torch.full((len(windows),), num),
            num_given=len(self.normaliser.given),
            start_s=self.start_s[numbers] + first_frames * self.snapshot_interval_s,
            **_joined([self._geometry(number) for number in numbers.tolist()]),
        )
        places = torch.arange(len(windows))
        return trajectories, torch.stack([places, torch.zeros_like(places)], dim=1)

    def _frames(
        self, cases: Sequence[int], spans: Sequence[slice], cached: Collection[str]
    ) -> tuple[Tensor, Tensor]:
        """Read spans of the snapshots of cases; return them in a row, and where each begins."""
        num = torch.tensor([len(range(span.start, span.stop, span.step)) for span in spans])
        first, channels = torch.cumsum(num, 0) - num, self.normaliser.read_channels
        frames = torch.zeros(int(num.sum()), self._most, len(channels))

        def read(number: int, span: slice, begin: int) -> None:
            case = self.dataset[self._cases[number]]
            cache = self._cache if case.id in cached else None
            states = self.normaliser.standardise_read(read_states(case, channels, span, cache))
            # Written in place: only one copy is in memory.
            frames[begin : begin + len(states), : case.num_points] = torch.from_numpy(states)

        # One after the other where a case is to be decoded into the cache once.
        with ThreadPoolExecutor(1 if cached else READERS) as readers:
            list(readers.map(read, cases, spans, first.tolist()))
        return frames, first

    @cached_property
    def _cache(self) -> LocalCache:
        from simgen.store.read import LocalCache  # training from memory does without the store

        data = self.problem.data
        # The cache removes files, and an experiment may name any folder: it gets one of its own.
        return LocalCache(Path(data.cache_folder) / "courant-arrays", int(data.cache_gb * 1e9))

    @cached_property
    def _cached(self) -> frozenset[str]:
        """The first cases whose fields fit into the cache together."""
        components = {field.name: len(field.components) for field in self.dataset.schema.fields}
        names = {each.field for each in self.normaliser.read_channels}
        rows = [self.dataset.records[case] for case in self._cases]
        size = 4 * sum(components[name] for name in names)
        total = np.cumsum([row["num_points"] * row["num_snapshots"] * size for row in rows])
        fitting = int(np.searchsorted(total, self._cache.max_bytes, side="right"))
        return frozenset(self._cases[:fitting])

    def _prepare(self, number: int) -> dict[str, Tensor]:
        """Prepare what a TrajectorySet holds of one case besides its snapshots, as K = 1."""
        index, is_mirrored = self._shown[number]
        case, normaliser = self.dataset[self._cases[index]], self.normaliser
        flip = np.array([1, -1 if is_mirrored else 1, 1], np.float32)
        field = (case.distance, case.direction * flip) if normaliser.stored_kinds else None
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
            # The mirrored value -v is standardised to -(v - mean) / std - 2 mean / std.
            "offset": ((sign - 1) * mean / std)[None],
        }
        if self.problem.reads_edges:
            edges = torch.from_numpy(read_edges(case))[None]
            geometry["neighbours"] = join_padded([edges], -1, self._most)
        return geometry


def mirror_sign(channel: Channel) -> float:
    """Return -1 for components that change sign in a mirror image in y = 0 (y, xy, yz), else 1."""
    return -1.0 if is_spatial(channel.component) and channel.component.count("y") % 2 else 1.0


def _joined(geometries: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """Join cases' geometries; lists of neighbours differ in their width."""
    joined: dict[str, Any] = {}
    for name in geometries[0]:
        parts = [geometry[name] for geometry in geometries]
        joined[name] = join_padded(parts, -1) if name == "neighbours" else torch.cat(parts)
    return joined


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
    if lacking := [trajectories.ids[number] for number, row in enumerate(rows) if not len(row)]:
        span = f"{config.num_states - 1} x {config.step_s:g} s"
        most = f"{len(lacking)} of {len(rows)} cases are too short for a window of {span}"
        logger.warning("%s, such as %s: nothing is learned from them", most, lacking[0])
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
            # The windows of other workers are never read.
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
    """Draw the points of `windows` (B, 2), the same however many workers share them by `shard`."""
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
    batch = gather(trajectories, windows[shard], config, points, queries)
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


def gather(
    trajectories: TrajectorySet,
    windows: Tensor,
    config: TransientData,
    points: Tensor | None = None,
    queries: Tensor | None = None,
) -> Batch:
    """Return the batch of `windows` at some points (B, N) and queries (B, M); None = all."""
    device = trajectories.points.device
    numbers, start = windows.unbind(1)
    step = snapshots_per_step(trajectories, config)
    moments = trajectories.first_frame[numbers] + start
    moments = moments[:, None] + step * torch.arange(config.num_states)
    num_points = trajectories.num_points[numbers]
    # Without waiting for the copy; `num_points` stays on the CPU.
    case, times = (index.to(device, non_blocking=True) for index in (numbers, moments))
    sign, offset = trajectories.sign[case][:, None, None], trajectories.offset[case][:, None, None]
    every = torch.arange(trajectories.points.shape[1], device=device)[None]
    has_edges = points is None and trajectories.neighbours is not None  # those of the whole mesh
    points, queries = (every if chosen is None else chosen for chosen in (points, queries))

    def geometry(chosen: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return positions, distance field and mask."""
        at = case[:, None], chosen
        # Padding is chosen last: the number chosen shows whether there is any, without waiting.
        is_whole = chosen.shape[1] <= int(num_points.min())
        mask = None if is_whole else chosen < num_points.to(device, non_blocking=True)[:, None]
        return trajectories.points[at], trajectories.distance[at], mask

    def states(at: Tensor, chosen: Tensor) -> Tensor:
        """Gather (B, T) frames at the chosen points as (B, T, M, C)."""
        return trajectories.frames[at[:, :, None], chosen[:, None, :]] * sign + offset

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
