"""Load every trajectory of a split into memory, normalised, with its geometry prepared once.

Cases differ in their number of points: points are padded to the longest case and `num_points` says
where the padding starts. Snapshots of all cases are concatenated in `frames`, so a batch is one
gather on whatever device holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from courant.data.anchor_choice import AnchorChoice
from courant.data.channels import Channel
from courant.data.geometry import DistanceField, read_edges, stack_edges
from courant.data.normalisation import Normaliser
from simgen.errors import InputError

if TYPE_CHECKING:
    from simgen.store.access.reader import Dataset
    from simgen.store.access.stored_case import StoredCase

READERS = 4
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
        clouds = list(readers.map(lambda case: Cloud.read(case, with_edges), cases))
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
    clouds: Sequence[Cloud], normaliser: Normaliser, most: int, anchors: AnchorChoice
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
class Cloud:
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
    def read(cls, case: StoredCase, with_edges: bool = False) -> Cloud:
        has_distance = bool(case.dataset.schema.measured_kinds)
        field = (case.distance, case.direction) if has_distance else None
        edges = read_edges(case) if with_edges else None
        return cls(case.id, case.points, field, case.parameters, edges)

    def mirrored(self) -> Cloud:
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
